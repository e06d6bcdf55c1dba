# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper battery`: random scenarios on packets under ECMP, three published policies and ours."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from polyrhythm.folder_lock import FolderInUseError, alone_in
from polyrhythm.paper.battery_generator import MOST_JOBS, BatteryScenario, draw
from polyrhythm.paper.battery_metrics import UNEQUAL, totals
from polyrhythm.paper.battery_rows import ALONE, DRAWS, ECMP, OURS, POLICIES, draw_names, scenario_row
from polyrhythm.paper.battery_sessions import (
    PROGRAM,
    SESSIONS,
    SessionRunner,
    Task,
    battery_jobs,
    scenario_text,
)
from polyrhythm.paper.charts import draw_cdf
from polyrhythm.paper.resumable import LINES_S, kept, write_rows
from polyrhythm.progress import Bar
from polyrhythm.subcommands import integer, unwritable

COUNT = 100
MOST_COUNT = 10_000
RIVALS = tuple(name for name in POLICIES if name != OURS)
"""The policies that ours is compared with, besides ECMP."""
_LOSERS = 1.5
"""The table names a job whose iteration is longer than this times its one under ECMP. Chosen: the floor."""
_MISJUDGED = 10.0
"""The table names a scenario whose expected GPU utilisation is off by more percent than this. Chosen: the
evaluator is to be no worse in any scenario."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm paper battery`."""
    add = parser.add_argument
    add(
        "--count",
        type=integer(1, MOST_COUNT),
        default=COUNT,
        metavar="N",
        help=f"number of scenarios, 1 to {MOST_COUNT} (default {COUNT})",
    )
    add(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="seed of the scenarios and of their sessions, 0 or more (default 1)",
    )
    add(
        "--only",
        type=integer(1, MOST_COUNT),
        metavar="N",
        help="run scenario N of the seed alone; its file, logs and report go to DIR/only-N (needs --out)",
    )
    add(
        "--most-jobs",
        type=integer(3, MOST_JOBS),
        default=MOST_JOBS,
        metavar="N",
        help=f"draw scenarios of at most N jobs, 3 to {MOST_JOBS} (default {MOST_JOBS}); they are other ones "
        "for each N",
    )
    add(
        "--policies",
        type=_rivals,
        default=RIVALS,
        metavar="NAMES",
        help=f"the policies to compare with, besides ECMP: a list of {', '.join(RIVALS)}, or none "
        "(default: all of them)",
    )
    add(
        "--draws",
        type=integer(1, DRAWS),
        default=DRAWS,
        metavar="N",
        help="sessions under ECMP and under the default policy, each with other start offsets, source "
        f"ports, marks and jitter, 1 to {DRAWS} (default {DRAWS})",
    )
    add(
        "--jobs",
        type=integer(1, 1024),
        default=2,
        metavar="N",
        help="number of sessions that run at once, 1 to 1024 (default 2)",
    )
    add(
        "--out",
        metavar="DIR",
        type=Path,
        help="folder for report.json, the scenarios, the figures, and what each finished session recorded; a "
        "stopped run continues from it",
    )
    add("--json", action="store_true", help="print JSON")


def _rivals(text: str) -> tuple[str, ...]:
    names = () if text == "none" else tuple(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in RIVALS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}; legal: {', '.join(RIVALS)}, or none")
    return tuple(name for name in RIVALS if name in names)


def _session_names(args: argparse.Namespace) -> list[str]:
    """The sessions of each scenario, in the order of SESSIONS."""
    names = (ECMP, *args.policies, OURS)
    wanted = {ALONE, *(session for name in names for session in draw_names(name, args.draws))}
    return [name for name in SESSIONS if name in wanted]


def run(args: argparse.Namespace) -> int:
    """Run the missing sessions, write and print.

    Returns 1 if a session could not be run, 2 for bad options, 130 if stopped by SIGTERM.
    """
    if args.only is not None and args.out is None:
        print("--only: needs --out, the folder for the scenario and its logs", file=sys.stderr)
        return 2
    if args.out is None:
        return _battery(args, None)
    out = args.out if args.only is None else args.out / f"only-{args.only}"
    with ExitStack() as stack:
        try:
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(alone_in(out))
        except OSError as error:
            print(unwritable(error), file=sys.stderr)
            return 2
        except FolderInUseError as error:
            print(error, file=sys.stderr)
            return 2
        return _battery(args, out)


