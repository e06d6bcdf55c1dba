# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench BENCH`: measure the speed of the parts of Polyrhythm on this machine."""

from __future__ import annotations

import argparse

from polyrhythm.subcommands import CommandParser, add_commands, run_command

BENCHES = {
    "agent": (
        "polyrhythm.bench.agent",
        "memory and processor time of an agent, and its answers to new flows",
    ),
    "compress": ("polyrhythm.bench.compress", "time of priority compression"),
    "conformance": (
        "polyrhythm.bench.conformance",
        "the switch's P4Runtime server against the specification's rules and a model of its state",
    ),
    "dashboard": (
        "polyrhythm.bench.dashboard",
        "answers of the REST API, and bytes of its event streams, while agents ask",
    ),
    "interleave": ("polyrhythm.bench.interleave", "time of the rotation search, against plain enumeration"),
    "p4runtime": (
        "polyrhythm.bench.p4runtime",
        "entries per second to a switch, and the time to read back 64 switches",
    ),
    "plan": ("polyrhythm.bench.plan", "CPU time of the default policy's plan, by number of jobs"),
    "routing": ("polyrhythm.bench.routing", "time of path assignment, rates, source ports and failover"),
    "switch": ("polyrhythm.bench.switch", "packets per second of the embedded switch, and of BMv2"),
    "sim": ("polyrhythm.bench.sim", "events per second of the simulator, and two weeks of a cluster"),
}


def add_arguments(parser: CommandParser) -> None:
    """Add the benches as sub-commands of `polyrhythm bench`."""
    add_commands(parser, BENCHES, "bench")


def run(args: argparse.Namespace) -> int:
    """Run one bench."""
    return run_command(BENCHES, "bench", args)
