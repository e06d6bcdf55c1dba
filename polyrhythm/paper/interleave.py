# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper interleave`: the joint loop of time and space against each mechanism alone, simulated."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polyrhythm.paper import harness
from polyrhythm.paper.charts import draw_cdf
from polyrhythm.paper.resumable import collect as gather

KINDS = ("few", "compatible", "incompatible", "looped", "adversarial", "random", "shared servers")
SIZES, FULL, QUICK = ("sets", "large", "small"), (8, 6, 20), (1, 1, 2)
_OF_SIZES = (
    "sets of jobs of each of the seven kinds on the testbed",
    "sets on 64 leaves x 32 spines",
    "small instances of which all plans are enumerated",
)
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
"""The results of the thesis on its testbed (abstract, 1.1 and 1.2). No paper has a joint search."""
_POINTS = 200
_DONE = "instances.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper interleave`."""
    parser.add_argument(
        "--quick", action="store_true", help="simulate a few instances only (a minute or two)"
    )
    for size, words, full, quick in zip(SIZES, _OF_SIZES, FULL, QUICK, strict=True):
        parser.add_argument(
            f"--{size}", type=int, metavar="N", help=f"{words} (default {full}, with --quick {quick})"
        )
    harness.add_arguments(
        parser,
        "of the instances",
        "folder for report.json, tables, figures and finished instances; a stopped run continues from it",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, write and print. Returns 1 without Numba, 2 for bad options."""
    for size, usual in zip(SIZES, QUICK if args.quick else FULL, strict=True):
        if getattr(args, size) is None:
            setattr(args, size, usual)
    least = {"workers": 1, "seed": 0, "sets": 0, "large": 0, "small": 0}
    if not any(getattr(args, size) for size in SIZES):
        print("--sets, --large, --small: all 0; legal: at least one instance", file=sys.stderr)
        return 2
    return harness.run("interleave", args, least, partial(_experiment, args), to_text)


def _experiment(args: argparse.Namespace) -> harness.ExperimentResult:
    sizes = (args.sets, args.large, args.small)
    rows, small = collect(sizes, args.seed, args.workers, args.out)
    report = summary(rows, small) | {"quick": args.quick, "seed": args.seed}
    return harness.ExperimentResult(report, partial(write, rows=rows, small=small))


def tasks(sizes: tuple[int, int, int], seed: int) -> list[tuple[str, str, int, int]]:
    """(fabric, kind, number, seed) of all instances: large, of each kind on the testbed, small.

    The slowest instances come first, so that all processes end at about the same time.
    """
    testbed, large, small = sizes
    found = [("64x32", "random", n, seed) for n in range(large)]
    found += [("testbed", kind, n, seed) for n in range(testbed) for kind in KINDS]
    return found + [("2x2", "small", n, seed) for n in range(small)]


def collect(
    sizes: tuple[int, int, int], seed: int, workers: int, out: Path | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One row for each simulated instance, and one for each enumerated instance.

    The rows do not depend on the number of workers. With `out`, finished rows are read from there and new
    ones are stored there.
    """
    found = gather(measure, tasks(sizes, seed), workers, out / _DONE if out else None, "paper interleave")
    rows = [row for task, row in found.items() if task[1] != "small"]
    return rows, [row for task, row in found.items() if task[1] == "small"]


def measure(task: tuple[str, str, int, int]) -> dict[str, Any]:
    """Simulate one instance under every method, with jitter that no search has used."""
    fabric, kind, number, seed = task
    if kind == "small":
        from polyrhythm.paper.interleave_joint import measure as measure_small

        return measure_small(number, seed)
    from controller.planner.loop.initial_plans import single_mechanism_plans
    from controller.planner.loop.search import SearchLimits, solve
    from polyrhythm.paper.interleave_bound import bound_of
    from polyrhythm.paper.interleave_cases import draw_case
    from polyrhythm.paper.interleave_sim import simulate_choice

    case = draw_case(fabric, kind, number, seed)
    choices = {
        name.removeprefix("paths:"): choice
        for name, choice in single_mechanism_plans(case.instance, case.starts, mltcp=True)
    }
    found = solve(case.instance, case.starts, limits=SearchLimits(evaluations=900))
    choices["loop"] = found.choice
    seen: dict[Any, Any] = {}
    for choice in choices.values():
        if choice not in seen:
            seen[choice] = simulate_choice(case, choice)
    return {
        "name": case.name,
        "fabric": fabric,
        "kind": kind,
        "jobs": len(case.jobs),
        "flows": len(case.commodities),
        "looped": case.looped,
        "incompatible": case.incompatible,
        "bound": bound_of(case),
        "from": found.start,
        "steps": list(found.steps),
        "judged": found.evaluations,
        "utilisation": {name: seen[choices[name]].utilisation for name in METHODS},
        "slowdown": {name: seen[choices[name]].slowdown for name in METHODS},
        "marks": {name: seen[choices[name]].marks for name in METHODS},
    }


def best_other(row: dict[str, Any]) -> float:
    """The best utilisation of a mechanism alone."""
    return float(max(value for name, value in row["utilisation"].items() if name != "loop"))


def gain(row: dict[str, Any]) -> float | None:
    """(ours - best) / (bound - best), or None if the instance does not count."""
    best = best_other(row)
    counts = row["fabric"] == "testbed" and (row["looped"] or row["incompatible"])
    if not counts or row["bound"] - best < HEADROOM * best:
        return None
    return float((row["utilisation"]["loop"] - best) / (row["bound"] - best))


def summary(rows: list[dict[str, Any]], small: list[dict[str, Any]]) -> dict[str, Any]:
    """The report: means by method, and whether each goal is met."""
    worse = [r for r in rows if r["utilisation"]["loop"] < best_other(r) * (1 - WORSE)]
    gains = [g for g in map(gain, rows) if g is not None]
    joint = [100 * r["loop"] / r["optimum"] for r in small]
    grid = [100 * r["loop"] / r["grid"] for r in small]
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
        "joint_grid_pct": round(float(np.mean(grid)), 3) if grid else None,
        "utilisation_pct": {name: _percent([r["utilisation"][name] for r in rows]) for name in METHODS},
        "bound_pct": _percent([r["bound"] for r in rows]),
        "paper": PAPER,
        "against_ecmp": {name: _against(rows, name) for name in METHODS[1:]} if rows else {},
    }
    report["verdicts"] = {
        "worse_than_best": report["worse_than_best"] == 0,
        "looped_gain": report["looped_gain"] is not None and report["looped_gain"] >= GAIN_WANTED,
        "joint_pct": report["joint_pct"] is not None and report["joint_pct"] >= JOINT_WANTED,
    }
    return report


