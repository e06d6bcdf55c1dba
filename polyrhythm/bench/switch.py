# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench switch`: packets per second of the embedded switch with our P4 program.

`pipeline_pps` is one process on one core, from received bytes to sent bytes, through the queues of ports with
a rate. `wire_pps` is the stand-alone switch between two pairs of veth in its own network namespace.
`bmv2_wire_pps` is simple_switch_grpc there, if it is on PATH, with the same generator. `ratio` is the former
divided by the latter. Every figure is the median of its runs. `*_cpu_us` is the processor time of a packet,
which does not depend on other work on the machine.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from bmv2 import EmbeddedSwitch, load_program
from controller.southbound.artefacts import artefacts_dir
from polyrhythm.bench.report import show
from polyrhythm.progress import working

from . import traffic

BMV2 = "simple_switch_grpc"
PROGRAM = artefacts_dir() / "polyrhythm.v1model.json"
_PORT_RATE_BPS = 100_000_000_000
_PORTS = [1, 2]
_BATCH = 32
_WARM_UP = 5_000
_TIMEOUT_S = 180


class _Clock:
    """The event heap that serves the transmitters of the ports."""

    def __init__(self) -> None:
        self.now = 0
        self._count = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def call_at(self, time_ns: int, callback: Callable[..., None], *args: Any) -> None:
        """Run the callback at `time_ns`."""
        self._count += 1
        heapq.heappush(self._heap, (time_ns, self._count, callback, args))

    def run(self) -> None:
        """Run all events."""
        heap = self._heap
        while heap:
            self.now, _, callback, args = heapq.heappop(heap)
            callback(*args)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm bench switch`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--packets",
        type=int,
        default=100_000,
        metavar="N",
        help="packets in each run of the pipeline (default 100000)",
    )
    parser.add_argument(
        "--payload",
        type=int,
        default=1024,
        metavar="BYTES",
        help="bytes after the BTH of each packet (default 1024)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=3,
        metavar="N",
        help="runs of each measurement; the report has their median (default 3)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=2.0,
        metavar="S",
        help="length of each run over the wire in seconds (default 2)",
    )
    parser.add_argument("--no-wire", action="store_true", help="measure the pipeline only")


def run(args: argparse.Namespace) -> int:
    """Measure and print. Returns 2 for bad input."""
    for name in ("packets", "runs", "seconds"):
        if getattr(args, name) <= 0:
            print(f"polyrhythm bench switch: --{name} must be positive", file=sys.stderr)
            return 2
    if not 0 <= args.payload <= 1400:
        print("polyrhythm bench switch: --payload must be in 0..1400", file=sys.stderr)
        return 2
    with working("measuring"):
        result = pipeline(args.packets, args.payload, args.runs)
        result |= _wire(args)
    show(result, args.json)
    return 0


def pipeline(packets: int, payload: int, runs: int) -> dict[str, Any]:
    """Packets per second of one switch in this process, and the processor time of a packet in us."""
    clock = _Clock()
    switch = EmbeddedSwitch("bench", clock)
    switch.load(load_program(PROGRAM.read_bytes()))
    sent = [0]

    def transmit(_frame: bytes) -> None:
        sent[0] += 1

    for port in (*_PORTS, 3):
        switch.add_port(port, rate_bps=_PORT_RATE_BPS, transmit=transmit)
    for table, entry in traffic.entries(_PORTS):
        switch.insert(table, entry)
    frames = traffic.frames(payload)
    _drive(switch, clock, frames, _WARM_UP)
    rates, cpu = [], []
    for _ in range(runs):
        sent[0] = 0
        began, used = time.perf_counter(), time.process_time()
        _drive(switch, clock, frames, packets)
        rates.append(sent[0] / (time.perf_counter() - began))
        cpu.append((time.process_time() - used) / sent[0] * 1e6)
    return {"pipeline_pps": round(statistics.median(rates)), "pipeline_cpu_us": statistics.median(cpu)}


def _drive(switch: EmbeddedSwitch, clock: _Clock, frames: list[bytes], packets: int) -> None:
    """Send bursts that fill the queues. Each burst is drained before the next."""
    receive, count = switch.receive, len(frames)
    for first in range(0, packets, _BATCH):
        for number in range(first, min(first + _BATCH, packets)):
            receive(3, frames[number % count])
        clock.run()


def _wire(args: argparse.Namespace) -> dict[str, Any]:
    nothing: dict[str, Any] = {"wire_pps": None, "bmv2_wire_pps": None, "ratio": None}
    reason = _why_not(args)
    if reason is not None:
        return nothing | {"wire_reason": reason}
    result = dict(nothing)
    own = _measure("embedded", args)
    result |= {"wire_pps": own.get("pps"), "wire_cpu_us": own.get("cpu_us")}
    if "reason" in own:
        result["wire_reason"] = own["reason"]
    binary = shutil.which(BMV2)
    if binary is None:
        return result | {"bmv2_wire_reason": f"{BMV2} is not on PATH"}
    other = _measure(binary, args)
    result |= {"bmv2_wire_pps": other.get("pps"), "bmv2_wire_cpu_us": other.get("cpu_us")}
    if "reason" in other:
        result["bmv2_wire_reason"] = other["reason"]
    if own.get("pps") and other.get("pps"):
        result["ratio"] = round(own["pps"] / other["pps"], 3)
    return result


def _why_not(args: argparse.Namespace) -> str | None:
    if args.no_wire:
        return "not asked for"
    if sys.platform != "linux":
        return "AF_PACKET and network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces and raw sockets need root"
    if shutil.which("ip") is None:
        return "the command ip (iproute2) is not on PATH"
    return None


def _measure(switch: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one switch in its own process and network namespace."""
    command = [sys.executable, "-m", "polyrhythm.bench.wire", switch, str(PROGRAM)]
    command += [str(args.payload), str(args.runs), str(args.seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"reason": f"no result within {_TIMEOUT_S} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        errors = done.stderr.strip().splitlines()
        return {"reason": errors[-1] if errors else f"exit code {done.returncode}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer
