# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm place`: rank candidate placements of a job (CASSINI, Algorithm 2)."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.northbound.placement_routes import MOST_SENSITIVE, MOST_WAITED_S, placements_out
from controller.placement.latency import Sensitivity
from controller.planner.options import POLICY_HELP, add_policy_options, policy_of
from controller.planner.placement import RankedPlacement, rank_placements
from polyrhythm.api import scenario_input
from polyrhythm.placement_file import PlacementTask, load_placement_task
from polyrhythm.progress import working
from polyrhythm.rest_client import add_controller_options, call, reported
from polyrhythm.subcommands import integer
from polyrhythm_files import ConfigError

CANDIDATES_A_PROCESS = 8
"""Chosen: a process takes two seconds to start, as long as some candidates take."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm place`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help="file with a scenario, one of its jobs and lists of hosts (docs/interleaving.md has the format)",
    )
    parser.add_argument(
        "--running",
        action="store_true",
        help="ask a running controller: the job is judged beside the jobs that are present there, by the "
        "controller's policy",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        default="polyrhythm",
        help=f"{POLICY_HELP}, which chooses the paths (default polyrhythm)",
    )
    add_policy_options(parser)
    parser.add_argument(
        "--discard-loops",
        action="store_true",
        help="leave out candidates with a loop in the affinity graph, as the thesis does",
    )
    parser.add_argument(
        "--processes",
        type=integer(1, 256),
        default=None,
        metavar="N",
        help=f"processes that share the work (default: one for {CANDIDATES_A_PROCESS} candidates, at most "
        "one for each processor)",
    )
    parser.add_argument(
        "--seed", type=integer(0), default=1, metavar="N", help="seed of the planner, 0 or more (default 1)"
    )
    parser.add_argument(
        "--sensitivity",
        type=_sensitivity,
        metavar="M,R,N",
        help="the communication of the job with 8 GPUs that its compute does not hide, as parts of the "
        "compute time: on one machine, on 8 machines of a rack, and in 8 racks (Dally, Table I)",
    )
    parser.add_argument(
        "--waited-s",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds for which the job has waited for hosts, which Dally's advice takes into account "
        "(default 0)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, as POST /api/v1/placements answers")
    add_controller_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the ranked candidates. Returns 2 for bad input, 1 if a controller cannot be reached."""
    try:
        if not 0 <= args.waited_s <= MOST_WAITED_S:
            raise ValueError(f"--waited-s: {args.waited_s:g}; legal: 0 to {MOST_WAITED_S:g}")
        task = load_placement_task(args.file)
        if args.running:
            return reported("place", lambda: _show(_asked(args, task), args.json))
        with working(f"judging {len(task.candidates)} candidates"):
            ranked = _ranked(args, task)
        found = placements_out(ranked, args.sensitivity, args.waited_s)
        _show(found.model_dump(mode="json"), args.json)
    except (ConfigError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _asked(args: argparse.Namespace, task: PlacementTask) -> Mapping[str, Any]:
    """The answer of a running controller. Raises CallError."""
    jobs = [asdict(job) for job in task.candidates]
    body = {
        "candidates": jobs,
        "loops": not args.discard_loops,
        "sensitivity": args.sensitivity and asdict(args.sensitivity),
        "waited_s": args.waited_s,
    }
    found: Mapping[str, Any] = call(args, "placements", body, method="POST")
    return found


def _ranked(args: argparse.Namespace, task: PlacementTask) -> list[RankedPlacement]:
    """The candidates in order. Raises ValueError."""
    inputs = scenario_input(task.scenario, policy_of(args, args.policy), args.seed, task.others)
    loops = not args.discard_loops
    most = min(os.cpu_count() or 1, -(-len(task.candidates) // CANDIDATES_A_PROCESS))
    processes = min(args.processes or most, len(task.candidates))
    if processes == 1:
        return rank_placements(inputs, task.candidates, loops=loops)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return rank_placements(inputs, task.candidates, loops=loops, mapper=pool.map)


def _show(found: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for place, p in enumerate(found["placements"], 1):
        hosts = ", ".join(p["hosts"])
        print(f"{place}. candidate {p['index']}, compatibility {p['compatibility']:.3f}: {hosts}")
        print(f"   {p['why']}")
        print(f"   {_advice(p)}")
        for k in p["links"]:
            alone = f", {k['best_score']:.3f} alone" if k["best_score"] > k["score"] + 1e-9 else ""
            print(f"   {k['src']}-{k['dst']}: {', '.join(k['jobs'])}: score {k['score']:.3f}{alone}")
    if not found["placements"]:
        print("every candidate has a loop in its affinity graph")


def _advice(placement: Mapping[str, Any]) -> str:
    """Tier, communication and Dally's advice, in words."""
    words = [f"tier {placement['tier']}"]
    if placement["communication"] is not None:
        words.append(f"exposed communication {100 * placement['communication']:.3g} % of the compute")
    if placement["wait_s"]:
        words.append(f"Dally would wait {placement['wait_s'] / 3600:.3g} h for closer hosts")
    return ", ".join(words)


def _sensitivity(text: str) -> Sensitivity:
    """Three numbers as --sensitivity takes them."""
    try:
        machine, rack, network = map(float, text.split(","))
        if max(machine, rack, network) <= MOST_SENSITIVE:
            return Sensitivity(machine, rack, network)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r}; legal: three numbers from 0 to {MOST_SENSITIVE:g}, for example 0.08,0.23,7.15"
    )
