# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm drain`: take links and switches of a running fabric out of use, for maintenance."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any
from urllib.parse import quote

from polyrhythm.rest_client import CallError, add_controller_options, call, reported
from polyrhythm.subcommands import integer

# Chosen, in seconds.
_LOOK_S = 0.1


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
    parser.add_argument(
        "--wait",
        type=integer(0, 3600),
        default=30,
        metavar="S",
        help="seconds to wait until tables and plan avoid it (default %(default)s; 0: do not wait)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_controller_options(parser)


def run(args: argparse.Namespace) -> int:
    """Drain, or list what is drained. Returns 0, 1 if it is not done in time or the controller cannot be
    reached, 2 if it refuses."""

    def work() -> None:
        for name in args.parts:
            asked(args, name, "PUT", {"cut_off": args.cut_off})
        deadline = time.monotonic() + args.wait
        drains: list[dict[str, Any]] = call(args, "drains")["drains"]
        while args.parts and args.wait and (late := _late(drains)):
            if time.monotonic() > deadline:
                raise CallError(1, f"still in use after {args.wait} s: {', '.join(late)}")
            time.sleep(_LOOK_S)
            drains = call(args, "drains")["drains"]
        if args.json:
            print(json.dumps({"drains": drains}, indent=2))
            return
        for drain in drains:
            print(f"{drain['part']:<6}  {drain['name']}  {drain['state']}")
        if not drains:
            print("nothing is drained")

    return reported("drain", work)


def path_of(name: str) -> str:
    """Where the drain of a switch or link is: the names of links have a hyphen between two switches."""
    return f"fabric/{{}}/{quote(name, safe='')}/drain"


def asked(args: argparse.Namespace, name: str, method: str, body: object = None) -> Any:
    """Ask for the drain of what has a name, as a switch, or else as a link. Raises CallError."""
    try:
        return call(args, path_of(name).format("switches"), body, method=method)
    except CallError as no_switch:
        if no_switch.status != 404 or "-" not in name:
            raise
    return call(args, path_of(name).format("links"), body, method=method)


def _late(drains: list[dict[str, Any]]) -> list[str]:
    return [drain["name"] for drain in drains if drain["state"] != "drained"]
