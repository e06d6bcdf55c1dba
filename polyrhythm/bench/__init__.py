# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench BENCH`: how fast the parts are, on this machine."""

from __future__ import annotations

import argparse

from polyrhythm.subcommands import add_commands, run_command

BENCHES = {
    "agent": ("polyrhythm.bench.agent", "the agent's memory, processor time and answers to new flows"),
    "compress": ("polyrhythm.bench.compress", "priority compression"),
    "interleave": ("polyrhythm.bench.interleave", "the rotation search, against plain enumeration"),
    "routing": ("polyrhythm.bench.routing", "path assignment, rates, source ports and fail-over"),
    "switch": ("polyrhythm.bench.switch", "the embedded switch's packets per second, and BMv2's"),
    "sim": ("polyrhythm.bench.sim", "the simulator's events per second, and two weeks of a cluster"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The benches, as words after `polyrhythm bench`."""
    add_commands(parser, BENCHES, "bench")


def run(args: argparse.Namespace) -> int:
    """Run one bench."""
    return run_command(BENCHES, "bench", args)
