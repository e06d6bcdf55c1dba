# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench compress`: the time of priority compression, against the plain reference."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from controller.kernel import available, cold, version
from controller.priority.compress import KERNELS, ORDERS, compress_graph
from controller.priority.graph import Graph, graph_of_links
from polyrhythm.bench.report import show
from polyrhythm.progress import working
from polyrhythm.subcommands import integer

LEVELS = 8
_LINKS = 250
_LINKS_A_JOB = 8
_REPEATS = {30: 51, 500: 21, 5000: 5}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm bench compress`."""
    parser.add_argument(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="seed of the jobs and the sampled orders, 0 or more (default 1)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print. Returns 1 without Numba, because there is nothing to compare then."""
    if not available():
        print("bench compress: Numba is not installed, so there is only the plain reference", file=sys.stderr)
        return 1
    with working("measuring"):
        report = measure(args.seed)
    show(report, args.json)
    return 0


def instance(jobs: int, seed: int) -> Graph:
    """The contention DAG of jobs that each use 8 of 250 links: about 23 % of all pairs share a link."""
    random = np.random.default_rng([seed, jobs])
    links = [random.choice(_LINKS, _LINKS_A_JOB, replace=False).tolist() for _ in range(jobs)]
    return graph_of_links(links, np.sort(random.lognormal(size=jobs))[::-1])


def measure(seed: int) -> dict[str, Any]:
    """Median times in ms of one compression to 8 levels with 10 sampled orders, with compiled kernels."""
    compiled_before = not cold(KERNELS)
    begin = time.perf_counter()
    compress_graph(instance(30, seed), LEVELS, plain=False)
    report: dict[str, Any] = {
        "levels": LEVELS,
        "orders": ORDERS,
        "numba": version(),
        "first_call_s": round(time.perf_counter() - begin, 3),
        "compiled_before": compiled_before,
    }
    for jobs, repeats in _REPEATS.items():
        dag_ms, graph = _timed(partial(instance, jobs, seed), 1)
        solve = partial(compress_graph, graph, LEVELS, seed=seed)
        took, level = _timed(partial(solve, plain=False), repeats)
        report[f"n{jobs}_ms"] = round(took, 3)
        report[f"n{jobs}_edges"] = len(graph.weight)
        report[f"n{jobs}_dag_ms"] = round(dag_ms, 3)
        if jobs == 500:
            plain_ms, plain = _timed(partial(solve, plain=True), 3)
            report["plain_n500_ms"] = round(plain_ms, 1)
            report["speedup_n500"] = round(plain_ms / took, 1)
            report["cut_n500"], report["plain_cut_n500"] = graph.cut(level), graph.cut(plain)
            report["same_cut"] = report["cut_n500"] == report["plain_cut_n500"]
    return report


def _timed(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The median time of some calls in ms, and the result of the last call."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = call()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times), result
