# SPDX-License-Identifier: Apache-2.0
"""The command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import metadata

from polyrhythm.commands import add_commands, run_command

COMMANDS = {
    "run": (
        "polyrhythm.run.command",
        "measure scenarios under ECMP and under Polyrhythm, and show them live",
    ),
    "plan": ("polyrhythm.plan", "print the plan for a scenario, and why"),
    "route": ("polyrhythm.route", "paths, source ports and rates for a list of flows"),
    "topo": ("polyrhythm.topo_command", "what a topology file holds, with the switches' hashes"),
    "priority": ("polyrhythm.priority", "who goes first among jobs that share links, on which level"),
    "sim": ("polyrhythm.simulate", "a workload on a cluster under one or several policies, flow by flow"),
    "interleave": ("polyrhythm.interleave", "when each job talks, for links and jobs in a file"),
    "bench": ("polyrhythm.bench", "how fast the parts are, on this machine"),
    "paper": ("polyrhythm.paper", "the papers' experiments"),
    "switch": ("bmv2.standalone", "the embedded switch as a process, with simple_switch_grpc's command line"),
    "controller": ("controller.process.server", "the controller of one fabric"),
    "agent": ("hostagent.process", "the agent of one host: pins flows, paces jobs, falls back by itself"),
    "fabric": ("polyrhythm.fabric.process", "the embedded fabric: switches, NICs and agents in one process"),
    "emulation": (
        "polyrhythm.emulation.process",
        "the Mininet fabric: switches, agents and sockets in network namespaces (root)",
    ),
    "pipeline": ("polyrhythm.pipeline", "what a target is given besides P4Info: device config, queueing"),
    "stf": ("polyrhythm.stf", "run p4c's packet tests (STF) against the embedded switch"),
    "shell": ("polyrhythm.shell", "p4runtime-shell on a switch of the running fabric"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    _open_standard_streams()
    _leave_web_proxies()
    parser = argparse.ArgumentParser(
        prog="polyrhythm",
        description="The SDN controller for GPU training clusters.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"polyrhythm {metadata.version('polyrhythm')}")
    add_commands(parser, COMMANDS, "command")
    try:
        # A command's module is imported here, which takes a while.
        args = parser.parse_args(arguments)
    except KeyboardInterrupt:
        return 130
    try:
        code = run_command(COMMANDS, "command", args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever reads us has seen enough (`| head`).
        _write_no_more()
        return 1
    except OSError as error:
        # A full disk, a folder that is not ours: what no command expects, and no fault of the program.
        where = f"{error.filename}: " if error.filename else ""
        print(f"polyrhythm {args.command}: {where}{error.strerror or error}", file=sys.stderr)
        _write_no_more()
        return 1
    return code


def _write_no_more() -> None:
    """Nothing more goes to standard output, not at the exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave_web_proxies() -> None:
    """Switches, agents and our own processes are spoken to directly. gRPC and urllib would go through the
    machine's proxy for the web, to 127.0.0.1 too; one that is meant (`grpc_proxy`) stays."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)


def _open_standard_streams() -> None:
    """Where the caller closed them (`>&-`) Python has None for a stream: what is written is then lost."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
