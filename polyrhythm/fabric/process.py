# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm fabric`: the embedded fabric as a process that exchanges JSON lines with its parent.

It writes `{"ready": true, "fabric": {...}}` once the switches are served, `{"progress": 0..1}`,
`{"waiting": "..."}` while it waits for a slow controller, and at the end `{"result": {...}}` or
`{"error": "..."}`. It reads `{"controller": "host:port"}` when the controller is up. The process ends when
its input is closed.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any

from controller.southbound.host_guard import STRAY_ACTIONS
from controller.wire.log_lines import configure_log
from polyrhythm.fabric.assembly import EmbeddedFabric
from polyrhythm.fabric.boundary import SILENCE_S, ControllerLostError
from polyrhythm.fabric.clock_stream import ClockStream
from polyrhythm.fabric.flood import HostFlood
from polyrhythm.fabric.jobs import FIRST_START_NS, JobRunner, StalledError, check_embedded
from polyrhythm.fabric.mice import BackgroundMice
from polyrhythm.fabric.session_options import add_session_options, chosen_scenario
from polyrhythm.scenario.failures import FailureError, parse_failure
from polyrhythm.subcommands import integer
from polyrhythm_files import ConfigError

# Chosen: how often progress is reported (host time), and how often the pace is checked (fabric time).
PROGRESS_INTERVAL_S = 0.25
PACE_INTERVAL_NS = 10_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm fabric`. `polyrhythm run` is the usual caller."""
    add_session_options(parser)
    parser.add_argument(
        "--profile",
        choices=("measured", "declared"),
        default="",
        help="measured: the controller profiles the jobs; declared: it uses the profiles that they "
        "announce (default: as the scenario says)",
    )
    parser.add_argument(
        "--pace",
        type=float,
        default=0.0,
        metavar="X",
        help="fabric seconds per second of host time, at most; 0: as fast as possible (default 0)",
    )
    parser.add_argument(
        "--count-from-ns",
        type=integer(0),
        default=0,
        metavar="NS",
        help="the fabric time from which iterations count (default 0)",
    )
    parser.add_argument("--forever", action="store_true", help="run until the input ends")
    parser.add_argument(
        "--until-ms",
        type=integer(0),
        default=0,
        metavar="MS",
        help="end at this fabric time, whatever the jobs have done; 0: when each job has done its iterations "
        "(default 0)",
    )
    parser.add_argument(
        "--fail",
        action="append",
        default=[],
        metavar="WHAT@MS",
        help="a failure, as in `polyrhythm run --fail`; repeatable",
    )
    parser.add_argument("--without-floods", action="store_true", help="leave the scenario's floods out")
    parser.add_argument(
        "--strays",
        choices=STRAY_ACTIONS,
        default="",
        help="what switches do with packets that hosts may not send (default: as the scenario says)",
    )
    parser.add_argument(
        "--silence-s",
        type=float,
        default=SILENCE_S,
        metavar="S",
        help=f"give a controller up that says nothing for this much host time (default {SILENCE_S:g})",
    )
    parser.add_argument(
        "--rpc-delay-ms",
        type=float,
        default=0.0,
        metavar="MS",
        help="delay every RPC by this much host time, for tests (default 0)",
    )


def run(args: argparse.Namespace) -> int:
    """Build the fabric, wait for the controller, run the jobs, and report."""
    configure_log()
    try:
        scenario = chosen_scenario(args)
        check_embedded(scenario)
        scenario = replace(scenario, strays=args.strays or scenario.strays)
        named = [parse_failure(text, scenario.topology) for text in args.fail]
    except (ConfigError, FailureError) as error:
        print(error, file=sys.stderr)
        return 2
    profiles = json.loads(args.profiles.read_text()) if args.profiles else {}
    rpc_delay_s = args.rpc_delay_ms / 1e3
    alone = args.mode == "alone"
    failures = () if alone else (*scenario.failures, *named)
    fabric = EmbeddedFabric(
        scenario, args.seed, rpc_delay_s, failures, waiting=_say_waiting, silence_s=args.silence_s
    )
    _send({"ready": True, "fabric": fabric.describe(args.profile)})
    first_line = sys.stdin.readline()
    if not first_line:
        fabric.close()
        return 0
    address = json.loads(first_line)["controller"]
    try:
        clock = ClockStream(address, fabric.boundary, rpc_delay_s)
        fabric.connect_agents(address)
    except (ConnectionError, ControllerLostError) as error:
        _send({"error": str(error)})
        fabric.close()
        return 1
    runner = JobRunner(
        fabric,
        profiles,
        seed=args.seed,
        alone=alone,
        random_offsets=args.random_offsets,
        forever=args.forever,
        until_ns=args.until_ms * 1_000_000,
        count_from_ns=args.count_from_ns,
    )
    if scenario.mice is not None and not alone:
        BackgroundMice(
            scenario, scenario.mice, fabric.hosts, fabric.heap, start_ns=FIRST_START_NS, seed=args.seed
        )
    if not alone and not args.without_floods:
        for flood in scenario.floods:
            enter = partial(fabric.enter, flood.src)
            size = scenario.packet_bytes
            HostFlood(flood, scenario.topology, size, fabric.heap, enter, start_ns=FIRST_START_NS)
    parent_left = threading.Event()
    threading.Thread(target=_watch_input, args=(runner, parent_left), daemon=True).start()
    try:
        _drive(fabric, runner, args.pace)
        _send({"result": runner.result()})
        parent_left.wait()
    except (StalledError, ControllerLostError) as error:
        _send({"error": str(error)})
    finally:
        clock.close()
        fabric.close()
    return 0


def _drive(fabric: EmbeddedFabric, runner: JobRunner, pace: float) -> None:
    """Run the heap from stop to stop until the jobs are done."""
    heap, boundary = fabric.heap, fabric.boundary
    if pace:
        heap.call_at(PACE_INTERVAL_NS, _keep_pace, fabric, pace, time.monotonic())
    reported = time.monotonic()
    boundary.stop()
    while heap.run():
        boundary.stop(last=runner.finished)
        if runner.finished:
            return
        if time.monotonic() - reported > PROGRESS_INTERVAL_S:
            reported = time.monotonic()
            _send({"progress": runner.progress()})


def _keep_pace(fabric: EmbeddedFabric, pace: float, started: float) -> None:
    """Keep fabric time from running faster than `pace` times host time. A delay is not caught up."""
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


def _say_waiting(seconds: float) -> None:
    _send({"waiting": f"waiting for the controller for {seconds:.0f} s"})


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
