# SPDX-License-Identifier: Apache-2.0
"""A policy from a command line: `--policy`, and the options that tune it."""

from __future__ import annotations

import argparse
import json
import math
import typing
from collections.abc import Iterable
from typing import Any

import msgspec

from controller.interleave.timing import SENDER_CHOICES, sender_choice
from controller.model import TRAFFIC_CLASSES
from controller.planner.policy import OWN_OPTIONS, Policy, PolicyError
from controller.planner.registry import policy_named

_OPTIONS = (
    ("levels", "--levels"),
    ("max_moves", "--max-moves"),
    ("cap_epsilon", "--rate-caps"),
    ("loss_cap", "--loss-cap"),
    ("lookahead", "--lookahead"),
    ("max_slowdown", "--max-slowdown"),
    ("sender", "--sender"),
)
"""The option of a policy or its objects, and how it is called on the command line."""
NO_LIMIT = "none"
"""The value of `--max-slowdown` that removes the policy's limit."""

POLICY_HELP = "a registered policy, or package.module:NAME of an installed package (docs/policies.md)"


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """The options that tune a policy, `--levels` to `--max-slowdown`, for commands that have `--policy`."""
    parser.add_argument(
        "--levels",
        type=_levels,
        metavar="K",
        help=f"levels that the switches keep for jobs, 1 to {len(TRAFFIC_CLASSES.levels)} (default: all)",
    )
    parser.add_argument(
        "--max-moves",
        type=whole,
        metavar="N",
        help="a new plan takes at most N flows off paths that they could keep (default: no limit)",
    )
    parser.add_argument(
        "--rate-caps",
        dest="cap_epsilon",
        type=_epsilon,
        metavar="EPS",
        help="agents limit each flow to (1 + EPS) times its max-min fair share (default: no caps)",
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
        default=None,
        help="assign paths anew before each foreseen start and end of a phase, for the jobs that send then",
    )
    parser.add_argument(
        "--sender",
        type=_sender,
        metavar="NAME",
        help=f"congestion control of all jobs: {', '.join(SENDER_CHOICES)} (default: the policy's; job: each "
        "job's own choice)",
    )
    add_max_slowdown(parser)
    add_option(parser, "an option of the policy")


def add_option(parser: argparse.ArgumentParser, what: str, dest: str = "option") -> None:
    """`--option` alone."""
    parser.add_argument(
        "--option",
        dest=dest,
        action="append",
        default=[],
        type=_option,
        metavar="NAME=VALUE",
        help=f"{what}, as priority.levels=4; VALUE as in JSON, or a word (may be repeated; `plan --json` "
        "shows a policy's options)",
    )


def add_max_slowdown(parser: argparse.ArgumentParser) -> None:
    """`--max-slowdown` alone."""
    parser.add_argument(
        "--max-slowdown",
        type=_slowdown,
        metavar=f"X|{NO_LIMIT}",
        help="with the joint search: no job's expected iteration is to be longer than X times its iteration "
        f"under plain ECMP, X at least 1; {NO_LIMIT}: no limit (default: the policy's, 1.5 for polyrhythm)",
    )


def policy_of(args: argparse.Namespace, name: str, *, simulator: bool = False) -> Policy:
    """The policy `name` with the options that `add_policy_options` read.

    Raises:
        PolicyError: there is no such policy, none of its objects has an option that was given, or it is
            for the simulator only and `simulator` is False; the message says what would be legal.
    """
    policy = policy_named(name)
    if policy.simulator_only and not simulator:
        raise PolicyError(f"policy {name} runs in the simulator only (polyrhythm sim)")
    given = {option: getattr(args, option, None) for option, _ in _OPTIONS}
    tuned = policy.with_options(
        {option: None if value == NO_LIMIT else value for option, value in given.items() if value is not None}
    )
    return with_typed_options(tuned, getattr(args, "option", ()))


def with_typed_options(policy: Policy, options: Iterable[tuple[str, Any]]) -> Policy:
    """The policy with these options, by name, each of the type that the policy declares.

    Raises:
        PolicyError: no part of the policy has such an option, or the value is not legal.
    """
    for name, value in options:
        policy = policy.with_options({name: _typed(policy, name, value)})
    return policy


def _typed(policy: Policy, option: str, value: Any) -> Any:
    """The value of an option, checked against the type of its field. Raises PolicyError."""
    if option in OWN_OPTIONS:
        return value
    before, _, field = option.rpartition(".")
    parts = [before] if before else ["routing", "priority", "timing"]
    for part in parts:
        owner = getattr(policy, part, None)
        try:
            kind = typing.get_type_hints(type(owner))[field]
        except (KeyError, NameError, TypeError):
            # `Policy.with_options` says which options there are.
            continue
        try:
            return msgspec.convert(value, kind)
        except (msgspec.ValidationError, TypeError) as error:
            raise PolicyError(f"policy {policy.name}: {option} is {value!r:.100}: {error}") from None
    return value


def policy_arguments(args: argparse.Namespace) -> tuple[str, ...]:
    """The same options for the command line of another process."""
    words = []
    for option, flag in _OPTIONS:
        value = getattr(args, option)
        if value is True:
            words.append(flag)
        elif value is not None:
            words.append(f"{flag}={value}")
    words += [f"--option={name}={json.dumps(value)}" for name, value in args.option]
    return tuple(words)


def _option(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} has no value; legal: NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _sender(text: str) -> str:
    try:
        return sender_choice(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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


def _slowdown(text: str) -> float | str:
    if text == NO_LIMIT:
        return text
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value >= 1 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number from 1 nor {NO_LIMIT}")
    return value


def _number(text: str, most: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to {most}")
    return value
