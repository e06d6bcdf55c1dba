# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper cassini-snapshots`: Tables 3.1 and 4.3 of the CASSINI thesis, packet by packet."""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from polyrhythm.paper import harness
from polyrhythm.paper.cassini_cases import ECN, GROUPS, SNAPSHOTS, CaseJob, CassiniCase, scenario
from polyrhythm.paper.cassini_circles import circle, vectors, vgg16_pair
from polyrhythm.paper.charts import draw_cdf
from polyrhythm.run.experiment import OverallProgress
from polyrhythm.run.figures import MeasuredIteration, job_figures
from polyrhythm.run.processes import RunError
from polyrhythm.run.session import SessionResult, SessionSpec, run_session
from polyrhythm.scenario import ALONE_ITERATIONS, ALONE_WARMUP

WARMUP, ITERATIONS, QUICK_ITERATIONS = 5, 50, 15
_POLICIES = {"fair": "ecmp", "cassini": "cassini", "mltcp": "mltcp", "polyrhythm": "polyrhythm"}
_SAME, _NOTHING = 0.03, 0.005


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper cassini-snapshots`."""
    parser.add_argument(
        "--quick", action="store_true", help=f"measure {QUICK_ITERATIONS} iterations, of Table 4.3 only"
    )
    parser.add_argument(
        "--iterations", type=int, metavar="N", help=f"measured iterations of each job (default {ITERATIONS})"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of jitter, marks and plans (default 1)"
    )
    parser.add_argument(
        "--lanes", type=int, default=2, metavar="N", help="number of sessions that run at once (default 2)"
    )
    parser.add_argument("--out", metavar="DIR", help="folder for report.json, jobs.csv and the figures")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure, write and print. Returns 1 for a run that fails, 2 for bad options."""
    default = QUICK_ITERATIONS if args.quick else ITERATIONS
    iterations = default if args.iterations is None else args.iterations
    for name, value, least in (
        ("iterations", iterations, 2),
        ("seed", args.seed, 0),
        ("lanes", args.lanes, 1),
    ):
        if value < least:
            print(f"--{name}: {value}; legal: a whole number from {least}", file=sys.stderr)
            return 2
    cases = SNAPSHOTS if args.quick else SNAPSHOTS + GROUPS
    try:
        if args.out:
            Path(args.out).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="polyrhythm-") as folder:
            rows, curves = asyncio.run(_measure(cases, iterations, args.seed, args.lanes, Path(folder)))
        report = _report(rows, iterations, args.seed)
        if args.out:
            _write(Path(args.out), report, curves)
    except RunError as error:
        print(f"polyrhythm paper cassini-snapshots: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        return harness.not_written(error, args.out)
    print(json.dumps(report, indent=2) if args.json else to_text(report))
    return 0


@dataclass(frozen=True, slots=True)
class _Method:
    """One method of sharing the link, in one case."""

    name: str
    policy: str
    file: Path


async def _measure(
    cases: Sequence[CassiniCase], iterations: int, seed: int, lanes: int, folder: Path
) -> tuple[list[dict[str, Any]], dict[str, dict[str, list[float]]]]:
    """A row for each case, and the iteration times in ms of each case, by method of sharing."""
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
        task = bar.add_task(f"{len(cases)} cases", total=1.0)
        progress = OverallProgress(lambda fraction: bar.update(task, completed=fraction))
        runner = _CaseRunner(iterations, seed, asyncio.Semaphore(lanes), folder, progress)
        measured = await asyncio.gather(*(runner.case(case) for case in cases))
    return [row for row, _ in measured], {
        case.name: curves for case, (_, curves) in zip(cases, measured, strict=True)
    }


@dataclass(frozen=True, slots=True)
class _CaseRunner:
    """Runs the sessions of the cases, several at once."""

    iterations: int
    seed: int
    lanes: asyncio.Semaphore
    folder: Path
    progress: OverallProgress

    async def case(self, case: CassiniCase) -> tuple[dict[str, Any], dict[str, list[float]]]:
        """Profile the jobs alone, then run them together with every method."""
        folder = self.folder / case.name
        folder.mkdir()
        file = self._file(case, folder / "scenario.json", unfair=False)
        methods = [_Method(name, policy, file) for name, policy in _POLICIES.items()]
        if case.compatible is not None:
            methods.append(_Method("unfair", "ecmp", self._file(case, folder / "unfair.json", unfair=True)))
        steps = [self.progress.track(f"{case.name}/{method.name}") for method in methods]
        step = self.progress.track(f"{case.name}/alone")
        alone = await self._session(SessionSpec(file, "ecmp", "alone", self.seed, folder / "alone"), step)
        profiles = folder / "profiles.json"
        profiles.write_text(json.dumps(alone.profiles), encoding="utf-8")
        results = await asyncio.gather(
            *(
                self._session(
                    SessionSpec(m.file, m.policy, "together", self.seed, folder / m.name, profiles), step
                )
                for m, step in zip(methods, steps, strict=True)
            )
        )
        found = dict(zip([method.name for method in methods], results, strict=True))
        curves: dict[str, list[float]] = {}
        for name, result in found.items():
            figures = [job_figures(r, WARMUP, self.iterations) for r in result.iterations.values()]
            curves[name] = [t for f in figures for t in f.iterations_ms]
        return _row(case, alone, found, self.iterations), curves

    def _file(self, case: CassiniCase, path: Path, *, unfair: bool) -> Path:
        content = {**scenario(case, self.iterations, unfair=unfair), "warmup": WARMUP}
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    async def _session(self, spec: SessionSpec, step: Callable[[float], None]) -> SessionResult:
        async with self.lanes:
            result = await run_session(spec, step)
        step(1.0)
        return result


def _row(
    case: CassiniCase, alone: SessionResult, found: Mapping[str, SessionResult], iterations: int
) -> dict[str, Any]:
    """The report of a case."""
    jobs = [
        _job(case, job, name, alone, found, iterations)
        for name, job in zip(case.names(), case.jobs, strict=True)
    ]
    return {
        "case": case.name,
        "table": case.table,
        **circle(case),
        "thesis_score": case.score,
        "thesis_compatible": case.compatible,
        "gpu_utilisation": {method: round(_utilisation(jobs, method), 4) for method in found},
        "jobs": jobs,
        "verdict": _verdict(case, jobs),
    }


def _job(
    case: CassiniCase,
    job: CaseJob,
    name: str,
    alone: SessionResult,
    found: Mapping[str, SessionResult],
    iterations: int,
) -> dict[str, Any]:
    before, after = ("fair", "cassini") if case.table == "4.3" else ("fair", "unfair")
    row: dict[str, Any] = {
        "name": name,
        "model": job.model,
        "thesis": {f"{before}_ms": job.fair_ms, f"{after}_ms": job.better_ms, "shift_ms": job.shift_ms},
        "alone": _figures(alone.iterations[name], ALONE_WARMUP, ALONE_ITERATIONS),
    }
    for method, result in found.items():
        row[method] = _figures(result.iterations[name], WARMUP, iterations)
        planned = {entry["job"]: entry for entry in (result.plan or {"jobs": []})["jobs"]}
        if planned.get(name, {}).get("period_ms") is not None:
            row[method] |= {key: round(planned[name][key], 3) for key in ("shift_ms", "period_ms")}
        if planned.get(name, {}).get("sender", "job") != "job":
            row[method]["sender"] = planned[name]["sender"]
    return row


def _utilisation(jobs: Sequence[Mapping[str, Any]], method: str) -> float:
    """The fraction of time in which the jobs compute, 0 to 1.

    The compute time is the part of an iteration alone without communication. All jobs of a case have the same
    number of GPUs.
    """
    return fmean(
        (job["alone"]["iteration_ms"] - job["alone"]["communication_ms"]) / job[method]["iteration_ms"]
        for job in jobs
    )


def _figures(records: Sequence[MeasuredIteration], warmup: int, iterations: int) -> dict[str, float]:
    """Means over the measured iterations in ms. The communication time is that of the slowest worker."""
    figures = job_figures(records, warmup, iterations)
    slowest = [
        max(r.communication_ns for r in records if r.index == index) / 1e6
        for index in range(warmup, warmup + iterations)
    ]
    return {
        "iteration_ms": round(figures.mean_ms, 2),
        "p99_ms": round(figures.p99_ms, 2),
        "communication_ms": round(fmean(slowest), 2),
        "ecn_marks": round(figures.ecn_marks_per_iteration, 1),
    }


def _verdict(case: CassiniCase, jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Whether the packets confirm the thesis.

    Table 4.3: the mean gain of the communication times under CASSINI has the sign of the thesis. Table 3.1:
    where the thesis calls the jobs compatible, unfairness slows no job down; elsewhere it slows one down.
    `mean_ms` has the mean times of the jobs, ours and the thesis', under fair sharing and the other way.
    """
    if case.table == "4.3":
        ours = fmean(j["fair"]["communication_ms"] / j["cassini"]["communication_ms"] for j in jobs)
        thesis = fmean(j.gain for j in case.jobs)
        agrees = ours > 1 + _SAME if thesis > 1 + _SAME else ours > 1 - _SAME
    else:
        gains = [j["fair"]["iteration_ms"] / j["unfair"]["iteration_ms"] for j in jobs]
        ours, thesis = min(gains), min(j.gain for j in case.jobs)
        agrees = (ours > 1 - _SAME / 3) == case.compatible
    kind, way = ("communication_ms", "cassini") if case.table == "4.3" else ("iteration_ms", "unfair")
    times = {
        w: [round(fmean(j[w][kind] for j in jobs), 1), fmean(j["thesis"][f"{w}_ms"] for j in jobs)]
        for w in ("fair", way)
    }
    return {
        "gain": round(ours, 3),
        "thesis_gain": round(thesis, 3),
        "mean_ms": times,
        "as_in_the_thesis": agrees,
    }


def _report(rows: Sequence[dict[str, Any]], iterations: int, seed: int) -> dict[str, Any]:
    pair, tests = vgg16_pair(), vectors()
    return {
        "iterations": iterations,
        "seed": seed,
        "ecn": ECN,
        "snapshots": [row for row in rows if row["table"] == "4.3"],
        "groups": [row for row in rows if row["table"] == "3.1"],
        "vgg16_pair": pair,
        "vectors": tests,
        "agree": sum(row["verdict"]["as_in_the_thesis"] for row in rows),
        "of": len(rows),
        "ours_below": [row["case"] for row in rows if _below(row["gpu_utilisation"])],
        "vectors_exact": all(row["exact"] for row in tests) and pair["shifts_ms"] == pair["thesis_ms"],
    }


def _below(used: Mapping[str, float]) -> bool:
    """Whether our policy has a lower GPU utilisation than fair sharing or CASSINI, by more than _NOTHING."""
    return used["polyrhythm"] < max(used["fair"], used["cassini"]) * (1 - _NOTHING)


def _write(out: Path, report: Mapping[str, Any], curves: Mapping[str, Mapping[str, list[float]]]) -> None:
    """Write report.json, jobs.csv, and the CDF of the iteration times of each case."""
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    with (out / "jobs.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["case", "job", "way", "iteration_ms", "p99_ms", "communication_ms", "ecn_marks", "shift_ms"]
        )
        for row in (*report["snapshots"], *report["groups"]):
            for job in row["jobs"]:
                for method in ("alone", *_POLICIES, "unfair"):
                    if method in job:
                        f = job[method]
                        shift = f.get("shift_ms", "")
                        table.writerow([row["case"], job["name"], method, *list(f.values())[:4], shift])
    for case, lists in curves.items():
        figure = draw_cdf(f"{case}: every job", "iteration time [ms]", lists)
        (out / f"{case}.svg").write_text(figure, encoding="utf-8")


def to_text(report: Mapping[str, Any]) -> str:
    """The report as text."""
    lines = []
    for row in (*report["snapshots"], *report["groups"]):
        kind = "communication_ms" if row["table"] == "4.3" else "iteration_ms"
        said = row["thesis_score"] if row["table"] == "4.3" else row["thesis_compatible"]
        lines.append(
            f"{row['case']} (Table {row['table']}): score {row['score']:.2f}, thesis "
            f"{said if row['table'] == '4.3' else 'compatible' if said else 'not compatible'}; "
            f"mean {kind.split('_', maxsplit=1)[0]} in ms"
        )
        for job in row["jobs"]:
            methods = [m for m in (*_POLICIES, "unfair") if m in job]
            thesis = ", ".join(f"{k[:-3]} {v:g}" for k, v in job["thesis"].items() if v is not None)
            shown = ", ".join(f"{m} {job[m][kind]:.1f}" for m in methods)
            shift = job["polyrhythm"].get("shift_ms")
            lines.append(
                f"  {job['name']:16} alone {job['alone'][kind]:.1f}; {shown}"
                f"{'' if shift is None else f'; shift {shift:g}'} (thesis: {thesis})"
            )
        verdict = row["verdict"]
        used = ", ".join(f"{method} {100 * value:.1f}" for method, value in row["gpu_utilisation"].items())
        lines.append(f"  GPU utilisation in %: {used}")
        lines.append(
            f"  {'as in the thesis' if verdict['as_in_the_thesis'] else 'NOT as in the thesis'}: "
            f"gain {verdict['gain']:.2f}, thesis {verdict['thesis_gain']:.2f}"
        )
    low, high = report["vgg16_pair"]["shifts_ms"]
    lines.append(f"two VGG16 of 255 ms: score 1 at any shift of {low:g} to {high:g} ms (thesis: 114 to 141)")
    for row in report["vectors"]:
        a, b = row["up_ms"]
        lines.append(
            f"40 and 60 ms, up {a:g} and {b:g} ms: score {row['score']:.4f} (exact: {row['expected']:.4f}), "
            f"shift {row['shift_ms']:g} ms = {row['rotation_deg']:g} degrees of {row['perimeter_ms']:g} ms"
        )
    return "\n".join(lines)
