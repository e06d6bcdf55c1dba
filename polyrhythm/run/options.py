# SPDX-License-Identifier: Apache-2.0
"""The options of `polyrhythm run`."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.planner.options import POLICY_HELP, add_policy_options
from polyrhythm.fabric.session_options import add_scale, add_warmup
from polyrhythm.run.comparison import BASELINE
from polyrhythm.run.experiment import MININET_WARMUP
from polyrhythm.subcommands import integer

LIVE_SCENARIO = "cluster"
DEFAULT_SCENARIOS = ("two_vgg19", "snapshot1", "snapshot2", "collide", "contend")
# Runs from random start offsets. Chosen: the fewest whose mean says more than the synchronised start alone.
DEFAULT_OFFSETS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm run`."""
    parser.add_argument(
        "scenario",
        nargs="*",
        metavar="SCENARIO",
        help="a scenario file, or the name of a scenario that comes with Polyrhythm "
        f"(default: {', '.join(DEFAULT_SCENARIOS)})",
    )
    parser.add_argument("--once", action="store_true", help="exit after the table, also on a terminal")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to a JSON file (docs/run.md)")
    parser.add_argument(
        "--fabric",
        choices=("embedded", "mininet"),
        default="embedded",
        help="embedded: one process, no root (default); mininet: real switches, agents and sockets in "
        "network namespaces, in real time (needs root)",
    )
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="run the scenarios on the fabric of this topology file (also a topology.json of p4lang's "
        "tutorials)",
    )
    parser.add_argument(
        "--cli",
        action="store_true",
        help="do not measure; open Mininet's command line on the live fabric (needs --fabric mininet and one "
        "scenario or --topology)",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        default="polyrhythm",
        help=f"the policy to compare with ECMP (default polyrhythm): {POLICY_HELP}",
    )
    parser.add_argument(
        "--compare",
        type=_policy_names,
        default=(),
        metavar="NAMES",
        help="also measure these policies, from the same start offsets, and show all in one table: names "
        "with commas between them, as spray,dlb,crux; ECMP and the policy are always in it, and options of "
        "a policy tune --policy only",
    )
    add_policy_options(parser)
    parser.add_argument(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="seed of start jitter, ECMP source ports and ECN marking, 0 or more (default 1)",
    )
    parser.add_argument(
        "--offsets",
        type=integer(0),
        default=None,
        metavar="N",
        help="also measure N runs from random start offsets, 0 or more (default "
        f"{DEFAULT_OFFSETS}; with --fabric mininet 0)",
    )
    parser.add_argument(
        "--profile",
        choices=("measured", "declared"),
        default="",
        help="measured: the controller profiles the jobs; declared: it uses the profiles that the jobs "
        "announce (default: as the scenario says)",
    )
    add_scale(
        parser,
        "default: as the scenario says; with --fabric mininet it is doubled, up to three times, where the "
        "machine is too slow for that",
    )
    add_warmup(
        parser,
        f"default: as the scenario says; with --fabric mininet at least {MININET_WARMUP}, in which the "
        "controller makes its first plans",
    )
    parser.add_argument(
        "--lanes",
        type=integer(1),
        default=2,
        metavar="N",
        help="number of sessions that run at once, 1 or more (default 2)",
    )
    parser.add_argument(
        "--fail",
        action="append",
        default=[],
        metavar="WHAT@MS",
        help="cause a failure at a fabric time in ms: power a switch off (spine2@3000), or cut the cables "
        "between two switches (leaf1:spine2@3000) or one cable, by its port (leaf1:5@3000), for good or "
        "until a time (spine2@3000-3500); repeatable",
    )
    parser.add_argument(
        "--port",
        type=integer(0, 65_535),
        default=8080,
        metavar="PORT",
        help="TCP port of the live page, 0 to 65535 (default 8080; if it is taken, the next free one)",
    )
    parser.add_argument(
        "--live-scenario",
        metavar="SCENARIO",
        help=f"the scenario of the live page (default: the first measured one, or {LIVE_SCENARIO} if "
        f"none is named)",
    )
    parser.add_argument("--rpc-delay-ms", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--keep", metavar="DIR", help="keep the logs and intermediate files in this folder")


def _policy_names(text: str) -> tuple[str, ...]:
    """The type of `--compare`."""
    names = tuple(name.strip() for name in text.split(","))
    for name, seen in zip(names, range(len(names)), strict=True):
        if not name or name in names[:seen]:
            what = f"names {name} twice" if name else "has an empty name"
            raise argparse.ArgumentTypeError(
                f"{text!r} {what}; legal: names of policies, each once, with commas between them"
            )
    return names


def rivals_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The policies of `--compare` that are not measured anyway."""
    return tuple(name for name in args.compare if name not in (BASELINE, args.policy))