def _percent(parts: Sequence[float]) -> float | None:
    return round(100 * float(np.mean(parts)), 3) if parts else None


def _against(rows: list[dict[str, Any]], name: str) -> dict[str, float]:
    """The speed-up of a method against ECMP, and the percentage of ECMP's ECN marks that remains."""
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


def write(out: Path, rows: list[dict[str, Any]], small: list[dict[str, Any]]) -> list[str]:
    """Write instances.csv, joint.csv, plans.txt, and the CDFs as SVG; returns the names of the figures."""
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
        columns = ("loop", "grid", "optimum")
        table.writerow(["number", *columns, "enumerated"])
        table.writerows([r["number"], *(f"{r[k]:.6f}" for k in columns), r["enumerated"]] for r in small)
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
    if rows:
        figures["utilisation.svg"] = draw_cdf("GPU utilisation", "of what no plan exceeds [%]", used)
    for name, figure in figures.items():
        (out / name).write_text(figure, encoding="utf-8")
    return list(figures)


def _thinned(values: Sequence[float]) -> list[float]:
    """At most _POINTS values with the same distribution."""
    ordered = np.sort(np.array(values if len(values) else [0.0]))
    at = np.linspace(0, len(ordered) - 1, min(_POINTS, len(ordered)))
    return [float(v) for v in ordered[np.round(at).astype(np.int64)]]


def to_text(report: dict[str, Any]) -> str:
    """The report as text."""
    verdict = {True: "met", False: "NOT met"}
    lines = [f"{report['instances']} sets of jobs, {report['joint_instances']} small, {report['seconds']} s"]
    if report["instances"]:
        means = ", ".join(f"{name} {value:.1f}" for name, value in report["utilisation_pct"].items())
        lines[0] += f"; GPU utilisation in %: {means}; no plan exceeds {report['bound_pct']:.1f}"
    lines += [
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
        "  the thesis, against its baselines: CASSINI up to 1.6x (p99 2.5x), MLTCP up to 1.9x (p99 2.7x)"
    )
    return "\n".join(lines)
