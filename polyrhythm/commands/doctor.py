# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm doctor`: find the likeliest faults of a deployment, on the host where it runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from controller.process.config import FabricFile, load_fabric
from controller.wire.log_lines import printable
from hostagent.config import read_config
from hostagent.process import DEFAULT_CONFIG
from polyrhythm.doctor.cables import check_cables
from polyrhythm.doctor.certificates import check_certificates
from polyrhythm.doctor.finding import Deployment, Finding, ProblemError, UncheckedError
from polyrhythm.doctor.host import check_dscp, check_mtu, check_offloads, check_route
from polyrhythm.doctor.sessions import (
    check_agent_socket,
    check_hash,
    check_policy,
    check_switches,
    check_time,
)
from polyrhythm_files import LARGE, ConfigError, convert, read_document

CHECKS: dict[str, Callable[[Deployment], str]] = {
    "nic-offloads": check_offloads,
    "mtu": check_mtu,
    "dscp-trust": check_dscp,
    "route": check_route,
    "hash": check_hash,
    "time": check_time,
    "agent-socket": check_agent_socket,
    "certificates": check_certificates,
    "switches": check_switches,
    "cables": check_cables,
    "policy": check_policy,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm doctor`."""
    parser.epilog = "Exit codes: 0 no problem found, 1 at least one problem, 2 bad input."
    parser.add_argument("--fabric", type=Path, metavar="FILE", help="the description of the fabric")
    parser.add_argument(
        "--agent", type=Path, metavar="FILE",
        help=f"the configuration of this host's agent (default: {DEFAULT_CONFIG}, if it is there)",
    )  # fmt: skip
    parser.add_argument(
        "--web", default="", metavar="URL", help="the controller's REST API, http://HOST:PORT"
    )
    parser.add_argument("--token", type=Path, metavar="FILE", help="file with a token for the REST API")
    parser.add_argument("--web-ca", type=Path, metavar="FILE", help="authority of its certificate, PEM")
    parser.add_argument(
        "--interface", default="", metavar="NAME",
        help="the network interface of RoCE (default: nic.interface, or the one with agent.ip)",
    )  # fmt: skip
    parser.add_argument("--policy", default="", metavar="NAME", help="the policy that should be in force")
    parser.add_argument(
        "--only", action="append", choices=tuple(CHECKS), metavar="CHECK",
        help=f"make only this check (may be repeated): {', '.join(CHECKS)}",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Make the checks. Returns 1 if there is a problem, 2 if a file cannot be used."""
    try:
        deployment = _deployment(args)
    except ConfigError as error:
        print(f"polyrhythm doctor: {error}", file=sys.stderr)
        return 2
    findings = [_made(name, deployment) for name in args.only or CHECKS]
    problems = sum(f.state == "problem" for f in findings)
    if args.json:
        print(json.dumps({"problems": problems, "findings": [asdict(f) for f in findings]}, indent=2))
    else:
        for finding in findings:
            # Names come from others.
            print(f"{finding.state:8} {finding.check:13} {printable(finding.what)}")
            if finding.remedy:
                print(f"{'':22} do: {printable(finding.remedy)}")
        unknown = sum(f.state == "unknown" for f in findings)
        print(f"{problems} problems; {unknown} of {len(findings)} checks could not be made here")
    return 1 if problems else 0


def _made(name: str, deployment: Deployment) -> Finding:
    try:
        return Finding(name, "ok", CHECKS[name](deployment))
    except ProblemError as problem:
        return Finding(name, "problem", str(problem), problem.remedy)
    except UncheckedError as why:
        return Finding(name, "unknown", f"cannot be checked here: {why}")
    except OSError as error:
        return Finding(name, "unknown", f"cannot be checked here: {error.strerror or error}")
    except (KeyError, TypeError, ValueError) as error:
        # Agent and REST API were read as they should answer.
        what = f"cannot be checked here: an answer is not that of Polyrhythm: {error!r:.200}"
        return Finding(name, "unknown", what)


def _is_web_address(text: str) -> bool:
    if not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        # Reading the port checks it.
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _deployment(args: argparse.Namespace) -> Deployment:
    """What the options name. Raises ConfigError."""
    fabric = fabric_file = agent = None
    addresses = {}
    if args.fabric is not None:
        fabric = load_fabric(args.fabric)
        fabric_file = convert(read_document(args.fabric, LARGE), FabricFile)
    path = args.agent or (DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None)
    if path is not None:
        document, agent = read_config(path)
        with document.checks():
            addresses = agent.addresses()
    if args.web and not _is_web_address(args.web):
        raise ConfigError(f"--web {printable(args.web)}: legal: http://HOST:PORT or https://HOST:PORT")
    try:
        token = args.token.read_text(encoding="utf-8").strip() if args.token is not None else ""
    except (OSError, ValueError) as error:
        raise ConfigError(f"--token {args.token}: {getattr(error, 'strerror', error)}") from None
    return Deployment(
        fabric=fabric,
        fabric_file=fabric_file,
        fabric_folder=args.fabric.parent if args.fabric is not None else Path(),
        agent=agent,
        addresses=addresses,
        interface=args.interface,
        web=args.web.rstrip("/"),
        token=token,
        web_ca=args.web_ca,
        policy=args.policy,
    )
