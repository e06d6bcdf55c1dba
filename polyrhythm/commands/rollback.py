# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm rollback`: bring an earlier plan of a running controller into force again."""

from __future__ import annotations

import argparse
import json

from polyrhythm.rest_client import add_controller_options, call, reported
from polyrhythm.subcommands import integer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm rollback`."""
    parser.add_argument(
        "version",
        type=integer(1, 1 << 53),
        metavar="VERSION",
        help="number of the plan, as in `polyrhythm history`",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_controller_options(parser)


def run(args: argparse.Namespace) -> int:
    """Roll back. Returns 0, 1 if the controller cannot be reached, 2 if it refuses."""

    def work() -> None:
        done = call(args, f"plans/{args.version}/rollback", method="POST")
        if args.json:
            print(json.dumps(done, indent=2))
            return
        print(f"plan {done['rolled_back_to']} is in force again, as plan {done['version']}")

    return reported("rollback", work)
