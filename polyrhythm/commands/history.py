# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm history`: the last plans of a running controller."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime

from polyrhythm.rest_client import add_controller_options, call, reported
from polyrhythm.subcommands import integer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm history`."""
    parser.add_argument(
        "--most", type=integer(1, 1000), default=20, metavar="N", help="how many (default 20)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, as GET /api/v1/plans answers")
    add_controller_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the plans. Returns 0, 1 if the controller cannot be reached, 2 if it refuses."""

    def work() -> None:
        found = call(args, f"plans?most={args.most}")
        if args.json:
            print(json.dumps(found, indent=2))
            return
        for plan in found["plans"]:
            time = datetime.fromtimestamp(plan["time_ns"] / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            mark = "  in force" if plan["in_force"] else ""
            print(f"{plan['version']:>8}  {time}  {plan['policy']}{mark}")

    return reported("history", work)
