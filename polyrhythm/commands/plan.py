# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm plan`: compute the plan of a scenario from its declared profiles, and explain it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from controller.model import Plan
from controller.planner import explain
from controller.planner.options import POLICY_HELP, add_policy_options, policy_of
from polyrhythm.api import load_scenario, plan_scenario
from polyrhythm.progress import working
from polyrhythm.subcommands import integer
from polyrhythm_files import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm plan`."""
    parser.add_argument(
        "scenario",
        metavar="SCENARIO",
        help="a scenario file, or the name of a scenario that comes with Polyrhythm",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        default="polyrhythm",
        help=f"{POLICY_HELP} (default polyrhythm)",
    )
    add_policy_options(parser)
    parser.add_argument(
        "--seed",
        type=integer(0),
        default=1,
        help="seed of the planner's random choices, 0 or more (default 1)",
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def run(args: argparse.Namespace) -> int:
    """Compute and print the plan. Returns 2 for a scenario that is not legal."""
    try:
        scenario = load_scenario(args.scenario)
        policy = policy_of(args, args.policy)
        with working("planning"):
            decided = plan_scenario(scenario, policy, args.seed)
    except (ConfigError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(to_json(decided), indent=2) if args.json else explain(decided))
    return 0


def to_json(decided: Plan) -> dict[str, Any]:
    """A plan as JSON values. Time-shifts and periods are in ms."""
    jobs = [
        {
            "job": j.job,
            "level": j.level,
            "dscp": j.dscp,
            "shift_ms": j.shift_ns / 1e6,
            "period_ms": _ms(j.period_ns),
            "once": j.once,
            "intensity": j.intensity,
            "sender": j.sender,
            "expected_ms": _ms(j.expected_ns),
            "ecmp_ms": _ms(j.ecmp_ns),
            "floor_ms": _ms(j.floor_ns),
            "ecmp_ratio": j.ecmp_ratio,
            "why": j.why,
        }
        for j in decided.jobs.values()
    ]
    return {
        "policy": decided.policy.name,
        "jobs": jobs,
        "flows": [asdict(f) for f in decided.flows.values()],
        "links": [asdict(link) for link in decided.links],
        "pins": [asdict(pin) for pin in decided.pins],
        "remarks": [asdict(remark) for remark in decided.remarks],
    }


def _ms(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / 1e6