def _battery(args: argparse.Namespace, out: Path | None) -> int:
    numbers = [args.only] if args.only is not None else list(range(1, args.count + 1))
    scenarios = [draw(args.seed, number, args.most_jobs) for number in numbers]
    path = out / f"sessions-{args.seed}-{args.most_jobs}.jsonl" if out else None
    with tempfile.TemporaryDirectory(prefix="polyrhythm-") as temporary:
        # Logs are kept for a scenario that is run alone; those of a whole battery would fill the disk.
        folder = out if out is not None and args.only is not None else Path(temporary)
        try:
            runner = _sessions(args, scenarios, folder, path)
            report = _report(args, scenarios, runner, Path(temporary))
            if out is not None:
                write_rows(path, _tasks(args, MOST_COUNT), runner.rows, PROGRAM)
                _write(out, scenarios, report)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            print(f"polyrhythm paper battery: {place}{error.strerror or error}", file=sys.stderr)
            return 1
        except asyncio.CancelledError:
            return 130
    for failure in report["failed"]:
        print(f"{failure['scenario']}, session {failure['session']}: {failure['error']}", file=sys.stderr)
    print(json.dumps(report, indent=2) if args.json else to_text(report))
    return 1 if report["failed"] else 0


def _tasks(args: argparse.Namespace, count: int) -> list[Task]:
    return [(args.seed, args.most_jobs, n, name) for n in range(1, count + 1) for name in SESSIONS]


def _sessions(
    args: argparse.Namespace, scenarios: Sequence[BatteryScenario], folder: Path, path: Path | None
) -> SessionRunner:
    """Run the missing sessions; the result holds the rows of all."""
    # Rows of scenarios beyond --count stay in the file.
    every = _tasks(args, MOST_COUNT)
    rows: dict[Task, dict[str, Any]] = {}
    for task, row in kept(path, every, PROGRAM).items():
        rows[task[0], task[1], task[2], task[3]] = row
    write_rows(path, every, rows, PROGRAM)
    names = _session_names(args)
    wanted = [(args.seed, args.most_jobs, s.number, name) for s in scenarios for name in names]
    total = len(wanted)
    with Bar("battery", total, lines_s=LINES_S, unit="sessions") as bar:

        def finished() -> None:
            bar.step(sum(task in rows for task in wanted))

        finished()
        runner = SessionRunner(args.seed, args.most_jobs, args.jobs, folder, path, rows, finished, names)
        try:
            asyncio.run(_until_terminated(runner, scenarios))
        except (KeyboardInterrupt, asyncio.CancelledError, OSError):
            done = sum(task in rows for task in wanted)
            where = f"; {path} has them; the same command continues from there" if path else ""
            print(f"stopped after {done} of {total} sessions{where}", file=sys.stderr)
            raise
    return runner


async def _until_terminated(runner: SessionRunner, scenarios: Sequence[BatteryScenario]) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await runner.run(scenarios)


def _report(
    args: argparse.Namespace, scenarios: Sequence[BatteryScenario], runner: SessionRunner, folder: Path
) -> dict[str, Any]:
    """The report of the scenarios all of whose sessions were finished."""
    rows, place = [], {scenario.name: i for i, scenario in enumerate(scenarios)}
    runner.failed.sort(key=lambda failure: (place[failure.scenario], failure.session))
    for scenario in scenarios:
        sessions = {name: runner.rows.get(runner.task(scenario, name)) for name in runner.sessions}
        recorded = {name: row for name, row in sessions.items() if row is not None}
        if len(recorded) == len(sessions):
            rows.append(scenario_row(scenario, battery_jobs(scenario, folder), recorded))
    return {
        "seed": args.seed,
        "most_jobs": args.most_jobs,
        **totals(rows, OURS),
        "failed": [asdict(failure) for failure in runner.failed],
        "rows": rows,
    }


def _write(out: Path, scenarios: Sequence[BatteryScenario], report: dict[str, Any]) -> None:
    """Write the scenarios, the figures and report.json."""
    folder = out / "scenarios"
    folder.mkdir(exist_ok=True)
    for scenario in scenarios:
        (folder / f"{scenario.name}.json").write_text(scenario_text(scenario), encoding="utf-8")
    report["figures"] = []
    for name, (title, axis, curves) in _curves(report["rows"]).items():
        if all(curves.values()):
            (out / name).write_text(draw_cdf(title, axis, curves), encoding="utf-8")
            report["figures"].append(name)
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str, dict[str, list[float]]]]:
    """The figures: file name -> title, axis, and the values of each curve."""
    used = [row["gpu_utilisation"] for row in rows]
    policies = _policies(rows)
    errors = [abs(row["judge"]["error_pct"]) for row in rows if row["judge"]["error_pct"] is not None]
    return {
        "utilisation.svg": (
            "GPU utilisation of the scenarios",
            "% of the utilisation alone",
            {name: [100 * u[name] / u[ALONE] for u in used] for name in (ECMP, *policies)},
        ),
        "gain.svg": (
            "GPU utilisation over ECMP's",
            "% of ECMP's mean",
            {name: [100 + row["gain_pct"][name] for row in rows] for name in policies},
        ),
        "worst-job.svg": (
            "The worst job of each scenario",
            "mean iteration over that under ECMP",
            {name: [row["worst_ratio"][name] for row in rows] for name in policies},
        ),
        "judge.svg": ("The planner's judge against packets", "error of GPU utilisation [%]", {OURS: errors}),
    }


