# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper crux-microbench`: each part of CRUX against the optimum of small cases (CRUX, 4.4)."""

from __future__ import annotations

import argparse
import csv
from functools import partial
from pathlib import Path
from typing import Any

from polyrhythm.paper import harness
from polyrhythm.paper.battery_metrics import half_interval
from polyrhythm.paper.charts import draw_cdf
from polyrhythm.paper.crux_cases import measure
from polyrhythm.paper.processes import spawned_pool
from polyrhythm.progress import Bar

CASES = 1_500
PAPER = {"path_selection": 97.69, "priority_assignment": 97.24, "compression": 97.12}
"""The parts of CRUX in percent of the optimum, from the paper (4.4)."""
HARD = 5.0
"""A random choice must lose this many percentage points, or the cases are too easy. Chosen."""
_CHUNK = 20
_MOST_TRIED = 20
_FIGURES = {
    "path_selection": ("a", "paths"),
    "priority_assignment": ("b", "priorities"),
    "compression": ("c", "levels"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper crux-microbench`."""
    parser.add_argument(
        "--cases", type=int, default=CASES, metavar="N", help=f"number of cases, 1 or more (default {CASES})"
    )
    harness.add_arguments(parser, "of the cases", "folder for report.json, cases.csv and the figures")


def run(args: argparse.Namespace) -> int:
    """Measure, write and print. Returns 1 without Numba, 2 for bad options."""
    least = {"cases": 1, "workers": 1, "seed": 0}
    return harness.run("crux-microbench", args, least, partial(_experiment, args), to_text)


def _experiment(args: argparse.Namespace) -> harness.ExperimentResult:
    rows, tried = collect(args.cases, args.seed, args.workers)
    return harness.ExperimentResult(summary(rows, tried), partial(write, rows=rows))


def collect(cases: int, seed: int, workers: int) -> tuple[list[dict[str, float]], int]:
    """The first `cases` cases by number that are hard enough, and the number of cases tried.

    They depend on the seed only, not on the number of processes.
    """
    rows: list[dict[str, float]] = []
    with (
        Bar("crux-microbench", cases, unit="cases") as bar,
        spawned_pool(workers) as pool,
    ):
        # More chunks are queued than processes run. They are counted in order, whichever ends first.
        waiting = [pool.submit(_chunk, seed, i * _CHUNK, _CHUNK) for i in range(2 * workers)]
        for first in range(0, _MOST_TRIED * max(cases, _CHUNK), _CHUNK):
            found = waiting.pop(0).result()
            waiting.append(pool.submit(_chunk, seed, first + 2 * workers * _CHUNK, _CHUNK))
            for number, row in enumerate(found, first):
                if row is not None:
                    rows.append({"case": number, **row})
                if len(rows) == cases:
                    pool.shutdown(cancel_futures=True)
                    return rows, number + 1
            bar.step(len(rows))
    raise RuntimeError(f"only {len(rows)} of {_MOST_TRIED * cases} cases are hard enough")


def _chunk(seed: int, first: int, count: int) -> list[dict[str, float] | None]:
    return [measure(seed, number) for number in range(first, first + count)]


def summary(rows: list[dict[str, float]], tried: int) -> dict[str, Any]:
    """Means over the cases in percent of the optimum, and the values of the paper.

    It also says whether the cases are hard enough to distinguish methods: a random choice must lose points in
    each part.
    """
    names = [name for name in rows[0] if name != "case"]
    means = {f"{n}_pct": round(100 * sum(r[n] for r in rows) / len(rows), 3) for n in names}
    below = {part: round(means[f"{part}_pct"] - means[f"{part}_random_pct"], 3) for part in PAPER}
    below["all"] = round(min(means[f"{part}_pct"] for part in PAPER) - means["random_pct"], 3)
    return {
        "cases": len(rows),
        "tried": tried,
        **dict(sorted(means.items())),
        "random_below": below,
        "interval_pct": {part: round(100 * half_interval([r[part] for r in rows]), 3) for part in PAPER},
        "hard_enough": all(points >= HARD for points in below.values()),
        "paper_pct": PAPER,
        "as_good_as_the_paper": {part: means[f"{part}_pct"] >= least for part, least in PAPER.items()},
    }


def write(out: Path, rows: list[dict[str, float]]) -> list[str]:
    """Write cases.csv and Figure 16 as SVG; returns the names of the figures."""
    with (out / "cases.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows({k: v if k == "case" else f"{v:.6f}" for k, v in row.items()} for row in rows)
    names = []
    for part, (letter, what) in _FIGURES.items():
        curves = {
            name.removeprefix(part).lstrip("_") or "crux": [100 * (1 - row[name]) for row in rows]
            for name in rows[0]
            if name.startswith(part)
        }
        names.append(f"figure-16{letter}-{what}.svg")
        figure = draw_cdf(f"CRUX Figure 16: {what}", "below the optimum [%]", curves)
        (out / names[-1]).write_text(figure, encoding="utf-8")
    return names


def to_text(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [f"{report['cases']} cases ({report['tried']} tried), {report['seconds']} s; % of the optimum"]
    errors, papers = report["interval_pct"], report["paper_pct"]
    for name, value in report.items():
        part = name.removesuffix("_pct")
        if name.endswith("_pct") and isinstance(value, float):
            beside = f" +- {errors[part]:.2f} (paper {papers[part]:.2f})" if part in papers else ""
            lines.append(f"  {part:32} {value:7.2f}{beside}")
    below = ", ".join(f"{part} {points:.2f}" for part, points in report["random_below"].items())
    hard = "hard enough" if report["hard_enough"] else "TOO EASY"
    met = all(report["as_good_as_the_paper"].values())
    lines.append(f"  points that random loses: {below}: {hard} ({HARD:g} wanted of each)")
    lines.append(f"  {'as good as' if met else 'NOT as good as'} the paper's CRUX in every part")
    return "\n".join(lines)
