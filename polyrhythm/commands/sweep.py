# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm sweep`: many simulations on the processors of this machine, or on a Dask cluster."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from controller.kernel import cold
from polyrhythm.folder_lock import alone_in
from polyrhythm.paper.harness import not_written
from polyrhythm.paper.processes import signal_handled
from polyrhythm.paper.resumable import LINES_S, Row, Task, append_row, kept, write_rows
from polyrhythm.progress import Bar
from polyrhythm.simulated_workload import SimulatedWorkload, load_workload
from polyrhythm.subcommands import integer
from polyrhythm.sweep.file import Sweep, load_sweep
from polyrhythm.sweep.on_dask import ClusterError, available, check_address, measure_all
from polyrhythm.sweep.point import COLUMNS, SOURCES, Point, inputs_digest, task_of
from polyrhythm.sweep.tables import SHOWN, over_seeds, write_results
from sim.cluster import check_lengths
from sim.kernels import SOURCES as KERNELS
from sim.output import parquet_available


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `polyrhythm sweep`."""
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, help="traces, topologies, policies, schedulers and seeds")
    add(
        "--cluster",
        metavar="ADDRESS",
        help="a Dask scheduler, such as tcp://scheduler:8786, whose workers have the same Polyrhythm "
        "(default: processes on this machine)",
    )
    add(
        "--workers",
        type=integer(1),
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes on this machine, without --cluster (default: one for each processor)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for points.parquet, jobs.parquet and rows.jsonl, from which a stopped sweep continues "
        "(default: FILE's name with .results, in the present folder)",
    )
    add("--fresh", action="store_true", help="ignore what rows.jsonl holds")
    add("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Simulate what has no row yet, and write the tables. Returns 1 if a simulation failed, if the disk is
    full, and without Dask or pyarrow; 2 for bad input. SIGTERM stops it as Ctrl-C does."""
    if not (available() and parquet_available()):
        print("sweep: needs Dask and pyarrow: pip install 'polyrhythm[sweep]'", file=sys.stderr)
        return 1
    out: Path = args.out or Path(f"{args.file.stem}.results")
    try:
        if args.cluster is not None:
            check_address(args.cluster)
        sweep = load_sweep(args.file)
        workloads = _workloads(sweep)
        try:
            out.mkdir(parents=True, exist_ok=True)
            with alone_in(out):
                rows, failed = _measured(args, sweep.points, workloads, out / "rows.jsonl")
                files = write_results(out, sweep.points, rows)
        except OSError as error:
            return not_written(error, out)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except ClusterError as error:
        print(f"--cluster: {error}", file=sys.stderr)
        return 1
    results = over_seeds(sweep.points, rows)
    report = {
        "points": len(sweep.points),
        "measured": len(rows),
        "failed": [{**_named(point), "reason": reason} for point, reason in failed.items()],
        "results": results,
        "files": [str(file) for file in files],
    }
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        Console(emoji=False).print(_table(results))
    for point, reason in failed.items():
        print(f"{_words(point)}: {reason}", file=sys.stderr)
    return 1 if failed else 0


def _workloads(sweep: Sweep) -> dict[tuple[str, str, int], SimulatedWorkload]:
    """The inputs of all points, read before the first simulation, so that a mistake is said at once."""
    found: dict[tuple[str, str, int], SimulatedWorkload] = {}
    for point in sweep.points:
        key = _inputs_of(point)
        if key not in found:
            topology = Path(point.topology_file) if point.topology_file else None
            found[key] = load_workload(point.trace_file, topology, sweep.options, point.seed)
            if not point.until_s:
                check_lengths(found[key].requests)
    return found


def _inputs_of(point: Point) -> tuple[str, str, int]:
    return point.trace_file, point.topology_file, point.seed


def _measured(
    args: argparse.Namespace,
    points: Sequence[Point],
    workloads: Mapping[tuple[str, str, int], SimulatedWorkload],
    path: Path,
) -> tuple[dict[Point, Row], dict[Point, str]]:
    """The rows by point, of which those of an earlier run are not measured again, and the reasons of the
    points that have none."""
    digests = {key: inputs_digest(workload) for key, workload in workloads.items()}
    task = {point: task_of(point, digests[_inputs_of(point)]) for point in points}
    tasks: list[Task] = list(task.values())
    stored = {} if args.fresh else kept(path, tasks, SOURCES)
    write_rows(path, tasks, stored, SOURCES)
    rows = {point: stored[task[point]] for point in points if task[point] in stored}
    todo = [point for point in points if point not in rows]
    failed: dict[Point, str] = {}
    if not todo:
        return rows, failed
    if args.cluster is None and cold(*KERNELS):
        print("compiling the kernels of the simulator (once for each version) ...", file=sys.stderr)
    with Bar("sweep", len(points), lines_s=LINES_S, unit="simulations") as bar:
        bar.step(len(rows))

        def done(number: int, found: Row | str) -> None:
            point = todo[number]
            if isinstance(found, str):
                failed[point] = found
            else:
                rows[point] = found
                append_row(path, task[point], found, SOURCES)
            bar.step(len(rows) + len(failed))

        def idle() -> None:
            print(f"--cluster: {args.cluster} has no worker; waiting for one ...", file=sys.stderr)

        try:
            # SIGTERM raises KeyboardInterrupt here, so that Dask's processes end in order.
            with signal_handled(signal.SIGTERM, signal.default_int_handler):
                measure_all(
                    todo,
                    {digests[_inputs_of(point)]: workloads[_inputs_of(point)] for point in todo},
                    [digests[_inputs_of(point)] for point in todo],
                    address=args.cluster,
                    workers=args.workers,
                    done=done,
                    idle=idle,
                )
        except OSError:
            # The command says what could not be written.
            raise
        except BaseException:
            if rows:
                print(
                    f"stopped after {len(rows)} of {len(points)} simulations; {path} has them; the same "
                    "command continues from there",
                    file=sys.stderr,
                )
            raise
    return rows, failed


def _named(point: Point) -> dict[str, Any]:
    return dict(zip(COLUMNS, point.columns, strict=True))


def _words(point: Point) -> str:
    return f"{_workload(point.trace, point.topology)}, {point.policy}, {point.scheduler}, seed {point.seed}"


def _workload(trace: str, topology: str) -> str:
    return f"{trace} on {topology}" if topology else trace


def _table(results: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        title="Mean over the seeds, and the least and the most of them where they differ",
        header_style="bold",
    )
    for heading in ("workload", "policy", "scheduler"):
        table.add_column(heading, overflow="fold")
    for heading in ("seeds", "mean s", "p99 s", "slow-down", "GPUs busy"):
        table.add_column(heading, justify="right", overflow="fold")
    forms = dict(zip(SHOWN, ("{:,.0f}", "{:,.0f}", "{:.3f}", "{:.1%}"), strict=True))
    for found in results:
        cells = [_workload(found["trace"], found["topology"])]
        cells += [str(found[name]) for name in ("policy", "scheduler", "seeds")]
        cells += [_cell(found[name], form) for name, form in forms.items()]
        table.add_row(*map(Text, cells))
    return table


def _cell(figures: Mapping[str, float] | None, form: str) -> str:
    if figures is None:
        return "-"
    mean, least, most = (form.format(figures[name]) for name in ("mean", "least", "most"))
    return mean if least == most else f"{mean} ({least} to {most})"
