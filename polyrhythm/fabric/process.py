# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm fabric`: the embedded fabric as a process that speaks JSON lines with its parent.

Out: `{"ready": true, "fabric": {...}}` once the switches are served, `{"progress": 0..1}`, then
`{"result": {...}}` or `{"error": "..."}`. In: `{"controller": "host:port"}` when the controller is
up; the end of input ends the process.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any

from polyrhythm.fabric.assembly import EmbeddedFabric
from polyrhythm.fabric.clock_stream import ClockStream
from polyrhythm.fabric.failures import FailureError, parse_failure
from polyrhythm.fabric.jobs import JobRunner, StalledError
from polyrhythm.scenario import load_scenario
from polyrhythm.subcommands import integer
from polyrhythm_files import ConfigError

PROGRESS_INTERVAL_S = 0.25
PACE_INTERVAL_NS = 10_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm fabric`; `polyrhythm run` gives them."""
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--mode", choices=("together", "alone"), default="together")
    parser.add_argument("--profiles", type=Path, help="measured profiles, from the result of --mode alone")
    parser.add_argument("--seed", type=integer(0), default=1)
    parser.add_argument("--profile", choices=("measured", "declared"), default="", help="not the scenario's")
    parser.add_argument("--random-offsets", action="store_true", help="start the jobs at random offsets")
    parser.add_argument(
        "--pace", type=float, default=0.0, help="fabric seconds per second; 0: as fast as it goes"
    )
    parser.add_argument("--forever", action="store_true", help="run until the input ends")
    parser.add_argument("--fail", action="append", default=[], metavar="NODE@MS|A:B@MS[-MS]")
    parser.add_argument("--rpc-delay-ms", type=float, default=0.0)


def run(args: argparse.Namespace) -> int:
    """Build the fabric, wait for the controller, run, report."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        scenario = load_scenario(args.scenario)
        failures = [parse_failure(text, scenario.topology) for text in args.fail]
    except (ConfigError, FailureError) as error:
        print(error, file=sys.stderr)
        return 2
    profiles = json.loads(args.profiles.read_text()) if args.profiles else {}
    rpc_delay_s = args.rpc_delay_ms / 1e3
    fabric = EmbeddedFabric(scenario, args.seed, rpc_delay_s, failures)
    _say({"ready": True, "fabric": fabric.describe(args.profile)})
    introduction = sys.stdin.readline()
    if not introduction:
        fabric.close()
        return 0
    address = json.loads(introduction)["controller"]
    try:
        clock = ClockStream(address, fabric.boundary, rpc_delay_s)
    except ConnectionError as error:
        _say({"error": str(error)})
        fabric.close()
        return 1
    fabric.connect_agents(address)
    runner = JobRunner(
        fabric,
        profiles,
        seed=args.seed,
        alone=args.mode == "alone",
        random_offsets=args.random_offsets,
        forever=args.forever,
    )
    parent_left = threading.Event()
    threading.Thread(target=_watch_input, args=(runner, parent_left), daemon=True).start()
    try:
        _drive(fabric, runner, args.pace)
        _say({"result": runner.result()})
        parent_left.wait()
    except StalledError as error:
        _say({"error": str(error)})
    finally:
        clock.close()
        fabric.close()
    return 0


def _drive(fabric: EmbeddedFabric, runner: JobRunner, pace: float) -> None:
    """Run the heap from stop to stop until the jobs are done."""
    heap, boundary = fabric.heap, fabric.boundary
    if pace:
        heap.call_at(PACE_INTERVAL_NS, _keep_pace, fabric, pace, time.monotonic())
    told = time.monotonic()
    boundary.stop()
    while heap.run():
        boundary.stop(last=runner.finished)
        if runner.finished:
            return
        if time.monotonic() - told > PROGRESS_INTERVAL_S:
            told = time.monotonic()
            _say({"progress": runner.progress()})


def _keep_pace(fabric: EmbeddedFabric, pace: float, started: float) -> None:
    """Let fabric time run no faster than `pace` times the host's; when it is behind, it stays so."""
    heap = fabric.heap
    ahead = heap.now / 1e9 / pace - (time.monotonic() - started)
    if ahead > 0:
        time.sleep(ahead)
    else:
        started -= ahead
    fabric.boundary.service()
    heap.call_at(heap.now + PACE_INTERVAL_NS, _keep_pace, fabric, pace, started)


def _watch_input(runner: JobRunner, parent_left: threading.Event) -> None:
    sys.stdin.read()
    parent_left.set()
    runner.abandon()


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
