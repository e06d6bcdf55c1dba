# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm undrain`: take links and switches of a running fabric back into use."""

from __future__ import annotations

import argparse
import json

from polyrhythm.commands.drain import asked
from polyrhythm.rest_client import add_controller_options, reported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm undrain`."""
    parser.add_argument(
        "parts", nargs="+", metavar="SWITCH|LINK", help="what is drained, as in `polyrhythm drain`"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_controller_options(parser)


def run(args: argparse.Namespace) -> int:
    """Undrain. Returns 0, 1 if the controller cannot be reached, 2 if it refuses."""

    def work() -> None:
        for name in args.parts:
            asked(args, name, "DELETE")
            if not args.json:
                print(f"{name} is in use again")
        if args.json:
            print(json.dumps({"undrained": args.parts}))

    return reported("undrain", work)
