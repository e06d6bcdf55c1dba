# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper routing`: the evaluation of "Routing for Large ML Models" on the simulator."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import as_completed
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from controller.kernel import available
from polyrhythm.paper import harness
from polyrhythm.paper.charts import draw_cdf
from polyrhythm.paper.processes import spawned_pool
from polyrhythm.paper.routing_cases import SPINES, cases, measure
from polyrhythm.paper.routing_claims import claims
from sim.generators import LARGE_MODELS

_CLOSE = 1.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper routing`."""
    parser.add_argument(
        "--seeds",
        type=int,
        default=2,
        metavar="N",
        help="number of seeds of job mixes, placements and starts (default 2)",
    )
    parser.add_argument(
        "--iterations", type=int, default=10, metavar="N", help="iterations of each job (default 10)"
    )
    parser.add_argument(
        "--ilp-seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="time limit of each ILP in seconds, 0 to 3600; 0: no ILP (default 10)",
    )
    parser.add_argument("--quick", action="store_true", help="simulate a few small cases with one seed")
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of processes, 1 or more (default: one for each processor)",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder for report.json and the figures")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure, write and print. Returns 1 without Numba, 2 for bad options."""
    for name in ("seeds", "iterations", "workers"):
        if getattr(args, name) < 1:
            print(f"--{name}: {getattr(args, name)}; legal: a whole number from 1", file=sys.stderr)
            return 2
    if not 0 <= args.ilp_seconds <= 3600:
        print(f"--ilp-seconds: {args.ilp_seconds:g}; legal: 0 to 3600", file=sys.stderr)
        return 2
    if not available():
        print("paper routing: needs Numba, which is not installed", file=sys.stderr)
        return 1
    try:
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        rows = collect(args)
        report = {**summary(rows), "seconds": round(time.perf_counter() - began, 1)}
        if args.out:
            report["figures"] = draw(args.out, rows)
            (args.out / "report.json").write_text(json.dumps({**report, "cases": rows}, indent=1) + "\n")
    except OSError as error:
        return harness.not_written(error, args.out)
    print(json.dumps({**report, "cases": rows}, indent=1) if args.json else to_text(report))
    return 0


def collect(args: argparse.Namespace) -> list[dict[str, Any]]:
    """All cases in order. The result does not depend on the number of processes."""
    todo = list(cases(args.seeds, args.quick))
    work = partial(measure, iterations=args.iterations, ilp_s=args.ilp_seconds)
    rows: dict[int, dict[str, Any]] = {}
    # Large cases first, so that the last ones to end are small.
    order = sorted(range(len(todo)), key=lambda i: -todo[i].nics * len(todo[i].mix))
    columns = (
        TextColumn("{task.completed}/{task.total} cases"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with (
        Bar(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar,
        spawned_pool(args.workers) as pool,
    ):
        task = bar.add_task("cases", total=len(todo))
        futures = {pool.submit(work, todo[i]): i for i in order}
        for done in as_completed(futures):
            rows[futures[done]] = done.result()
            bar.advance(task)
    return [rows[i] for i in range(len(todo))]


def _grouped(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The figures by kind of fabric, then by scheme. All seeds of ECMP are one scheme."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        kind = f"{row['failed']} spines down" if row["spines"] == SPINES else "2:1 oversubscribed"
        for name, figures in row.get("schemes", {}).items():
            found[kind]["ecmp" if name.startswith("ecmp") else name].append(figures)
    return found


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the cases, and properties that hold in each case alone."""
    ours = {
        kind: {
            name: {
                key: statistics.mean(f[key] for f in figures)
                for key in ("slowdown", "throughput_gbps", "fct_mean_s", "run_s", "max_load", "assign_ms")
            }
            for name, figures in by_scheme.items()
        }
        for kind, by_scheme in _grouped(rows).items()
    }
    ran = [row for row in rows if row["fits"]]
    whole = [r["schemes"] for r in ran if r["failed"] == 0 and r["spines"] == SPINES]
    proven = [r["schemes"] for r in ran if r["schemes"].get("ilp", {}).get("excess") == 0]
    short = [r["schemes"] for r in ran if r["failed"] and r["schemes"]["optimal"]["max_load"] > 1]
    checks = {
        "optimal_at_the_bound": all(r["schemes"]["optimal"]["excess"] == 0 for r in ran),
        "optimal_within_1_percent_of_ideal": all(s["optimal"]["slowdown_max"] <= _CLOSE for s in whole),
        "optimal_load_is_the_ilps": all(s["optimal"]["max_load"] == s["ilp"]["max_load"] for s in proven),
        "optimal_over_ilp": [
            round(f([s["optimal"]["slowdown"] / s["ilp"]["slowdown"] for s in proven]), 4)
            for f in (min, statistics.mean, max)
        ]
        if proven
        else None,
        "split_below_unsplittable": all(
            s["optimal_split"]["slowdown"] < s["optimal"]["slowdown"] for s in short if "optimal_split" in s
        ),
        "greedy_within_twice_the_optimum": all(
            r["schemes"]["greedy"]["max_load"] <= 2 * r["schemes"]["optimal"]["max_load"] for r in ran
        ),
    }
    return {
        "ours": ours,
        "ideal_s": {f"{m.name}/{n}": m.ideal_s(n) for m in LARGE_MODELS.values() for n in (2, 4, 8)},
        "checks": checks,
        "claims": claims(rows),
        "cases_run": len(ran),
        "cases_that_do_not_fit": len(rows) - len(ran),
        "ilp_proven": len(proven),
    }


def draw(out: Path, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Draw the CDFs of the all-reduce time over the ideal one, and of message completion times."""
    written = []
    for kind, by_scheme in _grouped(rows).items():
        stem = kind.replace(" ", "-").replace(":", "-")
        slow = {name: [f["slowdown"] for f in figures] for name, figures in by_scheme.items()}
        fct = {name: [t for f in figures for t in f["fct_s"]] for name, figures in by_scheme.items()}
        for name, axis, curves in (
            ("all-reduce", "all-reduce time over the ideal", slow),
            ("fct", "message completion time [s]", fct),
        ):
            path = out / f"{name}-{stem}.svg"
            path.write_text(draw_cdf(kind, axis, curves), encoding="utf-8")
            written.append(path.name)
    return written


def to_text(report: dict[str, Any]) -> str:
    """The report as a table."""
    lines = [f"{report['cases_run']} cases, {report['cases_that_do_not_fit']} more do not fit the fabric"]
    for kind, by_scheme in report["ours"].items():
        lines.append(f"{kind}: all-reduce over ideal, largest load, ms to assign")
        for name, f in by_scheme.items():
            lines.append(f"  {name:14} {f['slowdown']:8.3f} {f['max_load']:8.2f} {f['assign_ms']:10.3f}")
    lines += [f"{name}: {value}" for name, value in report["checks"].items()]
    for claim in report["claims"]:
        lines.append(f"{claim['what']}: paper {claim['paper']}, ours {claim['ours']}: {claim['verdict']}")
    return "\n".join(lines)
