# SPDX-License-Identifier: Apache-2.0
"""The report of the experiment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from polyrhythm.paper.real_training.parts import WARMUP, PartResult
from polyrhythm.paper.real_training.runs import Run

GOALS = {"speedup_collide": 1.2, "speedup_rhythm": 1.15, "bytes_on_planned_tuples": 0.99}
"""What the experiment should show at least."""


def report(results: Sequence[PartResult]) -> dict[str, Any]:
    """All figures. Those of times are medians over the repeats, and None where every run is void."""
    runs = [run for result in results for run in _runs(result)]
    planned = [run.on_planned for run in runs if run.on_planned is not None]
    killed = [result.killed for result in results if result.killed is not None]
    return {
        **{f"speedup_{result.part.name}": _speedup(result) for result in results},
        "losses_equal": losses_equal(results),
        "control_killed_runs": len(killed),
        "host_cpu_busy": round(max(run.busy for run in runs), 3),
        "bytes_on_planned_tuples": round(min(planned), 5) if planned else None,
        "void_runs": sum(_void(result) for result in results),
        "parts": {result.part.name: _part(result) for result in results},
    }


def losses_equal(results: Iterable[PartResult]) -> bool:
    """Whether each job ends with the same losses and parameters, bit for bit, after the same number of steps
    in all its runs of a part: under ECMP, under ours, and with controller and agents killed."""
    for result in results:
        ends: dict[str, set[tuple[str, str, int]]] = {}
        for run in _runs(result):
            for name, job in run.jobs.items():
                ends.setdefault(name, set()).add((job.losses, job.state, len(job.iterations_ms)))
        if any(len(each) != 1 for each in ends.values()):
            return False
    return True


def to_text(found: dict[str, Any]) -> str:
    """The report for people."""
    lines = []
    for name, part in found["parts"].items():
        lines.append(f"{name}: {part['about']} ({part['link_mbps']:g} Mbit/s)")
        for job, ways in part["jobs"].items():
            for way, figures in ways.items():
                mean, p99 = (_number(figures[key], "ms") for key in ("mean_ms", "p99_ms"))
                lines.append(f"  {job} {way:4} mean {mean}, p99 {p99}")
        lines += [
            f"  run {number} was measured without the plan for the jobs' profiles: {run['not_planned']}"
            for number, run in enumerate(part["runs"], start=1)
            if run["not_planned"]
        ]
        lines.append(f"  speed-up {_number(found[f'speedup_{name}'])}")
    lines.append(f"losses and parameters equal: {'yes' if found['losses_equal'] else 'no'}")
    lines.append(f"bytes on planned paths: {_number(found['bytes_on_planned_tuples'])}")
    lines.append(f"processors busy, at most: {found['host_cpu_busy']:.2f}; void runs: {found['void_runs']}")
    return "\n".join(lines)


def _number(value: float | None, unit: str = "") -> str:
    return "void" if value is None else f"{value:.6g} {unit}".rstrip()


def _ways(result: PartResult) -> list[tuple[str, Run]]:
    """All runs in their order, each under "ecmp" or "ours"."""
    pairs = zip(result.ecmp, result.ours, strict=True)
    last = [("ours", result.killed)] if result.killed else []
    return [*(way for a, b in pairs for way in (("ecmp", a), ("ours", b))), *last]


def _runs(result: PartResult) -> list[Run]:
    return [run for _, run in _ways(result)]


def _void(result: PartResult) -> int:
    return result.void + 2 * (len(result.ecmp) - len(result.valid()))


def _measured(run: Run, job: str) -> Sequence[float]:
    return run.jobs[job].iterations_ms[WARMUP:]


def _speedup(result: PartResult) -> float | None:
    """How many times longer an iteration takes under ECMP: the mean over the jobs, the median over the
    repeats."""
    ratios = [
        fmean(fmean(_measured(ecmp, job)) / fmean(_measured(ours, job)) for job in ecmp.jobs)
        for ecmp, ours in result.valid()
    ]
    return round(median(ratios), 4) if ratios else None


def _part(result: PartResult) -> dict[str, Any]:
    return {
        "about": result.part.about,
        "policy": result.part.policy,
        "link_mbps": result.rate_bps / 1e6,
        "repeats": len(result.valid()),
        "void_runs": _void(result),
        "jobs": {
            job: {
                way: _job([_measured(pair[index], job) for pair in result.valid()])
                for index, way in enumerate(("ecmp", "ours"))
            }
            for job in result.ecmp[0].jobs
        },
        "runs": [
            {
                "way": way,
                "host_cpu_busy": round(run.busy, 3),
                "draws": run.draws,
                "bytes_on_planned_tuples": run.on_planned,
                "control_killed": run.control_killed,
                "slots": run.slots,
                "warm_up_steps": run.warm_up_steps,
                "not_planned": run.not_planned,
                "iterations_ms": {job: [round(ms, 2) for ms in _measured(run, job)] for job in run.jobs},
            }
            for way, run in _ways(result)
        ],
    }


def _job(runs: Sequence[Sequence[float]]) -> dict[str, float | None]:
    if not runs:
        return {"mean_ms": None, "p99_ms": None}
    return {
        "mean_ms": round(median(fmean(each) for each in runs), 2),
        "p99_ms": round(median(float(np.percentile(each, 99)) for each in runs), 2),
    }
