# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm apply`: plan by another policy on a running controller, or show what that would change."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.planner import PolicyError
from controller.planner.options import add_option
from controller.planner.registry import registered_policy
from polyrhythm.api import load_scenario
from polyrhythm.rest_client import CallError, add_controller_options, add_wait, call, call_until, reported
from polyrhythm_files import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm apply`."""
    parser.add_argument(
        "what",
        metavar="SCENARIO|POLICY",
        help="name of a registered policy, for the present jobs; or, with --dry-run, a scenario (a file, or "
        "one that comes with Polyrhythm), whose jobs are planned by the controller's policy instead of the "
        "present ones",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the table entries and messages to agents that would change; nothing changes",
    )
    add_option(parser, "an option of the policy")
    add_wait(parser, 60, "for the plan to be in force")
    parser.add_argument("--json", action="store_true", help="print JSON; with --dry-run with the whole plan")
    add_controller_options(parser)


def run(args: argparse.Namespace) -> int:
    """Change the policy, or print the changes. Returns 0, 1 if the controller cannot be reached or the plan
    does not come into force in time, 2 if it refuses."""
    return reported("apply", lambda: _dry_run(args) if args.dry_run else _apply(args))


def _apply(args: argparse.Namespace) -> None:
    try:
        registered_policy(args.what)
    except PolicyError as error:
        if _is_path(args.what):
            raise CallError(2, f"{args.what}: a scenario can be tried with --dry-run only") from None
        raise CallError(2, f"{error}; a scenario can be tried with --dry-run only") from None
    call(args, "policy", {"name": args.what, "options": dict(args.option)}, method="PUT")
    late = f"no plan of policy {args.what} is in force after {args.wait} s"
    setting = call_until(args, "policy", lambda found: "" if found["in_force"] else late)
    if args.json:
        print(json.dumps(setting, indent=2))
        return
    name = setting["policy"]["name"]
    print(f"policy {name} makes the plans" + ("" if setting["in_force"] else ", from the next one on"))


def _dry_run(args: argparse.Namespace) -> None:
    found: dict[str, Any] = call(args, "plan/dry-run", _asked(args), method="POST")
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


def _asked(args: argparse.Namespace) -> dict[str, object]:
    """The body of the request for a policy or a scenario. Raises CallError."""
    try:
        return {"policy": registered_policy(args.what).name, "options": dict(args.option)}
    except PolicyError as no_policy:
        try:
            scenario = load_scenario(args.what)
        except (ConfigError, ValueError) as no_scenario:
            words = no_scenario if _is_path(args.what) else f"{no_policy}; nor a scenario: {no_scenario}"
            raise CallError(2, str(words)) from None
    if args.option:
        raise CallError(2, "--option: legal with the name of a policy only")
    return {"jobs": [asdict(workload.job) for workload in scenario.workloads]}


def _is_path(text: str) -> bool:
    """Whether a word is more likely a file than a name. Policies of other packages have a colon."""
    return ":" not in text and ("/" in text or Path(text).suffix in (".yaml", ".yml", ".json", ".toml"))
