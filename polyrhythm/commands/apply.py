# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm apply`: what another policy, or a scenario's jobs, would change on a running controller."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from controller.planner import PolicyError
from controller.planner.registry import registered_policy
from polyrhythm.api import load_scenario
from polyrhythm.rest_client import CallError, add_controller_options, call, reported
from polyrhythm_files import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm apply`."""
    parser.add_argument(
        "what",
        metavar="SCENARIO|POLICY",
        help="name of a registered policy, for the present jobs; or a scenario (a file, or one that comes "
        "with Polyrhythm), whose jobs are planned by the controller's policy instead of the present ones",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="required: print the table entries and messages to agents that would change; nothing changes",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with the whole plan")
    add_controller_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the changes. Returns 0, 1 if the controller cannot be reached, 2 if it refuses."""

    def work() -> None:
        if not args.dry_run:
            raise CallError(
                2, "--dry-run is missing: a controller is given its policy when it starts (--policy)"
            )
        found = call(args, "plan/dry-run", _asked(args.what), method="POST")
        if args.json:
            print(json.dumps(found, indent=2))
            return
        entries = sum(len(updates) for updates in found["entries"].values())
        print(f"{entries} table entries and {len(found['messages'])} messages to agents would change")
        for switch, updates in found["entries"].items():
            for update in updates:
                print(f"switch {switch}: {update}")
        for message in found["messages"]:
            print(message)

    return reported("apply", work)


def _asked(what: str) -> dict[str, object]:
    """The body of the request for a policy or a scenario. Raises CallError."""
    try:
        return {"policy": registered_policy(what).name}
    except PolicyError as no_policy:
        try:
            scenario = load_scenario(what)
        except (ConfigError, ValueError) as no_scenario:
            raise CallError(2, f"{no_policy}; nor a scenario: {no_scenario}") from None
    return {"jobs": [asdict(workload.job) for workload in scenario.workloads]}
