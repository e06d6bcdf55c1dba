# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper mltcp`: jobs under MLTCP interleave by themselves, in a fluid model and on packets."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from controller.interleave.mltcp_fluid import FluidJob, offsets
from controller.interleave.mltcp_fluid import run as run_fluid
from hostagent.nic.mltcp import INTERCEPT, SHAPES, SLOPE, Shape, linear
from polyrhythm.paper.charts import draw_cdf
from polyrhythm.paper.mltcp_packets import COMPUTE_MS, KMAX, KMIN, UP_MS, run_pair

STARTS = 12
ITERATIONS = 60
NEAR = 1.1
_SETTLED = 5
_NARROW_RAMP = (10, 40)
_NOISE_MS = (0.0, 1.0, 5.0, 10.0, 20.0)
_UP_MS, _OFFSET_MS, _STEPS = 100.0, 20.0, 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper mltcp`."""
    parser.add_argument(
        "--starts",
        type=int,
        default=STARTS,
        metavar="N",
        help=f"number of random start offsets (default {STARTS})",
    )
    parser.add_argument(
        "--iterations",
        type=int,
        default=ITERATIONS,
        metavar="N",
        help=f"iterations of each job (default {ITERATIONS})",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of start offsets, jitter and marks (default 1)"
    )
    parser.add_argument("--out", metavar="DIR", help="folder for report.json, offsets.csv and the figure")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure, write and print. Returns 2 for bad options."""
    for name, value, least in (("starts", args.starts, 1), ("iterations", args.iterations, 10)):
        if value < least:
            print(f"--{name}: {value}; legal: a whole number from {least}", file=sys.stderr)
            return 2
    report, curves = measure(args.starts, args.iterations, args.seed)
    try:
        if args.out:
            write(Path(args.out), report, curves)
    except OSError as error:
        print(
            f"--out: {error.filename}: {error.strerror}; legal: a folder that can be written", file=sys.stderr
        )
        return 2
    print(json.dumps(report, indent=2) if args.json else to_text(report))
    return 0


def measure(starts: int, iterations: int, seed: int) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """The report, and the iteration times on packets for each shape: the longer one of both jobs."""
    rng = Random(seed)
    period = UP_MS + COMPUTE_MS
    places = [rng.uniform(0, period) for _ in range(starts)]
    fair = _packets(None, places, iterations, seed)
    curves = {"fair sharing": _flat(fair)}
    packets = {}
    for name, shape in SHAPES.items():
        times = _packets(shape, places, iterations, seed)
        curves[name] = _flat(times)
        packets[name] = _summary(times, fair)
    noise = [
        {
            "jitter_ms": jitter,
            **_summary(*(_packets(f, places, iterations, seed, jitter) for f in (linear, None))),
        }
        for jitter in _NOISE_MS
    ]
    together = [_packets(f, [1.0] * starts, iterations, seed) for f in (linear, None)]
    narrow = [_packets(f, places, iterations, seed, ramp=_NARROW_RAMP) for f in (linear, None)]
    thesis = packets["1.75r+0.25"]["iterations_to_interleave"]
    report = {
        "slope": SLOPE,
        "intercept": INTERCEPT,
        "convergence_ms": [round(t, 2) for t in _fluid(linear, _STEPS + 1)[1:]],
        "fluid": {name: _fluid_summary(shape) for name, shape in SHAPES.items()},
        "starts": starts,
        "iterations": iterations,
        "ecn": {"kmin": KMIN, "kmax": KMAX},
        "iterations_to_interleave": None if None in thesis else max(thesis),
        "fair": _summary(fair, fair),
        "packets": packets,
        "from_one_start": _summary(*together),
        "noise": noise,
        "narrow_ecn": {"kmin": _NARROW_RAMP[0], "kmax": _NARROW_RAMP[1], **_summary(*narrow)},
    }
    return report, curves


def _fluid(shape: Shape, iterations: int) -> list[float]:
    """The start offsets in ms of two jobs of 100 ms that begin 20 ms apart."""
    jobs = [FluidJob(begin, _UP_MS, 1.5 * _UP_MS) for begin in (0.0, _OFFSET_MS)]
    return offsets(run_fluid(jobs, shape, iterations))


def _fluid_summary(shape: Shape) -> dict[str, Any]:
    found = _fluid(shape, 12)
    return {"offset_ms": [round(t, 2) for t in found], "takes_turns": found[-1] > 0.99 * _UP_MS}


def _packets(
    shape: Shape | None,
    places: Sequence[float],
    iterations: int,
    seed: int,
    jitter_ms: float = 1.0,
    ramp: tuple[int, int] = (KMIN, KMAX),
) -> list[list[float]]:
    """For each start, the longer one of both jobs' iteration times in ms, by iteration."""
    runs = (
        run_pair(shape, start, iterations, jitter_ms=jitter_ms, ramp=ramp, seed=seed + i)
        for i, start in enumerate(places)
    )
    return [[max(pair) for pair in zip(*times, strict=True)] for times in runs]


def _flat(times: Sequence[Sequence[float]]) -> list[float]:
    return [t for run in times for t in run]


def _summary(times: Sequence[Sequence[float]], fair: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The figures of a shape.

    `iterations_to_interleave` is, for each start, the iteration from which none is over 10 % longer than
    alone; null: never.
    """
    near = NEAR * (UP_MS + COMPUTE_MS)
    until = [max((k + 1 for k, t in enumerate(run) if t > near), default=0) for run in times]
    taking = [k if k <= len(run) - _SETTLED else None for k, run in zip(until, times, strict=True)]
    ours, theirs = np.array(_flat(times)), np.array(_flat(fair))
    return {
        "iterations_to_interleave": taking,
        "took_turns": sum(k is not None for k in taking),
        "mean_ms": round(float(ours.mean()), 2),
        "p99_ms": round(float(np.percentile(ours, 99)), 2),
        "speedup_mean": round(float(theirs.mean() / ours.mean()), 3),
        "speedup_p99": round(float(np.percentile(theirs, 99) / np.percentile(ours, 99)), 3),
        "final_ms": round(float(np.mean([run[-_SETTLED:] for run in times])), 2),
    }


def write(out: Path, report: dict[str, Any], curves: dict[str, list[float]]) -> None:
    """Write report.json, offsets.csv of the fluid model, and the CDF of the iteration times on packets."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    with (out / "offsets.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["shape", *range(12)])
        table.writerows([name, *row["offset_ms"]] for name, row in report["fluid"].items())
    figure = draw_cdf("MLTCP: two VGG19 on one link", "iteration time [ms]", curves)
    (out / "iteration-times.svg").write_text(figure, encoding="utf-8")


def to_text(report: dict[str, Any]) -> str:
    """The report as text."""
    steps = ", ".join(f"{t:.1f}" for t in report["convergence_ms"])
    lines = [
        f"fluid: offsets {steps} ms after 1, 2, 3, 4 iterations, from {_OFFSET_MS:g} of {_UP_MS:g} ms",
        f"packets, {report['starts']} random starts, {report['iterations']} iterations; alone "
        f"{UP_MS + COMPUTE_MS:g} ms",
        f"ECN from {report['ecn']['kmin']} packets, all from {report['ecn']['kmax']}",
        f"{'':22}{'took turns':>12}{'at last ms':>12}{'mean ms':>10}{'p99 ms':>10}",
    ]
    for name, row in [("fair sharing", report["fair"]), *report["packets"].items()]:
        lines.append(
            f"{name:22}{row['took_turns']:>12}{row['final_ms']:>12}{row['mean_ms']:>10}{row['p99_ms']:>10}"
        )
    return "\n".join(lines)
