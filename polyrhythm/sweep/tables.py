# SPDX-License-Identifier: Apache-2.0
"""The results of a sweep: Parquet tables of simulations and jobs, and a summary over the seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from polyrhythm.paper.resumable import Row
from polyrhythm.sweep.point import COLUMNS, SUMMARY, Point
from sim.output import write_parquet

SHOWN = ("mean_completion_s", "p99_completion_s", "mean_slowdown", "gpu_utilisation")


def write_results(out: Path, points: Sequence[Point], rows: Mapping[Point, Row]) -> list[Path]:
    """`points.parquet`, a row for each simulation, and `jobs.parquet`, a row for each of its jobs.

    Both are in the order of `points`, so the same rows give the same bytes, whatever came first.
    """
    done = [(point, rows[point]) for point in points if point in rows]
    simulations = [(*p.columns, *(row["summary"][name] for name in SUMMARY)) for p, row in done]
    write_parquet(out / "points.parquet", (*COLUMNS, *SUMMARY), simulations)
    of_jobs: Iterable[str] = done[0][1]["columns"] if done else ()
    jobs = [(*p.columns, *job) for p, row in done for job in row["jobs"]]
    write_parquet(out / "jobs.parquet", (*COLUMNS, *of_jobs), jobs)
    return [out / "points.parquet", out / "jobs.parquet"]


def over_seeds(points: Sequence[Point], rows: Mapping[Point, Row]) -> list[dict[str, Any]]:
    """For each trace, topology, policy and scheduler the figures of SHOWN over the seeds: mean, least and
    most; None where no job has ended."""
    groups: dict[tuple[str | int, ...], list[Row]] = {}
    for point in points:
        if point in rows:
            groups.setdefault(point.columns[:-1], []).append(rows[point]["summary"])
    found = []
    for key, summaries in groups.items():
        figures = {}
        for name in SHOWN:
            values = [s[name] for s in summaries if s[name] is not None]
            figures[name] = (
                {"mean": fmean(values), "least": min(values), "most": max(values)} if values else None
            )
        found.append({**dict(zip(COLUMNS, key, strict=False)), "seeds": len(summaries), **figures})
    return found
