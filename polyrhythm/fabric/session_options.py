# SPDX-License-Identifier: Apache-2.0
"""The options that the embedded fabric and the Mininet fabric share as processes."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from polyrhythm.scenario import LARGEST_SCALE, Scenario, load_scenario
from polyrhythm.subcommands import integer, number


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Add the scenario, `--mode`, `--profiles`, `--seed`, `--random-offsets`, `--warmup`,
    `--iterations` and `--scale`.
    """
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="a scenario file")
    parser.add_argument(
        "--mode",
        choices=("together", "alone"),
        default="together",
        help="all jobs at once (default), or one after another",
    )
    parser.add_argument(
        "--profiles",
        type=Path,
        metavar="FILE",
        help="a JSON file with the measured profiles from the result of --mode alone; the jobs announce them",
    )
    parser.add_argument(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="seed of jitter, ECMP ports and marking, 0 or more (default 1)",
    )
    parser.add_argument(
        "--random-offsets", action="store_true", help="start each job at a random time in its first period"
    )
    add_warmup(parser, "default: as the scenario says")
    parser.add_argument(
        "--iterations",
        type=integer(1),
        metavar="N",
        help="iterations of a job that are measured, if it does not leave (default: as the scenario says)",
    )
    add_scale(parser, "default: as the scenario says")


def add_warmup(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--warmup`, which replaces the scenario's key. `default` says what holds without it."""
    parser.add_argument(
        "--warmup",
        type=integer(1),
        metavar="N",
        help=f"iterations of a job that are not measured, 1 or more ({default})",
    )


def chosen_scenario(args: argparse.Namespace) -> Scenario:
    """The scenario with what the options of `add_session_options` replace.

    Raises:
        ConfigError: the file cannot be read, or says something wrong.
    """
    scenario = load_scenario(args.scenario, args.scale)
    return replace(
        scenario,
        warmup=args.warmup or scenario.warmup,
        iterations=args.iterations or scenario.iterations,
    )


def add_scale(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--scale`, which replaces the scenario's key. `default` says what holds without it."""
    parser.add_argument(
        "--scale",
        type=number(1, LARGEST_SCALE),
        metavar="X",
        help=f"nominal rates over emulated rates, 1 to {LARGEST_SCALE:,} ({default})",
    )
