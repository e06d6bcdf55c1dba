# SPDX-License-Identifier: Apache-2.0
"""A policy from a command line: its name, and what of it the other options change."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import replace

from controller.model import TRAFFIC_CLASSES, Policy
from controller.planner.inputs import POLICIES


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """`--levels`, `--max-moves`, `--rate-caps`, `--loss-cap` and `--lookahead`, for commands that have
    `--policy`."""
    parser.add_argument(
        "--levels",
        type=_levels,
        metavar="K",
        help=f"job levels that the switches keep for jobs, 1 to {len(TRAFFIC_CLASSES.levels)} (default: all)",
    )
    parser.add_argument(
        "--max-moves",
        type=whole,
        metavar="N",
        help="a new plan takes at most N flows off paths they could keep (default: no limit)",
    )
    parser.add_argument(
        "--rate-caps",
        type=_epsilon,
        metavar="EPS",
        help="agents hold each flow to (1 + EPS) of its max-min fair share (default: no caps)",
    )
    parser.add_argument(
        "--loss-cap",
        type=_part,
        metavar="PART",
        help="with CRUX's priorities: no job is to lose more than this part of its throughput (default: the "
        "policy's, if it has one)",
    )
    parser.add_argument(
        "--lookahead",
        action="store_true",
        help="assign paths anew before each foreseen start and end of a phase, for the jobs that send then",
    )


def policy_of(args: argparse.Namespace, name: str, policies: Mapping[str, Policy] = POLICIES) -> Policy:
    """The policy `name` with what `add_policy_options` read. Raises KeyError for an unknown name."""
    policy = policies[name]
    return replace(
        policy,
        levels=policy.levels if args.levels is None else args.levels,
        max_moves=args.max_moves,
        cap_epsilon=args.rate_caps,
        lookahead=args.lookahead,
        loss_cap=policy.loss_cap if args.loss_cap is None else args.loss_cap,
    )


def policy_arguments(args: argparse.Namespace) -> tuple[str, ...]:
    """The same options for another process."""
    words = []
    if args.levels is not None:
        words.append(f"--levels={args.levels}")
    if args.max_moves is not None:
        words.append(f"--max-moves={args.max_moves}")
    if args.rate_caps is not None:
        words.append(f"--rate-caps={args.rate_caps}")
    if args.loss_cap is not None:
        words.append(f"--loss-cap={args.loss_cap}")
    if args.lookahead:
        words.append("--lookahead")
    return tuple(words)


def _levels(text: str) -> int:
    most = len(TRAFFIC_CLASSES.levels)
    value = int(text) if text.isdecimal() else 0
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {most}")
    return value


def whole(text: str) -> int:
    """An option's type: a whole number from 0."""
    value = int(text) if text.isdecimal() else -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")
    return value


def _epsilon(text: str) -> float:
    return _number(text, 10)


def _part(text: str) -> float:
    return _number(text, 1)


def _number(text: str, most: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to {most}")
    return value
