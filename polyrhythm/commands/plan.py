# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm plan`: what the planner would decide for a scenario's declared profiles, and why."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from controller.model import Plan, Policy, QueuePair
from controller.planner import POLICIES, PlanInput, explain, plan
from controller.planner.options import add_policy_options, policy_of
from polyrhythm.scenario import Scenario, load_scenario, scenario_path
from polyrhythm.subcommands import integer
from polyrhythm_files import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm plan`."""
    parser.add_argument("scenario", metavar="SCENARIO", help="a scenario file, or the name of a shipped one")
    parser.add_argument("--policy", choices=sorted(POLICIES), default="polyrhythm")
    add_policy_options(parser)
    parser.add_argument(
        "--seed", type=integer(0), default=1, help="of the planner's random choices (default 1)"
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    try:
        scenario = load_scenario(scenario_path(args.scenario))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    decided = plan_scenario(scenario, policy_of(args, args.policy), args.seed)
    print(json.dumps(to_json(decided), indent=2) if args.json else explain(decided))
    return 0


def plan_scenario(scenario: Scenario, policy: Policy, seed: int) -> Plan:
    """The plan for all jobs of a scenario at once, from their declared profiles."""
    return plan(
        PlanInput(
            topology=scenario.topology,
            jobs=tuple(w.job for w in scenario.workloads),
            policy=policy,
            epoch_ns=0,
            down_links=frozenset(),
            down_switches=frozenset(),
            previous=None,
            seed=seed,
            elephant_bytes=scenario.elephant_bytes,
            queue_pairs={
                f.name: QueuePair(port_fixed=True)
                for w in scenario.workloads
                for f in w.job.flows
                if f.src in scenario.port_choosers
            },
            # The NICs of scenarios are emulated ones.
            mltcp_hosts=frozenset(scenario.topology.host),
        )
    )


def to_json(decided: Plan) -> dict[str, Any]:
    """A plan as JSON values; shifts and periods in ms."""
    jobs = [
        {
            "job": j.job,
            "level": j.level,
            "dscp": j.dscp,
            "shift_ms": j.shift_ns / 1e6,
            "period_ms": None if j.period_ns is None else j.period_ns / 1e6,
            "once": j.once,
            "intensity": j.intensity,
            "sender": j.sender,
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
