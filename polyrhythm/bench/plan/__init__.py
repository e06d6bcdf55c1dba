# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench plan`: what the planner costs, in groups of figures that can be measured one by one."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any

from polyrhythm.bench.report import show
from polyrhythm.progress import working
from polyrhythm.subcommands import integer

GROUPS = {
    "cluster": ("polyrhythm.bench.plan.cluster", "plans for 5 to 500 jobs on fabrics of 64 and 512 leaves"),
    "effect": ("polyrhythm.bench.plan.effect", "a running controller of 96 switches and 64 agents"),
    "excess": ("polyrhythm.bench.plan.excess", "link loads of plans, against the exact optimum"),
    "failures": (
        "polyrhythm.bench.plan.failures",
        "answers to all single failures of 64 leaves and 32 spines",
    ),
    "joint-search": ("polyrhythm.bench.plan.joint_search", "plans for jobs that all meet on one link"),
}
"""Group -> (module with `measure(seed, runs)` -> figures by name, what it measures)."""
RUNS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm bench plan`."""
    words = "; ".join(f"{name}: {text}" for name, (_, text) in GROUPS.items())
    parser.add_argument(
        "--group", action="append", choices=GROUPS, help=f"measure only this group, may be repeated; {words}"
    )
    parser.add_argument(
        "--runs", type=integer(1), default=RUNS, metavar="N", help=f"runs of each figure (default {RUNS})"
    )
    parser.add_argument(
        "--seed", type=integer(0), default=1, metavar="N", help="seed of the jobs, 0 or more (default 1)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print. Returns 1 if a process of a bench does not start."""
    chosen = [name for name in GROUPS if args.group is None or name in args.group]
    found: dict[str, Any] = {}
    for name in chosen:
        try:
            with working(f"measuring {name}"):
                found |= import_module(GROUPS[name][0]).measure(args.seed, args.runs)
        except RuntimeError as error:
            print(f"polyrhythm bench plan: {name}: {error}", file=sys.stderr)
            return 1
    show(found, args.json)
    return 0
