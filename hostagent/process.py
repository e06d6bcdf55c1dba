# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm agent`: the agent of one host as a process.

When the agent is ready it prints one line: `{"ready": true, "host": ..., "pinning": ...}`, and with
`agent.metrics` the port of its metrics.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from pathlib import Path

from controller.wire.log_lines import configure_log
from controller.wire.time_slices import short_time_slices
from hostagent import kernel_mltcp
from hostagent.config import Config, config_schema, load_config, read_config
from hostagent.nccl_environment import nccl_environment
from hostagent.nic.udp import NicError
from hostagent.phases import profile_files
from hostagent.tls import check_certificates
from polyrhythm_files import ConfigError, Document

DEFAULT_CONFIG = Path("/etc/polyrhythm/agent.toml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm agent`."""
    parser.add_argument(
        "--config", type=Path, default=DEFAULT_CONFIG, metavar="FILE",
        help="the agent's configuration (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "action",
        nargs="*",
        metavar="ACTION",
        help="env JOB: print NCCL's environment for a job; profile FILE...: period and Up phases from NCCL's "
        "inspector, its profiler's trace, or counters; schema: print the configuration's JSON schema; "
        "check: check the configuration and end; mltcp load|unload|status: MLTCP for the kernel's TCP; "
        "without an action: run the agent",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--export", action="store_true", help="env: as shell commands")
    form.add_argument(
        "--json", action="store_true", help="env and check: print JSON, as the other actions always do"
    )


def run(args: argparse.Namespace) -> int:
    """Run the agent, or one of its other actions. Returns 0 after SIGTERM or SIGINT, 1 where the kernel does
    not take MLTCP, 2 for bad input.
    """
    action, *rest = args.action or ["serve"]
    try:
        if action == "schema" and not rest:
            print(json.dumps(config_schema(), indent=2))
            return 0
        if action == "check" and not rest:
            _checked(args.config)
            if args.json:
                print(json.dumps({"file": str(args.config), "mistakes": []}))
            return 0
        if action == "env" and len(rest) == 1:
            environment = nccl_environment(load_config(args.config), rest[0])
            if args.json:
                print(json.dumps(environment, indent=2))
                return 0
            for name, value in environment.items():
                print(_export(name, value) if args.export else f"{name}={value}")
            return 0
        if action == "profile" and rest:
            print(json.dumps(profile_files([Path(name) for name in rest]), indent=2))
            return 0
        if action == "mltcp" and rest in (["load"], ["unload"], ["status"]):
            return _mltcp(rest[0])
        if action == "serve" and not rest:
            return _serve(args.config)
        raise ConfigError(
            f"{' '.join(args.action)}: legal are env JOB, profile FILE..., schema, check and "
            "mltcp load|unload|status, or nothing"
        )
    except ConfigError as error:
        print(f"polyrhythm agent: {error}", file=sys.stderr)
        return 2


def _mltcp(action: str) -> int:
    try:
        if action == "load":
            kernel_mltcp.load()
        elif action == "unload":
            kernel_mltcp.unload()
        print(json.dumps(kernel_mltcp.status()))
    except kernel_mltcp.KernelMltcpError as error:
        print(f"polyrhythm agent mltcp: {error}", file=sys.stderr)
        return 1
    return 0


def _export(name: str, value: str) -> str:
    """A shell command that sets a variable. What else is preloaded stays so, behind ours."""
    others = "${LD_PRELOAD:+:$LD_PRELOAD}" if name == "LD_PRELOAD" else ""
    return f"export {name}={shlex.quote(value)}{others}"


def _checked(path: Path) -> tuple[Document, Config]:
    """The configuration and its document, after a check that the files it names can be used."""
    document, config = read_config(path)
    with document.checks():
        config.addresses()
        check_certificates(config.tls)
    return document, config


def _serve(path: Path) -> int:
    document, config = _checked(path)
    configure_log(config.agent.log_format, config.agent.log_level.upper())
    # gRPC takes longest to import, and the other actions do not need it.
    from hostagent.service import AgentService

    if config.nic.driver != "udp":
        # New flows wait for the agent too. One that sends by itself is no such light process.
        short_time_slices()
    try:
        with document.checks():
            service = AgentService(config)
    except NicError as error:
        raise ConfigError(f"{path}: {error}") from None
    service.loop.stop_on_signals(signal.SIGTERM, signal.SIGINT)
    ready = {"ready": True, "host": config.agent.host, "pinning": service.pinning}
    if config.rails:
        ready["rails"] = list(config.nics)
    if service.metrics is not None:
        ready["metrics"] = service.metrics.port
    print(json.dumps(ready), flush=True)
    service.run()
    return 0
