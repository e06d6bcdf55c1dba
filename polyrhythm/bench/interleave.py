# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench interleave`: the time of the rotation search, and whether it finds the optimum."""

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
from polyrhythm.progress import working
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
    """Add the options of `polyrhythm bench interleave`."""
    parser.add_argument(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="seed of the links and their jobs, 0 or more (default 1)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print. Returns 1 without Numba, because there is nothing to measure then."""
    if not available():
        print(
            "bench interleave: Numba is not installed, so there is only the plain reference", file=sys.stderr
        )
        return 1
    with working("measuring"):
        report = measure(args.seed)
    show(report, args.json)
    return 0


def instance(rng: Random, jobs: int) -> Instance:
    """A link of 50 Gbit/s whose jobs have periods of 360, 180 or 120 ms, with one to three Up phases.

    The edges of the phases lie on a grid of 5 degrees, so plain enumeration with this step is exact too. The
    mean demand is about the capacity, so the rotations differ.
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
    # The period of one job is the whole circle, so all perimeters are 72 slots.
    periods["j0"] = 72 * _SLOT_NS
    return SharedLink(("link", ""), _RATE, demands), periods


def measure(seed: int) -> dict[str, Any]:
    """Median times over three runs with compiled kernels. Every link is searched alone."""
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
    """The median time for all links in ms, and the rotations. `nodes` 0: coordinate descent only."""
    times, found = [], []
    for _ in range(_RUNS):
        begin = time.perf_counter()
        found = [rotate([k], t, nodes=nodes, fast=True, widen=False) for k, t in links]
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times), found


def _against_enumeration(rng: Random) -> dict[str, Any]:
    """Compare the exact search for three jobs with a plain enumeration of Table 4.1 at 5 degrees."""
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
