# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper cassini-testbed`: schedulers with and without CASSINI on its testbed, simulated (4.5)."""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from controller.planner import PlanInput, policy_named
from controller.planner.placement import compatibility
from polyrhythm.paper import harness
from polyrhythm.paper.cassini_testbed_jobs import DLRM, TRACES, cassini_cluster, trace
from polyrhythm.paper.charts import draw_cdf
from polyrhythm.paper.resumable import Row, Task, collect
from sim.cluster import JobRequest
from sim.output import MarkEstimate
from sim.placed_job import placed_request
from sim.scheduler import WITH_CASSINI, scheduler_named
from sim.simulation import Simulation, SimulationSettings
from sim.state import JobOutcome

BASES = ("themis", "pollux", "gandiva")
"""With one GPU a server `gandiva` draws servers at random: the thesis' scheme Random."""
_ELASTIC = {"pollux"}
"""Schedulers under which a job has several iteration times alone, by its GPUs; only the last is known."""
LEASE_S = 600.0
"""Thesis, 4.5.1."""
PLAIN, PLACED, CASSINI, OURS = "plain", "placement only", "CASSINI", "ours"
METHODS = {
    PLAIN: ("", "ecmp"),
    PLACED: (WITH_CASSINI, "ecmp"),
    CASSINI: (WITH_CASSINI, "cassini"),
    OURS: (WITH_CASSINI, "polyrhythm"),
}
"""By method: what is appended to the scheduler's name, and the policy of the network."""
PAPER: Mapping[tuple[str, str], tuple[float, float]] = {
    ("poisson", "themis"): (1.6, 1.8),
    ("dynamic", "themis"): (1.5, 2.2),
    ("dynamic", "pollux"): (1.6, 2.5),
    ("snapshot", "themis"): (1.2, 1.6),
}
"""By trace and scheduler: how many times shorter CASSINI makes the mean and the p99 of the iterations (4.5.2
and 4.5.3). The last row is printed for model-parallel jobs (4.5.2 and 4.5.4); snapshots have no other."""
DLRM_MARKS = {"themis": 27.0, "pollux": 33.0}
"""How many times fewer marks DLRM has with CASSINI in the dynamic trace (4.5.3)."""
_FULL, _QUICK = {"poisson": 4, "dynamic": 24, "snapshot": 24}, {"poisson": 1, "dynamic": 3, "snapshot": 3}
_JOBS, _QUICK_JOBS = 60, 20
_FITS = 0.999
_POINTS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper cassini-testbed`."""
    parser.add_argument("--quick", action="store_true", help="few and short traces (about 3 minutes of CPU)")
    parser.add_argument("--traces", nargs="+", choices=TRACES, default=list(TRACES), help="default: all")
    parser.add_argument("--schedulers", nargs="+", choices=BASES, default=list(BASES), help="default: all")
    harness.add_arguments(
        parser,
        "of the drawn jobs, source ports and candidates",
        "folder for report.json, jobs.csv, CDFs and rows.jsonl, from which a stopped run continues",
    )


def run(args: argparse.Namespace) -> int:
    """Simulate, write and print. Returns 1 without Numba, 2 for bad options."""
    return harness.run(
        "cassini-testbed", args, {"workers": 1, "seed": 0}, partial(_experiment, args), to_text
    )


def _experiment(args: argparse.Namespace) -> harness.ExperimentResult:
    draws, jobs = (_QUICK, _QUICK_JOBS) if args.quick else (_FULL, _JOBS)
    tasks: list[Task] = [
        (kind, number, scheduler, method, args.seed, jobs)
        for kind in dict.fromkeys(args.traces)
        for number in range(draws[kind])
        for scheduler in dict.fromkeys(args.schedulers)
        for method in METHODS
    ]
    found = collect(
        measure,
        tasks,
        min(args.workers, len(tasks)),
        args.out / "rows.jsonl" if args.out else None,
        "simulations",
    )
    report = {
        "quick": args.quick,
        "seed": args.seed,
        "draws": {kind: draws[kind] for kind in dict.fromkeys(args.traces)},
        "jobs_of_a_poisson_trace": jobs,
        "rows": [
            comparison(kind, scheduler, found)
            for kind in dict.fromkeys(args.traces)
            for scheduler in dict.fromkeys(args.schedulers)
        ],
    }
    return harness.ExperimentResult(report, partial(_write, found=found))


def measure(task: Task) -> Row:
    """Simulate one trace under one method. Iterations are counted by their length, in steps of 0.1 ms."""
    kind, number, scheduler, method, seed, jobs = task
    requests = trace(kind, number, seed, jobs)
    row: Row = {"jobs": [_job(outcome) for outcome in _simulated(requests, scheduler, method, seed)]}
    if kind != "poisson" and method == CASSINI:
        row |= _fit(requests, scheduler, seed)
    return row


def _simulated(
    requests: Sequence[JobRequest], scheduler: str, method: str, seed: int, until_ns: int = 0
) -> list[JobOutcome]:
    behind, policy = METHODS[method]
    simulation = Simulation(
        cassini_cluster(),
        requests,
        SimulationSettings(policy=policy, seed=seed, until_ns=until_ns),
        scheduler=scheduler_named(scheduler + behind, lease_s=LEASE_S, seed=seed),
    )
    simulation.run()
    return list(simulation.memory.outcomes.values())


def _job(outcome: JobOutcome) -> dict[str, Any]:
    marking = MarkEstimate()
    congested = sum(flow[4] for flow in outcome.flows)
    lengths: Counter[str] = Counter()
    for length, times in outcome.lengths.items():
        lengths[f"{length / 1e9:.1f}"] += times
    return {
        "model": outcome.request.model,
        "name": outcome.request.name,
        "ideal_ms": round(outcome.ideal / 1e9, 1),
        "lengths": lengths,
        "marks": congested / marking.packet_bits * marking.probability,
        "hosts": list(outcome.hosts),
    }


def _fit(requests: Sequence[JobRequest], scheduler: str, seed: int) -> Row:
    """How well the jobs fit together right after the last has come, by Algorithm 2."""
    cluster, after = cassini_cluster(), max(r.arrival_ns for r in requests) + 1_000_000
    found = compatibility(
        PlanInput(
            cluster.network.topology,
            tuple(
                placed_request(cluster, o.request, tuple((host, 1) for host in o.hosts)).job
                for o in _simulated(requests, scheduler, CASSINI, seed, after)
                if o.ended < 0
            ),
            policy_named(METHODS[CASSINI][1]),
            epoch_ns=0,
            seed=seed,
        )
    )
    return {"score": round(found.score, 4), "loops": found.loops}


def comparison(kind: str, scheduler: str, found: Mapping[Task, Row]) -> dict[str, Any]:
    """The figures of a trace under a scheduler, over all of its draws, and the paper's ratios. `bound` is how
    many times shorter the mean is if each job is alone on its (last) servers, None where that is not
    known."""
    rows = {m: [r for t, r in found.items() if (t[0], t[2], t[3]) == (kind, scheduler, m)] for m in METHODS}
    figures = {method: _figures(own) for method, own in rows.items()}
    plain = figures[PLAIN]
    if scheduler in _ELASTIC:
        for own in figures.values():
            del own["alone_ms"]
    ratios = {m: _ratios(figures[PLAIN], figures[m]) for m in METHODS if m != PLAIN}
    hard = [i for i, r in enumerate(rows[CASSINI]) if r.get("loops") or r.get("score", 1.0) < _FITS]
    row: dict[str, Any] = {
        "trace": kind,
        "scheduler": scheduler,
        "methods": figures,
        "shorter": ratios,
        "bound": round(plain["mean_ms"] / plain["alone_ms"], 3) if "alone_ms" in plain else None,
        "paper": None,
        "hard_draws": len(hard) if kind != "poisson" else None,
        "ours_over_cassini": _ratios(figures[CASSINI], figures[OURS]),
        "ours_over_cassini_where_hard": _ratios(
            _figures([rows[CASSINI][i] for i in hard]), _figures([rows[OURS][i] for i in hard])
        )
        if hard
        else None,
    }
    if (kind, scheduler) in PAPER:
        row["paper"] = dict(zip(("mean", "p99"), PAPER[kind, scheduler], strict=True))
    if kind == "dynamic":
        marks = {m: _marks(own, DLRM) for m, own in rows.items()}
        fewer = marks[PLAIN] / marks[CASSINI] if marks[CASSINI] else None
        row["dlrm_marks"] = {
            "by_method": {m: round(v, 1) for m, v in marks.items()},
            "fewer": fewer if fewer is None else round(fewer, 2),
            "paper": DLRM_MARKS.get(scheduler),
        }
    return row


def _figures(rows: Sequence[Row]) -> dict[str, float]:
    """Of all iterations of all jobs: mean and p99 in ms, the mean of the jobs alone on their servers, and the
    marks of an iteration."""
    values, counts = _pooled(rows)
    total = int(counts.sum())
    ideal = sum(job["ideal_ms"] * sum(job["lengths"].values()) for row in rows for job in row["jobs"])
    return {
        "mean_ms": round(float((values * counts).sum() / total), 2),
        "p99_ms": round(float(values[np.searchsorted(np.cumsum(counts), 0.99 * total)]), 2),
        "alone_ms": round(ideal / total, 2),
        "marks": round(sum(job["marks"] for row in rows for job in row["jobs"]) / total, 1),
        "iterations": total,
    }


def _pooled(rows: Sequence[Row]) -> tuple[Any, Any]:
    """The lengths of all iterations in ms, ascending, and how often each occurs; both (lengths,)."""
    counts: Counter[float] = Counter()
    for row in rows:
        for job in row["jobs"]:
            for length, times in job["lengths"].items():
                counts[float(length)] += times
    ordered = sorted(counts)
    return np.array(ordered), np.array([counts[length] for length in ordered])


def _marks(rows: Sequence[Row], model: str) -> float:
    """The marks of an iteration of this model."""
    jobs = [job for row in rows for job in row["jobs"] if job["model"] == model]
    iterations = sum(sum(job["lengths"].values()) for job in jobs)
    return sum(job["marks"] for job in jobs) / iterations if iterations else 0.0


def _ratios(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float | None]:
    """How many times shorter the iterations became, and how many times fewer the marks; None: to none."""
    return {
        "mean": round(before["mean_ms"] / after["mean_ms"], 3),
        "p99": round(before["p99_ms"] / after["p99_ms"], 3),
        "marks": round(before["marks"] / after["marks"], 2) if after["marks"] else None,
    }


def _write(out: Path, found: Mapping[Task, Row]) -> list[str]:
    with (out / "jobs.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ("trace", "draw", "scheduler", "method", "job", "alone_ms", "mean_ms", "marks", "servers")
        )
        for task, row in found.items():
            for job in row["jobs"]:
                times = sum(job["lengths"].values())
                mean = sum(float(ms) * n for ms, n in job["lengths"].items()) / times
                own = (job["name"], job["ideal_ms"], f"{mean:.2f}", f"{job['marks'] / times:.1f}")
                table.writerow((*task[:4], *own, " ".join(job["hosts"])))
    names = []
    for kind, scheduler in dict.fromkeys((t[0], t[2]) for t in found):
        of = {m: [r for t, r in found.items() if (t[0], t[2], t[3]) == (kind, scheduler, m)] for m in METHODS}
        curves = {
            "iterations": ({m: _thinned(*_pooled(rows)) for m, rows in of.items()}, "iteration time [ms]"),
            "marks": (
                {
                    m: [_marks([{"jobs": [j]}], j["model"]) for r in rows for j in r["jobs"]]
                    for m, rows in of.items()
                },
                "ECN marks per iteration of a job",
            ),
        }
        for what, (values, axis) in curves.items():
            names.append(f"{what}-{kind}-{scheduler}.svg")
            figure = draw_cdf(f"{kind} trace, {scheduler}", axis, values)
            (out / names[-1]).write_text(figure, encoding="utf-8")
    return names


def _thinned(values: Any, counts: Any) -> list[float]:
    """At most _POINTS values with the same distribution."""
    ends = np.cumsum(counts)
    at = np.linspace(1, ends[-1], min(_POINTS, int(ends[-1])))
    return [float(v) for v in values[np.searchsorted(ends, at)]]


def to_text(report: harness.Report) -> str:
    """The report as text."""
    lines = [
        "24 servers of one GPU, 13 switches, 2:1 oversubscribed; jobs drawn from Table 4.2 of the thesis, "
        f"seed {report['seed']}; {report['seconds']} s",
        "times of all iterations of all jobs in ms, and how many times shorter than without CASSINI",
    ]
    for row in report["rows"]:
        lines += ["", f"{row['trace']} trace, {row['scheduler']}, {report['draws'][row['trace']]} draws"]
        for method, own in row["methods"].items():
            shorter = row["shorter"].get(method)
            line = f"  {method:15} mean {own['mean_ms']:8.1f}  p99 {own['p99_ms']:8.1f}"
            line += f"  marks {own['marks']:8.1f}"
            if shorter is not None:
                line += f"  shorter {shorter['mean']:.2f} x, p99 {shorter['p99']:.2f} x"
            lines.append(line)
        if row["bound"]:
            alone = row["methods"][PLAIN]["alone_ms"]
            lines.append(f"  {'no job beside':15} mean {alone:8.1f}{'':33}  shorter {row['bound']:.2f} x")
        if row["paper"]:
            lines.append(f"  the thesis: CASSINI {row['paper']['mean']} x, p99 {row['paper']['p99']} x")
        if row.get("dlrm_marks"):
            marks = row["dlrm_marks"]
            own = marks["by_method"]
            lines.append(
                f"  marks of an iteration of DLRM: {own[PLAIN]:g}, with CASSINI {own[CASSINI]:g}"
                + (f" (thesis: {marks['paper']:g} times fewer)" if marks["paper"] else "")
            )
        hard = row["ours_over_cassini_where_hard"]
        if hard:
            lines.append(
                f"  draws with a loop or jobs that do not fit: {row['hard_draws']}; there iterations are "
                f"{hard['mean']:.2f} x (p99 {hard['p99']:.2f} x) shorter with ours than with CASSINI"
            )
    return "\n".join(lines)
