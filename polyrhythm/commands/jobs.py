# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm jobs`: declare, list, show and end jobs on a running controller."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from polyrhythm.rest_client import CallError, add_controller_options, call, call_pages, reported
from polyrhythm.tables import print_table
from polyrhythm_files import ConfigError, Document, Loc, read_document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `polyrhythm jobs`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    submit = actions.add_parser(
        "submit", help="declare the jobs of a file", description="Declare the jobs of a file."
    )
    submit.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="a job as POST /api/v1/jobs takes it, or a list `jobs` of them: YAML, JSON or TOML",
    )
    shown = actions.add_parser("list", help="list the jobs", description="List the jobs.")
    show = actions.add_parser(
        "show",
        help="show a job, its flows and why the plan decides so",
        description="Show a job, its flows and why the plan decides so.",
    )
    show.add_argument("name", metavar="JOB", help="name of a job")
    end = actions.add_parser("end", help="end jobs", description="End jobs.")
    end.add_argument("names", nargs="+", metavar="JOB", help="name of a job")
    for action in (submit, shown, show, end):
        action.add_argument("--json", action="store_true", help="print JSON")
        add_controller_options(action)


def run(args: argparse.Namespace) -> int:
    """Carry out the action. Returns 0, 1 if the controller cannot be reached, 2 if it refuses."""
    actions = {"submit": _submit, "list": _list, "show": _show, "end": _end}
    return reported(f"jobs {args.action}", lambda: actions[args.action](args))


def _submit(args: argparse.Namespace) -> None:
    made: list[Any] = []
    document, jobs = _jobs_of(args.file)
    for loc, job in jobs:
        try:
            made.append(call(args, "jobs", job, method="POST"))
        except CallError as error:
            raise _refused_job(document, loc, error, [job["name"] for job in made]) from None
    if args.json:
        print(json.dumps({"jobs": made}, indent=2))
        return
    for job in made:
        print(f"job {job['name']} is declared: {len(job['flows'])} flows on {len(job['hosts'])} hosts")


def _list(args: argparse.Namespace) -> None:
    found = call_pages(args, "jobs")
    if args.json:
        print(json.dumps(found, indent=2))
        return
    rows = []
    for job in found["jobs"]:
        level = "-" if job["level"] is None else str(job["level"])
        mean = "-" if job["mean_ms"] is None else f"{job['mean_ms']:.1f}"
        rows.append((job["name"], job["model"], str(job["gpus"]), level, str(job["iterations"]), mean))
    print_table(("job", "model", "gpus", "level", "iterations", "mean ms"), rows)


def _show(args: argparse.Namespace) -> None:
    job = call(args, f"jobs/{quote(args.name, safe='')}")
    if args.json:
        print(json.dumps(job, indent=2))
        return

    def known(value: Any, unit: str = "") -> str:
        return "-" if value is None else f"{value:.6g}{unit}"

    print_table(
        (job["name"], f"{job['model']}, {job['gpus']} GPUs"),
        [
            ("hosts", ", ".join(job["hosts"])),
            ("iterations", job["iterations"]),
            ("mean, p99", f"{known(job['mean_ms'])}, {known(job['p99_ms'])} ms"),
            ("level, DSCP", f"{known(job['level'])}, {known(job['dscp'])}"),
            ("time-shift", f"{known(job['shift_ms'])} of {known(job['period_ms'], ' ms')}"),
            ("why", job["left_out"] or job["why"] or "-"),
        ],
    )
    rows = [
        (
            flow["flow"],
            " > ".join(flow["path"]) if flow["path"] else "ECMP",
            "-" if flow["source_port"] is None else flow["source_port"],
            flow["fallback_reason"] or flow["why"],
        )
        for flow in job["flows"]
    ]
    print()
    print_table(("flow", "path", "port", "why"), rows, right=("port",))


def _end(args: argparse.Namespace) -> None:
    for name in args.names:
        call(args, f"jobs/{quote(name, safe='')}", method="DELETE")
        if not args.json:
            print(f"job {name} is ended")
    if args.json:
        print(json.dumps({"ended": args.names}))


def _jobs_of(path: Path) -> tuple[Document, list[tuple[Loc, Any]]]:
    """The file, and its jobs with their places in it."""
    try:
        document = read_document(path)
    except ConfigError as error:
        raise CallError(2, str(error)) from None
    value = document.value
    listed = isinstance(value, Mapping) and "jobs" in value
    jobs = value["jobs"] if listed else [value]
    if not isinstance(jobs, list) or not jobs or not all(isinstance(job, Mapping) for job in jobs):
        raise CallError(2, f"{path}: no job; legal: the keys of a job, or a list `jobs` of jobs")
    return document, [(("jobs", i) if listed else (), job) for i, job in enumerate(jobs)]


def _refused_job(document: Document, loc: Loc, error: CallError, made: Sequence[str]) -> CallError:
    """The error for a job of a file: where in the file, and which jobs are declared by now."""
    why = str(error)
    if error.faults:
        (place, what), more = error.faults[0], len(error.faults) - 1
        others = f", and {more} more {'fault' if more == 1 else 'faults'}" if more else ""
        why = f"{document.error((*loc, *place), what)}{others}"
    elif 400 <= error.status < 500:
        why = str(document.error(loc, why))
    declared = f"; declared before it: {', '.join(made)}" if made else ""
    return CallError(error.code, why + declared, error.status)
