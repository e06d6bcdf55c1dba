# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper EXPERIMENT`: the papers' experiments."""

from __future__ import annotations

import argparse

from polyrhythm.subcommands import add_commands, run_command

EXPERIMENTS = {
    "routing": (
        "polyrhythm.paper.routing",
        "path assignment for large models under all algorithms and with failed spines (the routing paper)",
    ),
    "mltcp": (
        "polyrhythm.paper.mltcp",
        "jobs that come to take turns by themselves, as a fluid and on packets (CASSINI/MLTCP thesis, 1.2)",
    ),
    "cassini-snapshots": (
        "polyrhythm.paper.cassini_snapshots",
        "jobs on one link, fair and in turns, on packets (CASSINI thesis, Tables 3.1 and 4.3)",
    ),
    "interleave": (
        "polyrhythm.paper.interleave",
        "the loop of time and space against each mechanism alone, on random and adversarial sets of jobs",
    ),
    "crux-testbed": (
        "polyrhythm.paper.crux_testbed",
        "jobs that share paths and PCIe on 96 GPUs, with and without CRUX (CRUX, Figures 19 to 22)",
    ),
    "crux-trace": (
        "polyrhythm.paper.crux_trace",
        "two weeks of jobs on three fabrics under CRUX, its parts and its rivals (CRUX, Figure 23)",
    ),
    "crux-microbench": (
        "polyrhythm.paper.crux_microbench",
        "paths, priorities and levels against the optimum of 1,500 small cases (CRUX, section 4.4)",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The experiments, as words after `polyrhythm paper`."""
    add_commands(parser, EXPERIMENTS, "experiment")


def run(args: argparse.Namespace) -> int:
    """Run the chosen experiment."""
    return run_command(EXPERIMENTS, "experiment", args)
