# SPDX-License-Identifier: Apache-2.0
"""The command line of `polyrhythm controller`: its options, and how they are checked."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from controller.planner import Policy, PolicyError
from controller.planner.options import POLICY_HELP, add_policy_options, policy_of, whole
from controller.process.config import FabricDescription, load_fabric
from controller.process.listeners import Listeners, add_listener_arguments, check_targets, listeners_of
from controller.process.state_options import SharedState, add_state_arguments, state_of
from controller.southbound.artefacts import artefacts_dir
from controller.wire.log_lines import LogFormat
from polyrhythm_files import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm controller`."""
    parser.add_argument(
        "--fabric", type=Path, required=True, metavar="FILE", help="description of the fabric (JSON)"
    )
    parser.add_argument(
        "--policy",
        default="polyrhythm",
        metavar="NAME",
        help=f"{POLICY_HELP} (default %(default)s)",
    )
    add_policy_options(parser)
    add_listener_arguments(parser)
    parser.add_argument(
        "--seed", type=whole, default=1, metavar="N", help="seed of the planner (default %(default)s)"
    )
    parser.add_argument(
        "--rpc-delay-ms",
        type=float,
        default=0.0,
        metavar="X",
        help="for tests: sleep this long before each message of or to an agent (default %(default)s)",
    )
    parser.add_argument(
        "--poll", action="store_true", help="read the switches' counters also while no browser shows the page"
    )
    parser.add_argument(
        "--artefacts",
        type=Path,
        metavar="DIR",
        help="push the P4 program of this folder: NAME.p4info.txtpb with NAME.bin or NAME.json "
        "(default: the program for BMv2)",
    )
    add_state_arguments(parser)
    parser.add_argument(
        "--agents-needed",
        type=whole,
        metavar="N",
        help="how many hosts need an agent for the controller to be ready (/readyz; default: all)",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="replace another controller that is the primary of a switch now; without this, and without "
        "etcd, a controller waits until the other one leaves",
    )
    parser.add_argument(
        "--log-format",
        choices=get_args(LogFormat),
        default="text",
        help="text: lines for people; json: an object a line, with fields (default %(default)s)",
    )
    parser.add_argument(
        "--app",
        action="append",
        default=[],
        metavar="MODULE",
        help="load this Ryu application, a module name or a file (may be repeated)",
    )


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The command line, checked."""

    fabric: FabricDescription
    policy: Policy
    artefacts: Path
    listeners: Listeners
    seed: int
    rpc_delay_s: float
    poll: bool
    state: Path | SharedState | None
    agents_needed: int | None
    take_over: bool = False
    apps: tuple[str, ...] = ()


def check_options(args: argparse.Namespace) -> StartOptions:
    """Check the command line. Raises ConfigError or TlsError."""
    try:
        policy = policy_of(args, args.policy)
    except PolicyError as error:
        raise ConfigError(f"--policy: {error}") from None
    if not 0 <= args.rpc_delay_ms <= 10_000:
        raise ConfigError(f"--rpc-delay-ms {args.rpc_delay_ms}: legal: 0 to 10,000")
    listeners = listeners_of(args)
    fabric = load_fabric(args.fabric)
    check_targets(args.fabric, fabric, listeners)
    return StartOptions(
        fabric=fabric,
        policy=policy,
        artefacts=artefacts_dir() if args.artefacts is None else args.artefacts,
        listeners=listeners,
        seed=args.seed,
        rpc_delay_s=args.rpc_delay_ms / 1e3,
        poll=args.poll,
        state=state_of(args, fabric),
        agents_needed=args.agents_needed,
        take_over=args.take_over,
        apps=tuple(args.app),
    )
