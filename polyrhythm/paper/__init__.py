# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper EXPERIMENT`: reproduce the experiments of the papers."""

from __future__ import annotations

import argparse

from polyrhythm.subcommands import CommandParser, add_commands, run_command

EXPERIMENTS = {
    "all": (
        "polyrhythm.paper.overview",
        "every experiment, and one HTML report of the papers' figures beside ours with a verdict each",
    ),
    "routing": (
        "polyrhythm.paper.routing",
        "path assignment for large models under all algorithms and with failed spines (the routing paper)",
    ),
    "mltcp": (
        "polyrhythm.paper.mltcp",
        "jobs under MLTCP that interleave by themselves, in a fluid model and on packets (thesis, 1.2)",
    ),
    "cassini-snapshots": (
        "polyrhythm.paper.cassini_snapshots",
        "jobs that share one link, fairly and in time, packet by packet (CASSINI thesis, Tables 3.1 and 4.3)",
    ),
    "cassini-testbed": (
        "polyrhythm.paper.cassini_testbed",
        "schedulers with and without CASSINI on the 24 servers of its testbed, simulated (thesis, 4.5)",
    ),
    "interleave": (
        "polyrhythm.paper.interleave",
        "the joint loop of paths and time-shifts against each mechanism alone, on random and adversarial "
        "jobs",
    ),
    "crux-testbed": (
        "polyrhythm.paper.crux_testbed",
        "jobs that share paths and PCIe on 96 GPUs, with and without CRUX (CRUX, Figures 19 to 22)",
    ),
    "crux-trace": (
        "polyrhythm.paper.crux_trace",
        "two weeks of jobs on three fabrics under CRUX, its parts and its baselines (CRUX, Figure 23)",
    ),
    "untuned": (
        "polyrhythm.paper.untuned",
        "untuned jobs of published traces at three loads: where CRUX, CASSINI or we lose",
    ),
    "dally": (
        "polyrhythm.paper.dally",
        "placement schedulers on 2 to 16 racks, with Dally's tables beside ours (Dally, Tables II and III)",
    ),
    "battery": (
        "polyrhythm.paper.battery",
        "random scenarios on packets under ECMP, CRUX, CASSINI, MLTCP and the default policy: gains, losers, "
        "and the planner's judge",
    ),
    "real-training": (
        "polyrhythm.paper.real_training",
        "unchanged PyTorch and Open MPI jobs on network namespaces, under ECMP and under ours (root)",
    ),
    "crux-microbench": (
        "polyrhythm.paper.crux_microbench",
        "paths, priorities and levels against the optimum of 1,500 small cases (CRUX, section 4.4)",
    ),
}


def add_arguments(parser: CommandParser) -> None:
    """Add the experiments as sub-commands of `polyrhythm paper`."""
    add_commands(parser, EXPERIMENTS, "experiment")


def run(args: argparse.Namespace) -> int:
    """Run the chosen experiment."""
    return run_command(EXPERIMENTS, "experiment", args)