def _policies(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The policies of which the rows tell, in the order of POLICIES."""
    return [name for name in POLICIES if not rows or name in rows[0]["gain_pct"]]


def to_text(report: Mapping[str, Any]) -> str:
    """The report as text: a line for each scenario, who loses, and the totals."""
    head = f"{'scenario':>8} {'kind':12} {'jobs':>4} {'alone %':>8} {'ECMP %':>7}"
    policies = _policies(report["rows"])
    lines = [
        f"battery of seed {report['seed']}: GPU utilisation alone and under ECMP, gain over ECMP in %, and "
        f"the worst job's iteration over its one under ECMP; means of the draws of ECMP and {OURS}",
        head + "".join(f" {name + ' %':>13}" for name in policies) + f" {'worst job':>10}  {'judge %':>7}",
    ]
    for row in report["rows"]:
        used, error = row["gpu_utilisation"], row["judge"]["error_pct"]
        lines.append(
            f"{row['number']:>8} {row['kind']:12} {row['jobs']:>4} {100 * used[ALONE]:>8.1f} "
            f"{100 * used[ECMP]:>7.1f}"
            + "".join(f" {row['gain_pct'][name]:>+13.1f}" for name in policies)
            + f" {row['worst_job']['ratio']:>10.2f}  {'-' if error is None else f'{error:+.1f}':>7}"
        )
    if len(report["rows"]) == 1:
        lines += _jobs(report["rows"][0])
    lines += _losers(report["rows"])
    lines += [f"{key}: {_shown(report[key])}" for key in _TOTALS]
    return "\n".join(lines)


def _jobs(row: Mapping[str, Any]) -> list[str]:
    """A line for each job and span of a scenario, with its mean iterations."""
    lines = ["", f"{'job':>8} {'span':>4} {'alone ms':>9} {'ECMP ms':>9}"]
    policies = _policies([row])
    lines[-1] += "".join(f" {name + ' ms':>14}" for name in policies) + f" {'expected ms':>12}"
    for job, means in row["mean_iteration_ms"].items():
        for span, ecmp in enumerate(means[ECMP]):
            if ecmp is not None:
                each = "".join(f" {means[name][span]:>14.1f}" for name in policies)
                last = means["expected"] if span + 1 == row["spans"] else None
                each += f" {'-' if last is None else f'{last:.1f}':>12}"
                lines.append(f"{job:>8} {span + 1:>4} {means[ALONE]:>9.1f} {ecmp:>9.1f}{each}")
    return [*lines, ""]


def _losers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for row in rows:
        used = row["gpu_utilisation"]
        if row["worse_than_ecmp"]:
            lines.append(
                f"{row['name']}: WORSE than ECMP: GPU utilisation {100 * used[OURS]:.1f} % after "
                f"{100 * used[ECMP]:.1f} +- {100 * row['ecmp_interval']:.1f} %"
            )
        if row["worse_than_best"]:
            best = max((name for name in used if name not in (ALONE, OURS)), key=lambda name: used[name])
            slowest = row["worst_ratio"].get(best)
            lines.append(
                f"{row['name']}: below {best}: {100 * used[OURS]:.1f} against {100 * used[best]:.1f} %"
                + (
                    ""
                    if slowest is None
                    else f"; its worst job takes {slowest:.2f} times its iteration under ECMP"
                )
            )
        judge = row["judge"]
        if judge["error_pct"] is not None and abs(judge["error_pct"]) > _MISJUDGED:
            lines.append(
                f"{row['name']}: the plan expects a GPU utilisation of {100 * judge['expected']:.1f} %, "
                f"measured {100 * judge['measured']:.1f} +- {100 * judge['interval']:.1f} %"
            )
        if row["worst_job"]["ratio"] > _LOSERS:
            lines.append(
                f"{row['name']}: {row['worst_job']['job']} takes {row['worst_job']['ratio']:.2f} times its "
                "iteration under ECMP"
            )
        lines += [
            f"{row['name']}: {t['slower']} takes {t['ratio']:.2f} times the iteration of its twin "
            f"{t['faster']} (legal: {UNEQUAL:g}{'' if t['unequal'] else '; within what chance explains'})"
            for t in row["twins_apart"]
        ]
        if not row["deterministic"]:
            lines.append(f"{row['name']}: its figures depend on the speed of this machine (see its notes)")
    return lines


_TOTALS = (
    "scenarios",
    "lossy_scenarios_pct",
    "utilisation_gain_mean",
    "utilisation_worse",
    "worse_than_best",
    "worse_than_best_in_floor",
    "worst_job_ratio",
    "unequal_twins",
    "twins_apart",
    "judge_error_mean_pct",
    "judge_error_worst_pct",
)


def _shown(value: float | None) -> str:
    return "not known" if value is None else f"{value:.4g}"
