# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench interleave`: how long the rotation search takes, and whether it finds the optimum."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from random import Random
from typing import Any

from controller.interleave.angles import enumerate_angles
from controller.interleave.circle import SharedLink, score
from controller.interleave.rotate import FAST_NODES, Rotation, rotate
from controller.kernel import available, version
from controller.model import Phase
from polyrhythm.bench.report import show
from polyrhythm.subcommands import integer

LINKS = 1_000
STEP_DEG = 5
_RATE = 50_000_000_000
_SLOT_NS = 5_000_000
_PERIODS = (72, 72, 36, 24)
_RUNS = 3
_ENUMERATED = 12

Instance = tuple[SharedLink, dict[str, int]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm bench interleave`."""
    parser.add_argument("--seed", type=integer(0), default=1, help="of the links and their jobs (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print; 1 without Numba, for there is nothing to measure then."""
    if not available():
        print("bench interleave: Numba is not installed, only the plain reference runs", file=sys.stderr)
        return 1
    report = measure(args.seed)
    show(report, args.json)
    return 0


def instance(rng: Random, jobs: int) -> Instance:
    """A link of 50 Gbit/s whose jobs repeat every 360, 180 or 120 ms, with one to three Up phases.

    Their edges lie on a grid of 5 degrees, so that plain enumeration at that step is exact too. The mean
    demand is about the capacity: neither does all fit nor is every rotation as bad.
    """
    periods, demands = {}, {}
    for name in (f"j{i}" for i in range(jobs)):
        slots = rng.choice(_PERIODS)
        arcs = rng.randint(1, 3 if slots > 24 else 2)
        share = rng.uniform(0.5, 1.5) / jobs
        lengths = [max(1, round(slots * share / arcs)) for _ in range(arcs)]
        free = max(0, slots - sum(lengths))
        at, phases = 0, []
        for length in lengths:
            at += rng.randint(0, free // arcs)
            end = min(slots, at + length)
            if at < end:
                gbps = rng.choice((10, 25, 40, 50))
                phases.append(Phase(at * _SLOT_NS, end * _SLOT_NS, gbps * 1_000_000_000))
            at = end
        periods[name], demands[name] = slots * _SLOT_NS, tuple(phases)
    # One job takes the whole circle, so that all perimeters are 72 slots.
    periods["j0"] = 72 * _SLOT_NS
    return SharedLink(("link", ""), _RATE, demands), periods


def measure(seed: int) -> dict[str, Any]:
    """Median times over three runs, kernels compiled; every link is asked by itself."""
    rng = Random(seed)
    links = [instance(rng, 2 + i % 3) for i in range(LINKS)]
    begin = time.perf_counter()
    for link, periods in links[:3]:
        rotate([link], periods, nodes=FAST_NODES, fast=True)
    first = time.perf_counter() - begin
    exact_ms, exact = _timed(links, FAST_NODES)
    descent_ms, descent = _timed(links, 0)
    begin = time.perf_counter()
    for link, periods in links:
        rotate([link], periods, nodes=FAST_NODES, fast=True)
    widened_ms = 1e3 * (time.perf_counter() - begin)
    return {
        "numba": version(),
        "first_call_s": round(first, 3),
        "links1000_exact_ms": round(exact_ms, 1),
        "links1000_proven": sum(r.exact for r in exact),
        "links1000_mean_score": round(1 - statistics.fmean(r.loss for r in exact), 6),
        "links1000_descent_ms": round(descent_ms, 1),
        "links1000_descent_mean_score": round(1 - statistics.fmean(r.loss for r in descent), 6),
        "links1000_widened_ms": round(widened_ms, 1),
        **_against_enumeration(rng),
    }


def _timed(links: list[Instance], nodes: int) -> tuple[float, list[Rotation]]:
    """Median ms for all links, and the rotations; `nodes` 0 is descent alone."""
    times, found = [], []
    for _ in range(_RUNS):
        begin = time.perf_counter()
        found = [rotate([k], t, nodes=nodes, fast=True, widen=False) for k, t in links]
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times), found


def _against_enumeration(rng: Random) -> dict[str, Any]:
    """Three jobs: the exact search against Table 4.1 enumerated at 5 degrees in plain loops."""
    plain_s = fast_s = worst = 0.0
    for _ in range(_ENUMERATED):
        link, periods = instance(rng, 3)
        begin = time.perf_counter()
        best, shifts = enumerate_angles(link, periods, STEP_DEG)
        plain_s += time.perf_counter() - begin
        exact_ms, (found,) = _timed([(link, periods)], FAST_NODES)
        fast_s += exact_ms / 1e3
        worst = max(worst, abs(1 - found.loss - best), abs(score(link, periods, shifts) - best))
    return {
        "j3_enumeration_ms": round(1e3 * plain_s / _ENUMERATED, 3),
        "j3_exact_ms": round(1e3 * fast_s / _ENUMERATED, 3),
        "j3_speedup": round(plain_s / fast_s, 1),
        "j3_score_difference": worst,
        "j3_same_score": worst < 1e-9,
    }
