# SPDX-License-Identifier: Apache-2.0
"""Run many measurements in several processes; a file keeps the results, and a stopped run continues."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from polyrhythm.paper.processes import spawned_pool
from polyrhythm.progress import Bar
from sim.output import replace_file

LINES_S = 30.0
"""Without a terminal, a progress line is printed this often. Chosen."""
PROGRAM = ("controller", "polyrhythm/paper", "sim", "topo")
"""The folders of the sources on which the rows of a simulation depend."""

_SOURCES = (".py", ".json")
"""Programs, and what p4c makes of the P4 program."""

Task = tuple[Any, ...]
Row = dict[str, Any]


@cache
def mark(program: tuple[str, ...] = PROGRAM) -> str:
    """The digest of the sources in these files and folders. A row is valid only for the same program."""
    root, digest = Path(__file__).parents[2], sha256()
    for name in program:
        top = root / name
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if file.suffix in _SOURCES and file.is_file():
                digest.update(file.read_bytes())
    return digest.hexdigest()


def kept(path: Path | None, tasks: Sequence[Task], program: tuple[str, ...] = PROGRAM) -> dict[Task, Row]:
    """The rows of `tasks` that an earlier run of the same program has stored at `path`.

    Lines that are no rows, for example one that a kill has left incomplete, are ignored.
    """
    if path is None or not path.exists():
        return {}
    known = {json.dumps(task): task for task in tasks}
    found: dict[Task, Row] = {}
    for _, name, row in _stored(path, program):
        task = known.get(name)
        if task is not None:
            found[task] = row
    return found


def _stored(path: Path, program: tuple[str, ...]) -> Iterator[tuple[bytes, str, Row]]:
    """Each line of `path` that is a row of this program, its task as JSON, and the row."""
    now = mark(program)
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and entry.get("mark") == now and isinstance(entry.get("row"), dict):
            yield line, json.dumps(entry.get("task")), entry["row"]


def collect(
    measure: Callable[[Task], Row], tasks: Sequence[Task], workers: int, path: Path | None, title: str
) -> dict[Task, Row]:
    """Measure each task; returns its row by task, in the order of `tasks` whatever the number of workers.

    Tasks with a row in `path` are not measured again. Each new row is appended to `path` at once. Ctrl-C ends
    the processes; an error line says how many rows are in the file.
    """
    found = kept(path, tasks)
    todo = [task for task in tasks if task not in found]
    write_rows(path, tasks, found)
    with (
        Bar(title, len(tasks), lines_s=LINES_S, unit="instances") as bar,
        spawned_pool(workers) as pool,
    ):
        bar.step(len(found))
        try:
            work = {pool.submit(measure, task): task for task in todo}
            for future in as_completed(work):
                task = work[future]
                found[task] = future.result()
                append_row(path, task, found[task])
                bar.step(len(found))
        except BaseException as error:
            if isinstance(error, OSError):
                raise  # The command says what could not be written.
            where = f"; {path} has them; the same command continues from there" if path else ""
            print(f"stopped after {len(found)} of {len(tasks)} instances{where}", file=sys.stderr)
            raise
    return {task: found[task] for task in tasks}


def write_rows(
    path: Path | None, tasks: Sequence[Task], rows: Mapping[Task, Row], program: tuple[str, ...] = PROGRAM
) -> None:
    """Write `rows` to the file `path`, if there is one, in the order of `tasks`.

    Rows of the same program that the file has of other tasks stay, after them: they may be of another run
    with the same folder.
    """
    if path is not None:
        lines = [_line(program, task, rows[task]).encode() for task in tasks if task in rows]
        if path.exists():
            own = {json.dumps(task) for task in tasks}
            lines += [line + b"\n" for line, name, _ in _stored(path, program) if name not in own]
        # A kill must leave the old file or the new one.
        replace_file(path, b"".join(lines))


def append_row(path: Path | None, task: Task, row: Row, program: tuple[str, ...] = PROGRAM) -> None:
    """Append a row to the file `path`, if there is one."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(_line(program, task, row))


def _line(program: tuple[str, ...], task: Task, row: Row) -> str:
    return json.dumps({"mark": mark(program), "task": task, "row": row}) + "\n"
