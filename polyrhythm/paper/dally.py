# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper dally`: Dally, its variants and its rivals, with communication by placement alone."""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from controller.placement.latency import RULES
from controller.placement.machines import Machines
from controller.placement.schedulers import SCHEDULERS, SHARING, SchedulerOptions, scheduler_named
from polyrhythm.paper import dally_shared, harness
from polyrhythm.paper.dally_paper import (
    FIGURES,
    NEAR_POINTS,
    RACKS,
    REFERENCE,
    TABLES,
    VERDICTS,
    ratio,
    verdict,
)
from polyrhythm.paper.resumable import Row, Task, collect
from sim.cluster import WorkloadError
from sim.isolated import IsolatedJob, IsolatedOutcome, IsolatedSettings, check_isolated, simulate
from sim.isolated_workload import at_once, drawn, isolated_jobs, one_by_one
from sim.readers import TraceError, read_philly, read_sensetime
from sim.scheduler import PLACING, WITH_CASSINI

MACHINES_A_RACK, GPUS_A_MACHINE = 8, 8
"""Dally, V-B."""
ALL_RACKS = (2, 4, 8, 16)
ARRIVALS = tuple(TABLES)
MODELS = ("isolated", "shared")
RACKS_OF = dict(zip(MODELS, (ALL_RACKS, dally_shared.RACKS), strict=True))
WORK = ("each", "shared")
LEASES = ("together", "own")
_MARKS = dict(zip(VERDICTS, "=< ", strict=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper dally`."""
    defaults = SchedulerOptions()
    parser.add_argument("--quick", action="store_true", help=f"{RACKS} racks only")
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="SenseTime's JSON or a Philly/Muri CSV (default: jobs drawn with the statistics of the paper's)",
    )
    parser.add_argument(
        "--jobs", type=int, default=500, metavar="N", help="jobs to draw without --trace, 1 or more"
    )
    parser.add_argument(
        "--racks",
        type=int,
        nargs="+",
        metavar="N",
        help=f"racks of {MACHINES_A_RACK} machines with {GPUS_A_MACHINE} GPUs (default {_words(ALL_RACKS)})",
    )
    parser.add_argument(
        "--schedulers",
        nargs="+",
        choices=(*PLACING, *SHARING),
        metavar="NAME",
        help=f"schedulers to compare (default: all; {REFERENCE} is always among them); with --model shared "
        f"(default {dally_shared.SCHEDULER}, which is always among them) each also with {WITH_CASSINI}",
    )
    parser.add_argument(
        "--rule",
        choices=tuple(RULES),
        default=IsolatedSettings().rule,
        help="what communication takes beyond the 8 GPUs of Table I: as Table I; growing as a ring or a tree "
        "with the machines and racks; or as a ring over all GPUs (default ring)",
    )
    parser.add_argument(
        "--work",
        choices=WORK,
        default=WORK[0],
        help="each: every GPU runs all iterations of its job; shared: a job's GPUs share them "
        "(default each: with shared, no job can take as long as the paper's P99)",
    )
    parser.add_argument(
        "--lease-h",
        type=float,
        default=defaults.lease_s / 3600,
        metavar="H",
        help=f"hours for which GPUs are given to a job (default {defaults.lease_s / 3600:g})",
    )
    parser.add_argument(
        "--history",
        type=float,
        default=defaults.history,
        metavar="N",
        help=f"the auto-tuner's history limit in leases (default {defaults.history:g})",
    )
    parser.add_argument(
        "--restore-s",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds to save a job and to continue it elsewhere (default 0: the paper neglects it)",
    )
    parser.add_argument(
        "--leases",
        choices=LEASES,
        default=LEASES[0],
        help="together: the leases of all jobs end at once, and all GPUs are offered; own: each job's lease "
        "begins when it gets its GPUs (default together)",
    )
    parser.add_argument(
        "--model",
        choices=MODELS,
        default=MODELS[0],
        help="isolated: communication depends on a job's own placement; shared: jobs that Dally places meet "
        "on links (default isolated)",
    )
    dally_shared.add_arguments(parser)
    harness.add_arguments(
        parser,
        "of the drawn jobs and of random placements",
        "folder for report.json, jobs.csv and rows.jsonl, from which a stopped run continues",
    )


def run(args: argparse.Namespace) -> int:
    """Simulate and print. Returns 2 for bad options and a bad trace."""
    shared = args.model == MODELS[1]
    args.racks = args.racks or ([RACKS] if args.quick else list(RACKS_OF[args.model]))
    args.schedulers = args.schedulers or ([dally_shared.SCHEDULER] if shared else list(SCHEDULERS))
    wrong = _wrong(args) or dally_shared.wrong(args)
    least = {"seed": 0, "workers": 1}
    if wrong is None:
        try:
            if shared:
                requests = dally_shared.workload(args)
            else:
                jobs = _workload(args)
                check_isolated(_machines(min(args.racks)), jobs)
        except (TraceError, WorkloadError) as error:
            wrong = str(error)
    if wrong is not None:
        return harness.refused(wrong)
    if shared:
        return harness.run(
            "dally", args, least, lambda: dally_shared.experiment(args, requests), dally_shared.to_text
        )
    return harness.run("dally", args, least, lambda: _experiment(args, jobs), to_text)


def _wrong(args: argparse.Namespace) -> str | None:
    """What is wrong with the options that the harness does not check."""
    for option, value, least in (
        ("racks", min(args.racks), 1),
        ("jobs", args.jobs, 1),
        ("restore-s", args.restore_s, 0),
        ("history", args.history, 1),
    ):
        if not least <= value < float("inf"):
            return f"--{option}: {value}; legal: a number from {least}"
    alone = [n for n in args.schedulers if n not in SCHEDULERS and args.model == MODELS[0]]
    if alone:
        return f"--schedulers: {alone[0]}: jobs share no link here; legal: with --model shared"
    sharing = [n for n in args.schedulers if n in SHARING and args.model == MODELS[1]]
    if sharing:
        return f"--schedulers: {sharing[0]}: jobs share GPUs under it; legal: with --model isolated"
    if not 0.01 <= args.lease_h < float("inf"):
        return f"--lease-h: {args.lease_h}; legal: a number from 0.01"
    return None


def _workload(args: argparse.Namespace) -> list[IsolatedJob]:
    each = args.work == "each"
    if args.trace is None:
        return drawn(args.jobs, args.seed, each=each)
    path = Path(args.trace)
    read = read_sensetime if path.suffix == ".json" else read_philly
    return isolated_jobs(read(path), each=each)


def _machines(racks: int) -> Machines:
    return Machines.uniform(racks, MACHINES_A_RACK, GPUS_A_MACHINE)


def _experiment(args: argparse.Namespace, jobs: Sequence[IsolatedJob]) -> harness.ExperimentResult:
    names = [n for n in SCHEDULERS if n in {*args.schedulers, REFERENCE}]
    tasks: list[Task] = [
        (arrivals, racks, name, *_settings(args))
        for arrivals in ARRIVALS
        for racks in sorted(set(args.racks))
        for name in names
    ]
    measured = collect(
        partial(_measure, jobs=jobs),
        tasks,
        min(args.workers, len(tasks)),
        args.out / "rows.jsonl" if args.out else None,
        "simulations",
    )
    found = {(str(t[0]), int(t[1]), str(t[2])): row for t, row in measured.items()}
    report = {
        "model": "isolated",
        "workload": args.trace or f"drawn: {len(jobs)} jobs, seed {args.seed}",
        "jobs": len(jobs),
        "rule": args.rule,
        "work": args.work,
        "lease_s": args.lease_h * 3600,
        "leases": args.leases,
        "history_leases": args.history,
        "restore_s": args.restore_s,
        "rows": [_row(key, row["figures"], found) for key, row in found.items()],
    }
    verdicts = Counter(p["verdict"] for r in report["rows"] for p in r["paper"].values())
    report["verdicts"] = {name: verdicts[name] for name in VERDICTS}
    return harness.ExperimentResult(report, lambda out: _write(out, found))


def _settings(args: argparse.Namespace) -> tuple[Any, ...]:
    """The options on which a row depends, as a part of its task."""
    source = "drawn" if args.trace is None else str(Path(args.trace).resolve())
    return (
        args.seed,
        args.rule,
        args.work,
        args.lease_h,
        args.history,
        args.restore_s,
        args.leases,
        source,
        args.jobs,
    )


def _measure(task: Task, jobs: Sequence[IsolatedJob]) -> Row:
    """One simulation: the figures of all jobs, and the completion time of each."""
    arrivals, racks, name, seed, rule, _, lease_h, history, restore_s, leases, *_ = task
    policy = scheduler_named(name, SchedulerOptions(lease_h * 3600, history, seed))
    work = at_once(jobs) if arrivals == "batch" else one_by_one(jobs, seed)
    settings = IsolatedSettings(lease_h * 3600, leases == LEASES[0], restore_s, rule)
    outcomes = list(simulate(_machines(racks), work, policy, settings).values())
    return {
        "figures": figures(outcomes),
        "jobs": [[o.name, o.completion, o.queued, o.communication, o.moves] for o in outcomes],
    }


def figures(outcomes: Sequence[IsolatedOutcome]) -> dict[str, float]:
    """The metrics of the paper's section V-D, in s, and how often jobs lost their GPUs or moved."""
    completion = np.array([o.completion for o in outcomes])
    queued = np.array([o.queued for o in outcomes])
    p95, p99 = np.percentile(completion, [95, 99])
    queued_p95, queued_p99 = np.percentile(queued, [95, 99])
    values = {
        "makespan": max(o.ended for o in outcomes) - min(o.arrived for o in outcomes),
        "jct_mean": completion.mean(),
        "jct_median": np.median(completion),
        "jct_p95": p95,
        "jct_p99": p99,
        "queued_mean": queued.mean(),
        "queued_p95": queued_p95,
        "queued_p99": queued_p99,
        "communication_mean": np.mean([o.communication for o in outcomes]),
        "moves": sum(o.moves for o in outcomes),
    }
    return {name: round(float(value), 1) for name, value in values.items()}


def _row(key: tuple[str, int, str], own: Row, found: dict[tuple[str, int, str], Row]) -> Row:
    """The figures of a simulation, their ratios to Tiresias, and the paper's ratios beside them."""
    arrivals, racks, name = key
    reference = found[arrivals, racks, REFERENCE]["figures"]
    ratios = {f: own[f] / reference[f] if reference[f] else None for f in own if f != "moves"}
    paper = {}
    if racks == RACKS and name != REFERENCE:
        for figure in FIGURES:
            published, ours = ratio(arrivals, name, figure), ratios[figure]
            if published is not None and ours is not None:
                paper[figure] = {
                    "ratio": round(published, 3),
                    "points": round(100 * (ours - published), 1),
                    "verdict": verdict(ours, published),
                }
    rounded = {f: None if v is None else round(v, 3) for f, v in ratios.items()}
    place = {"arrivals": arrivals, "racks": racks, "scheduler": name}
    return {**place, **own, "to_tiresias": rounded, "paper": paper}


def _write(out: Path, found: dict[tuple[str, int, str], Row]) -> list[str]:
    with (out / "jobs.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            ("arrivals", "racks", "scheduler", "job", "jct_s", "queued_s", "communication_s", "moves")
        )
        for key, row in found.items():
            table.writerows((*key, *job) for job in row["jobs"])
    return []


def to_text(report: harness.Report) -> str:
    """The tables: one for each kind of arrivals and number of racks, in millions of seconds."""
    lines = [
        f"workload: {report['workload']} ({report['jobs']} jobs)",
        "communication by the job's own placement alone, as in ArtISt-sim",
        f"rule {report['rule']}, work {report['work']}, lease {report['lease_s']:g} s ({report['leases']}), "
        f"history {report['history_leases']:g} leases, restore {report['restore_s']:g} s",
    ]
    rows = report["rows"]
    for arrivals, racks in dict.fromkeys((r["arrivals"], r["racks"]) for r in rows):
        lines += ["", f"{arrivals}, {racks} racks: 10^6 s, and the ratio to {REFERENCE}"]
        lines.append(
            f"  {'scheduler':20}{'makespan':>14}{'mean JCT':>14}{'median':>14}{'P95':>14}{'P99':>14}"
            f"{'queued':>14}{'commun.':>14}"
        )
        for row in rows:
            if (row["arrivals"], row["racks"]) == (arrivals, racks):
                names = ("makespan", *FIGURES, "queued_mean", "communication_mean")
                cells = "".join(f"{row[f] / 1e6:8.3f} {_ratio(row['to_tiresias'][f])}" for f in names)
                lines.append(f"  {row['scheduler']:20}{cells}")
                if row["paper"]:
                    lines.append(f"    {'paper':32}" + "".join(map(_beside, FIGURES, [row["paper"]] * 4)))
    verdicts = report["verdicts"]
    if sum(verdicts.values()):
        lines += [
            "",
            f"of {sum(verdicts.values())} ratios of Tables II and III: "
            + ", ".join(f"{count} {name}" for name, count in verdicts.items()),
            f"= reproduced: within {NEAR_POINTS:g} points of the paper's; < order only: the same side of "
            f"{REFERENCE}",
        ]
    return "\n".join(lines)


def _ratio(value: float | None) -> str:
    return "    -" if value is None else f"{value:5.2f}"


def _beside(figure: str, paper: dict[str, Any]) -> str:
    """The paper's ratio under ours, marked if ours is near it."""
    found = paper.get(figure)
    return " " * 14 if found is None else f"{found['ratio']:>13.2f}{_MARKS[found['verdict']]}"


def _words(numbers: Sequence[int]) -> str:
    return json.dumps(list(numbers)).strip("[]").replace(",", "")
