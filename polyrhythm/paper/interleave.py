# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper interleave`: the loop of time and space against each mechanism alone, simulated."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from polyrhythm.paper import door
from polyrhythm.paper.cdf import draw_cdf

KINDS = ("few", "compatible", "incompatible", "looped", "adversarial", "random", "shared servers")
FULL, QUICK = (8, 6, 20), (1, 1, 2)
METHODS = ("ecmp", "max-min", "cassini", "circles", "crux", "mltcp", "loop")
HEADROOM, WORSE = 0.02, 0.01
GAIN_WANTED, JOINT_WANTED = 0.3, 97.0
PAPER = {
    "cassini_mean_speedup_up_to": 1.6,
    "cassini_p99_speedup_up_to": 2.5,
    "cassini_ecn_marks_fewer_up_to": 33,
    "mltcp_mean_speedup_up_to": 1.9,
    "mltcp_p99_speedup_up_to": 2.7,
}
"""What the thesis reports of its testbed (abstract, 1.1 and 1.2); of the joint search nobody has."""
_POINTS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm paper interleave`."""
    parser.add_argument("--quick", action="store_true", help="a few instances only, a minute or two")
    door.add_arguments(parser, "of the instances", "write report.json, tables and the figures there")


def run(args: argparse.Namespace) -> int:
    """Measure, write and print; 1 without Numba, 2 for bad options."""
    return door.run("interleave", args, {"workers": 1, "seed": 0}, partial(_experiment, args), to_text)


def _experiment(args: argparse.Namespace) -> door.Found:
    rows, small = collect(QUICK if args.quick else FULL, args.seed, args.workers)
    report = summary(rows, small) | {"quick": args.quick, "seed": args.seed}
    return door.Found(report, partial(write, rows=rows, small=small))


def tasks(sizes: tuple[int, int, int], seed: int) -> list[tuple[str, str, int, int]]:
    """(fabric, kind, number, seed) of all instances: of each kind on the testbed, large, small."""
    testbed, large, small = sizes
    found = [("testbed", kind, n, seed) for n in range(testbed) for kind in KINDS]
    found += [("64x32", "random", n, seed) for n in range(large)]
    return found + [("2x2", "small", n, seed) for n in range(small)]


def collect(
    sizes: tuple[int, int, int], seed: int, workers: int
) -> tuple[list[dict[str, Any]], list[dict[str, float]]]:
    """A row for each instance, and one for each that was enumerated; the same whatever the workers."""
    wanted = tasks(sizes, seed)
    rows: list[dict[str, Any]] = []
    small: list[dict[str, float]] = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for task, row in _shown(pool.map(measure, wanted), wanted):
            if task[1] == "small":
                small.append(row)
            else:
                rows.append(row)
    return rows, small


def _shown(
    found: Iterable[dict[str, Any]], wanted: Sequence[tuple[str, str, int, int]]
) -> Iterator[tuple[tuple[str, str, int, int], dict[str, Any]]]:
    """The same, telling on a terminal how far it is and how long it will still take."""
    begin = time.perf_counter()
    for done, (task, row) in enumerate(zip(wanted, found, strict=True), 1):
        if sys.stderr.isatty():
            left = (time.perf_counter() - begin) / done * (len(wanted) - done)
            end = "\n" if done == len(wanted) else ""
            line = f"\r{done} of {len(wanted)} instances, about {left:.0f} s to go   "
            print(line, end=end, file=sys.stderr, flush=True)
        yield task, row


def measure(task: tuple[str, str, int, int]) -> dict[str, Any]:
    """One instance under every method, on the simulator with jitter that no search has seen."""
    fabric, kind, number, seed = task
    if kind == "small":
        from polyrhythm.paper.interleave_joint import measure as measure_small

        return measure_small(number, seed)
    from controller.planner.loop.candidates import rivals
    from controller.planner.loop.search import Limits, solve
    from polyrhythm.paper.interleave_bound import bound_of
    from polyrhythm.paper.interleave_cases import draw_case
    from polyrhythm.paper.interleave_sim import see

    case = draw_case(fabric, kind, number, seed)
    choices = {
        name.removeprefix("paths:"): choice for name, choice in rivals(case.instance, case.starts, mltcp=True)
    }
    found = solve(case.instance, case.starts, limits=Limits(judged=900))
    choices["loop"] = found.choice
    seen: dict[Any, Any] = {}
    for choice in choices.values():
        if choice not in seen:
            seen[choice] = see(case, choice)
    return {
        "name": case.name,
        "fabric": fabric,
        "kind": kind,
        "jobs": len(case.jobs),
        "flows": len(case.commodities),
        "looped": case.looped,
        "incompatible": case.incompatible,
        "bound": bound_of(case),
        "from": found.base,
        "steps": list(found.steps),
        "judged": found.judged,
        "utilisation": {name: seen[choices[name]].utilisation for name in METHODS},
        "slowdown": {name: seen[choices[name]].slowdown for name in METHODS},
        "marks": {name: seen[choices[name]].marks for name in METHODS},
    }


def best_other(row: dict[str, Any]) -> float:
    """The best utilisation of the mechanisms alone."""
    return float(max(value for name, value in row["utilisation"].items() if name != "loop"))


def gain(row: dict[str, Any]) -> float | None:
    """(ours - best) / (bound - best) where the instance counts for it, else None."""
    best = best_other(row)
    counts = row["fabric"] == "testbed" and (row["looped"] or row["incompatible"])
    if not counts or row["bound"] - best < HEADROOM * best:
        return None
    return float((row["utilisation"]["loop"] - best) / (row["bound"] - best))


def summary(rows: list[dict[str, Any]], small: list[dict[str, float]]) -> dict[str, Any]:
    """The report: what was asked for, means by method, and whether it is met."""
    worse = [r for r in rows if r["utilisation"]["loop"] < best_other(r) * (1 - WORSE)]
    gains = [g for g in map(gain, rows) if g is not None]
    joint = [100 * r["loop"] / r["optimum"] for r in small]
    report: dict[str, Any] = {
        "instances": len(rows),
        "worse_than_best": len(worse),
        "worse": [r["name"] for r in worse],
        "looped_instances": len(gains),
        "looped_gain": round(float(np.mean(gains)), 4) if gains else None,
        "looped_gain_least": round(min(gains), 4) if gains else None,
        "joint_instances": len(small),
        "joint_pct": round(float(np.mean(joint)), 3) if joint else None,
        "joint_pct_least": round(min(joint), 3) if joint else None,
        "utilisation_pct": {
            name: round(100 * float(np.mean([r["utilisation"][name] for r in rows])), 3) for name in METHODS
        },
        "bound_pct": round(100 * float(np.mean([r["bound"] for r in rows])), 3),
        "paper": PAPER,
        "against_ecmp": {name: _against(rows, name) for name in METHODS[1:]},
    }
    report["verdicts"] = {
        "worse_than_best": report["worse_than_best"] == 0,
        "looped_gain": report["looped_gain"] is not None and report["looped_gain"] >= GAIN_WANTED,
        "joint_pct": report["joint_pct"] is not None and report["joint_pct"] >= JOINT_WANTED,
    }
    return report


def _against(rows: list[dict[str, Any]], name: str) -> dict[str, float]:
    """How much a method shortens iterations against ECMP, and what part of its ECN marks is left."""
    mean, tail, marks = [], [], {"ecmp": 0.0, name: 0.0}
    for row in rows:
        theirs, ours = (np.array(row["slowdown"][n]) for n in ("ecmp", name))
        mean.append(float(theirs.mean() / ours.mean()))
        tail.append(float(np.quantile(theirs, 0.99) / np.quantile(ours, 0.99)))
        for n in marks:
            marks[n] += float(np.mean(row["marks"][n]))
    return {
        "mean_speedup": round(float(np.mean(mean)), 3),
        "mean_speedup_up_to": round(max(mean), 3),
        "p99_speedup_up_to": round(max(tail), 3),
        "marks_pct": round(100 * marks[name] / marks["ecmp"], 2) if marks["ecmp"] else 100.0,
    }


def write(out: Path, rows: list[dict[str, Any]], small: list[dict[str, float]]) -> list[str]:
    """instances.csv, joint.csv, plans.txt, and the CDFs as SVG; returns the figures' names."""
    with (out / "instances.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["name", "jobs", "flows", "looped", "incompatible", "bound", "gain", *METHODS, "judged", "from"]
        )
        for row in rows:
            got = gain(row)
            table.writerow(
                [row[k] for k in ("name", "jobs", "flows", "looped", "incompatible")]
                + [f"{row['bound']:.6f}", "" if got is None else f"{got:.4f}"]
                + [f"{row['utilisation'][name]:.6f}" for name in METHODS]
                + [row["judged"], row["from"]]
            )
    with (out / "joint.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["number", "loop", "optimum", "enumerated"])
        table.writerows(
            [r["number"], f"{r['loop']:.6f}", f"{r['optimum']:.6f}", r["enumerated"]] for r in small
        )
    lines = [f"{r['name']}: from {r['from']}; {', '.join(r['steps']) or 'as it is'}" for r in rows]
    (out / "plans.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    figures = {}
    for fabric in dict.fromkeys(r["fabric"] for r in rows):
        of = [r for r in rows if r["fabric"] == fabric]
        for key, axis in (
            ("slowdown", "iteration time over the job's own"),
            ("marks", "ECN marks per iteration of a job"),
        ):
            curves = {name: _thinned([v for r in of for v in r[key][name]]) for name in METHODS}
            figures[f"{key}-{fabric}.svg"] = draw_cdf(f"{fabric}, {len(of)} sets of jobs", axis, curves)
    used = {name: [100 * r["utilisation"][name] / r["bound"] for r in rows] for name in METHODS}
    figures["utilisation.svg"] = draw_cdf("GPU utilisation", "of what no plan exceeds [%]", used)
    for name, figure in figures.items():
        (out / name).write_text(figure, encoding="utf-8")
    return list(figures)


def _thinned(values: Sequence[float]) -> list[float]:
    """At most so many values with the same distribution."""
    ordered = np.sort(np.array(values if len(values) else [0.0]))
    at = np.linspace(0, len(ordered) - 1, min(_POINTS, len(ordered)))
    return [float(v) for v in ordered[np.round(at).astype(np.int64)]]


def to_text(report: dict[str, Any]) -> str:
    """The report for reading."""
    verdict = {True: "met", False: "NOT met"}
    means = ", ".join(f"{name} {value:.1f}" for name, value in report["utilisation_pct"].items())
    lines = [
        f"{report['instances']} sets of jobs, {report['seconds']} s; GPU utilisation in %: {means}; "
        f"no plan exceeds {report['bound_pct']:.1f}",
        f"  worse_than_best {report['worse_than_best']} (0 wanted): "
        f"{verdict[report['verdicts']['worse_than_best']]}",
        f"  looped_gain {report['looped_gain']} over {report['looped_instances']} ({GAIN_WANTED} wanted): "
        f"{verdict[report['verdicts']['looped_gain']]}",
        f"  joint_pct {report['joint_pct']} over {report['joint_instances']} ({JOINT_WANTED} wanted): "
        f"{verdict[report['verdicts']['joint_pct']]}",
    ]
    for name, row in report["against_ecmp"].items():
        lines.append(
            f"  {name:8} against ECMP: iterations {row['mean_speedup']:.2f}x shorter on average, up to "
            f"{row['mean_speedup_up_to']:.2f}x (p99 {row['p99_speedup_up_to']:.2f}x), "
            f"{row['marks_pct']:.0f} % of its marks"
        )
    lines.append(
        "  the thesis, against its rivals: CASSINI up to 1.6x (p99 2.5x), MLTCP up to 1.9x (p99 2.7x)"
    )
    return "\n".join(lines)
