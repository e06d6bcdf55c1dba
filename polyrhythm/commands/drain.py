# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm drain`: take links and switches of a running fabric out of use, for maintenance."""

from __future__ import annotations

import argparse
import json
from typing import Any
from urllib.parse import quote

from polyrhythm.rest_client import (
    CallError,
    add_controller_options,
    add_wait,
    call,
    call_until,
    reported,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm drain`."""
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="SWITCH|LINK",
        help="a switch (spine3), the cable of two switches (leaf1-spine3), or one of several such cables "
        "(leaf1:4-spine3:1); none: list what is drained",
    )
    parser.add_argument(
        "--cut-off",
        action="store_true",
        help="also if flows of present jobs have no path left without it",
    )
    add_wait(parser, 30, "until tables and plan avoid it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_controller_options(parser)


def run(args: argparse.Namespace) -> int:
    """Drain, or list what is drained. Returns 0, 1 if it is not done in time or the controller cannot be
    reached, 2 if it refuses."""

    def late(found: dict[str, Any]) -> str:
        names = [drain["name"] for drain in found["drains"] if drain["state"] != "drained"]
        return f"still in use after {args.wait} s: {', '.join(names)}" if args.parts and names else ""

    def work() -> None:
        for name in args.parts:
            asked(args, name, "PUT", {"cut_off": args.cut_off})
        drains = call_until(args, "drains", late)["drains"]
        if args.json:
            print(json.dumps({"drains": drains}, indent=2))
            return
        for drain in drains:
            print(f"{drain['part']:<6}  {drain['name']}  {drain['state']}")
        if not drains:
            print("nothing is drained")

    return reported("drain", work)


def asked(args: argparse.Namespace, name: str, method: str, body: object = None) -> Any:
    """Ask for the drain of what has a name, as a switch, or else as a link. Raises CallError."""
    part = quote(name, safe="")
    try:
        return call(args, f"fabric/switches/{part}/drain", body, method=method)
    except CallError as no_switch:
        # The names of links have a hyphen between two switches.
        if no_switch.status != 404 or "-" not in name:
            raise
    return call(args, f"fabric/links/{part}/drain", body, method=method)
