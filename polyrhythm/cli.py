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
    "controller": ("controller.server", "the controller of one fabric"),
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
    parser = argparse.ArgumentParser(
        prog="polyrhythm",
        description="The SDN controller for GPU training clusters.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"polyrhythm {metadata.version('polyrhythm')}")
    add_commands(parser, COMMANDS, "command")
    args = parser.parse_args(arguments)
    try:
        code = run_command(COMMANDS, "command", args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever reads us has seen enough (`| head`); nothing more is written, not at the exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code
