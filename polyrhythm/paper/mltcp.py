# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper mltcp`: jobs under MLTCP interleave by themselves, in a fluid model and on packets."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from controller.interleave.mltcp_fluid import FluidJob, offsets
from controller.interleave.mltcp_fluid import run as run_fluid
from controller.wire.senders import DCQCN, PLAIN, as_mltcp
from hostagent.kernel_mltcp import KernelMltcpError
from hostagent.nic.mltcp import INTERCEPT, SHAPES, SLOPE, Shape, linear
from polyrhythm.paper import harness, mltcp_kernel
from polyrhythm.paper.charts import draw_cdf
from polyrhythm.paper.mltcp_packets import COMPUTE_MS, KMAX, KMIN, UP_MS, run_pair
from polyrhythm.paper.processes import spawned_pool

STARTS, QUICK_STARTS = 4, 1
ITERATIONS, QUICK_ITERATIONS = 40, 25
NEAR = 1.1
_SETTLED = 5
_NARROW_RAMP = (10, 40)
_NOISE_MS = (0.0, 1.0, 5.0, 10.0, 20.0)
_UP_MS, _OFFSET_MS, _STEPS = 100.0, 20.0, 4
_LINEAR = next(iter(SHAPES))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper mltcp`."""
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_STARTS} start, {QUICK_ITERATIONS} iterations, and neither noise nor other ECN ramps",
    )
    parser.add_argument(
        "--starts",
        type=int,
        metavar="N",
        help=f"number of random start offsets (default {STARTS})",
    )
    parser.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help=f"iterations of each job (default {ITERATIONS})",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of start offsets, jitter and marks (default 1)"
    )
    parser.add_argument(
        "--lanes", type=int, default=2, metavar="N", help="number of processes that simulate (default 2)"
    )
    parser.add_argument(
        "--kernel",
        action="store_true",
        help="two jobs over this kernel's TCP in network namespaces, with Reno and with MLTCP-Reno (root; "
        "make mltcp); of the other options --iterations, --json and --out count",
    )
    parser.add_argument("--out", metavar="DIR", help="folder for report.json, offsets.csv and the figures")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure, write and print. Returns 2 for bad options, 1 where --kernel cannot run."""
    starts, iterations = (QUICK_STARTS, QUICK_ITERATIONS) if args.quick else (STARTS, ITERATIONS)
    starts = starts if args.starts is None else args.starts
    iterations = iterations if args.iterations is None else args.iterations
    for name, value, least in (
        ("starts", starts, 1),
        ("iterations", iterations, 10),
        ("seed", args.seed, 0),
        ("lanes", args.lanes, 1),
    ):
        if value < least:
            print(f"--{name}: {value}; legal: a whole number from {least}", file=sys.stderr)
            return 2
    try:
        if args.out:
            Path(args.out).mkdir(parents=True, exist_ok=True)
        if args.kernel:
            return _run_kernel(args, iterations)
        report, curves = measure(starts, iterations, args.seed, lanes=args.lanes, quick=args.quick)
        if args.out:
            write(Path(args.out), report, curves)
    except OSError as error:
        return harness.not_written(error, args.out)
    print(json.dumps(report, indent=2) if args.json else to_text(report))
    return 0


def _run_kernel(args: argparse.Namespace, iterations: int) -> int:
    """Raises OSError for a file that cannot be written."""
    try:
        mltcp_kernel.check_needs()
        found = mltcp_kernel.measure(mltcp_kernel.TwoJobs(iterations))
    except KernelMltcpError as error:
        print(f"polyrhythm paper mltcp: {error}", file=sys.stderr)
        return 1
    text = json.dumps(found, indent=2)
    if args.out:
        (Path(args.out) / "kernel.json").write_text(text + "\n", encoding="utf-8")
    print(text if args.json else mltcp_kernel.to_text(found))
    return 0


@dataclass(frozen=True, slots=True)
class _Case:
    """One setting of the two jobs, which runs from each start offset. `shape` is a name in SHAPES."""

    sender: str
    shape: str = _LINEAR
    jitter_ms: float = 1.0
    ramp: tuple[int, int] = (KMIN, KMAX)
    together: bool = False


_SHAPE_CASES = {name: _Case(as_mltcp(DCQCN), name) for name in SHAPES}
_NOISE_CASES = {
    jitter: [_Case(sender, jitter_ms=jitter) for sender in (as_mltcp(DCQCN), DCQCN)] for jitter in _NOISE_MS
}
_TOGETHER_CASES = [_Case(sender, together=True) for sender in (as_mltcp(DCQCN), DCQCN)]
_NARROW_CASES = [_Case(sender, ramp=_NARROW_RAMP) for sender in (as_mltcp(DCQCN), DCQCN)]


def _cases(quick: bool) -> Iterator[_Case]:
    for plain in PLAIN:
        yield from (_Case(plain), _Case(as_mltcp(plain)))
    yield from _SHAPE_CASES.values()
    if not quick:
        for pair in (*_NOISE_CASES.values(), _TOGETHER_CASES, _NARROW_CASES):
            yield from pair


Times = Sequence[Sequence[float]]
"""For each start, the longer one of both jobs' iteration times in ms, by iteration."""


def measure(
    starts: int, iterations: int, seed: int, *, lanes: int, quick: bool
) -> tuple[dict[str, Any], dict[str, dict[str, list[float]]]]:
    """The report, and for each figure the iteration times on packets: the longer one of both jobs.

    With `quick` there are neither noise, nor a common start, nor another ECN ramp.
    """
    rng = Random(seed)
    places = [rng.uniform(0, UP_MS + COMPUTE_MS) for _ in range(starts)]
    times = _simulated(list(dict.fromkeys(_cases(quick))), places, iterations, seed, lanes)
    senders, packets = {}, {}
    for plain in PLAIN:
        fair, ours = times[_Case(plain)], times[_Case(as_mltcp(plain))]
        senders[plain], senders[as_mltcp(plain)] = _summary(fair, fair), _summary(ours, fair)
    for name, case in _SHAPE_CASES.items():
        packets[name] = _summary(times[case], times[_Case(DCQCN)])
    report = {
        "slope": SLOPE,
        "intercept": INTERCEPT,
        "convergence_ms": [round(t, 2) for t in _fluid(linear, _STEPS + 1)[1:]],
        "fluid": {name: _fluid_summary(shape) for name, shape in SHAPES.items()},
        "starts": starts,
        "iterations": iterations,
        "ecn": {"kmin": KMIN, "kmax": KMAX},
        "iterations_to_interleave": senders[as_mltcp(DCQCN)]["interleaved_after"],
        "senders": senders,
        "packets": packets,
    }
    if not quick:
        report["from_one_start"] = _summary(*(times[c] for c in _TOGETHER_CASES))
        report["noise"] = [
            {"jitter_ms": jitter, **_summary(*(times[c] for c in pair))}
            for jitter, pair in _NOISE_CASES.items()
        ]
        kmin, kmax = _NARROW_RAMP
        report["narrow_ecn"] = {"kmin": kmin, "kmax": kmax, **_summary(*(times[c] for c in _NARROW_CASES))}
    of_senders = {case.sender: _flat(t) for case, t in times.items() if case == _Case(case.sender)}
    of_shapes = {name: _flat(times[case]) for name, case in _SHAPE_CASES.items()}
    return report, {
        "senders": of_senders,
        "shapes": {"fair sharing": of_senders[DCQCN], **of_shapes},
    }


def _simulated(
    cases: Sequence[_Case], places: Sequence[float], iterations: int, seed: int, lanes: int
) -> dict[_Case, Times]:
    """The times of each case from each start offset, simulated in `lanes` processes."""
    work = [
        (case, 1.0 if case.together else place, iterations, seed + i)
        for case in cases
        for i, place in enumerate(places)
    ]
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    bar = Bar(
        *columns,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(f"{len(work)} runs on packets", total=len(work))

        def gathered(results: Iterator[list[float]]) -> list[list[float]]:
            found = []
            for times in results:
                found.append(times)
                bar.advance(task)
            return found

        if lanes == 1:
            every = gathered(map(_longer, work))
        else:
            with spawned_pool(min(lanes, len(work))) as pool:
                every = gathered(pool.map(_longer, work))
    return {case: every[k * len(places) : (k + 1) * len(places)] for k, case in enumerate(cases)}


def _longer(work: tuple[_Case, float, int, int]) -> list[float]:
    """The longer one of both jobs' iteration times in ms, by iteration."""
    case, start, iterations, seed = work
    pair = run_pair(
        case.sender,
        start,
        iterations,
        shape=SHAPES[case.shape],
        jitter_ms=case.jitter_ms,
        ramp=case.ramp,
        seed=seed,
    )
    return [max(both) for both in zip(*pair, strict=True)]


def _fluid(shape: Shape, iterations: int) -> list[float]:
    """The start offsets in ms of two jobs of 100 ms that begin 20 ms apart."""
    jobs = [FluidJob(begin, _UP_MS, 1.5 * _UP_MS) for begin in (0.0, _OFFSET_MS)]
    return offsets(run_fluid(jobs, shape, iterations))


def _fluid_summary(shape: Shape) -> dict[str, Any]:
    found = _fluid(shape, 12)
    return {"offset_ms": [round(t, 2) for t in found], "takes_turns": found[-1] > 0.99 * _UP_MS}


def _flat(times: Sequence[Sequence[float]]) -> list[float]:
    return [t for run in times for t in run]


def _summary(times: Sequence[Sequence[float]], fair: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The figures of a shape.

    `iterations_to_interleave` is, for each start, the iteration from which none is over 10 % longer than
    alone; null: never. `interleaved_after` is the greatest of them; null: from one start at least never.
    """
    near = NEAR * (UP_MS + COMPUTE_MS)
    until = [max((k + 1 for k, t in enumerate(run) if t > near), default=0) for run in times]
    taking = [k if k <= len(run) - _SETTLED else None for k, run in zip(until, times, strict=True)]
    ours, theirs = np.array(_flat(times)), np.array(_flat(fair))
    return {
        "iterations_to_interleave": taking,
        "interleaved_after": None if None in taking else max(k for k in taking if k is not None),
        "took_turns": sum(k is not None for k in taking),
        "mean_ms": round(float(ours.mean()), 2),
        "p99_ms": round(float(np.percentile(ours, 99)), 2),
        "speedup_mean": round(float(theirs.mean() / ours.mean()), 3),
        "speedup_p99": round(float(np.percentile(theirs, 99) / np.percentile(ours, 99)), 3),
        "final_ms": round(float(np.mean([run[-_SETTLED:] for run in times])), 2),
    }


def write(out: Path, report: dict[str, Any], curves: dict[str, dict[str, list[float]]]) -> None:
    """Write report.json, offsets.csv of the fluid model, and a CDF of the iteration times on packets for the
    senders and one for the shapes.
    """
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    with (out / "offsets.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["shape", *range(12)])
        table.writerows([name, *row["offset_ms"]] for name, row in report["fluid"].items())
    for name, times in curves.items():
        figure = draw_cdf(f"MLTCP: two VGG19 on one link, by {name}", "iteration time [ms]", times)
        (out / f"{name}.svg").write_text(figure, encoding="utf-8")


def to_text(report: dict[str, Any]) -> str:
    """The report as text."""
    steps = ", ".join(f"{t:.1f}" for t in report["convergence_ms"])
    lines = [
        f"fluid: offsets {steps} ms after 1, 2, 3, 4 iterations, from {_OFFSET_MS:g} of {_UP_MS:g} ms",
        f"packets through P4 switches, {report['starts']} random starts, {report['iterations']} iterations; "
        f"alone {UP_MS + COMPUTE_MS:g} ms",
        f"ECN from {report['ecn']['kmin']} packets, all from {report['ecn']['kmax']}",
        "interleaved: after this iteration none is over 10 % longer than alone, from no start",
        f"{'':20}{'took turns':>12}{'interleaved':>13}{'at last ms':>12}{'mean ms':>10}{'p99 ms':>10}",
    ]
    for name, row in report["senders"].items():
        lines.append(_line(name, row, report["starts"]))
    lines.append(f"shapes of F, with {as_mltcp(DCQCN)}")
    lines += [_line(name, row, report["starts"]) for name, row in report["packets"].items()]
    return "\n".join(lines)


def _line(name: str, row: dict[str, Any], starts: int) -> str:
    after = row["interleaved_after"]
    turns = f"{row['took_turns']} of {starts}"
    return (
        f"{name:20}{turns:>12}{'never' if after is None else after:>13}{row['final_ms']:>12}"
        f"{row['mean_ms']:>10}{row['p99_ms']:>10}"
    )
