# SPDX-License-Identifier: Apache-2.0
"""Run many measurements in several processes; a file keeps the results, and a stopped run continues."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from multiprocessing import active_children
from pathlib import Path
from typing import Any

from polyrhythm.paper.processes import spawned_pool
from polyrhythm.progress import Bar

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

    An incomplete line, which a kill can leave, is ignored.
    """
    if path is None or not path.exists():
        return {}
    now, known = mark(program), {json.dumps(task): task for task in tasks}
    found: dict[Task, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        task = known.get(json.dumps(entry["task"]))
        if entry["mark"] == now and task is not None:
            found[task] = entry["row"]
    return found


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
    others = set(active_children())
    with (
        Bar(title, len(tasks), lines_s=LINES_S, unit="instances") as bar,
        spawned_pool(workers) as pool,
    ):
        bar.step(len(found))
        try:
            with _ignored_interrupts():
                work = {pool.submit(measure, task): task for task in todo}
            for future in as_completed(work):
                task = work[future]
                found[task] = future.result()
                append_row(path, task, found[task])
                bar.step(len(found))
        except BaseException as error:
            # Without this, the pool would wait for the running tasks, whatever the error. A signal that
            # Python handles would too, where the system gives it to another thread than the main one.
            for child in set(active_children()) - others:
                child.kill()
            # The pool's thread ends here: Python 3.11 wakes one that is left over at its exit through a pipe
            # that the thread closes meanwhile, with a traceback, or it waits for ever.
            pool.shutdown(cancel_futures=True)
            if isinstance(error, OSError):
                raise  # The command says what could not be written.
            where = f"; {path} has them; the same command continues from there" if path else ""
            print(f"stopped after {len(found)} of {len(tasks)} instances{where}", file=sys.stderr)
            raise
    return {task: found[task] for task in tasks}


def write_rows(
    path: Path | None, tasks: Sequence[Task], rows: Mapping[Task, Row], program: tuple[str, ...] = PROGRAM
) -> None:
    """Write `rows` to the file `path`, if there is one, in the order of `tasks`."""
    if path is not None:
        lines = [_line(program, task, rows[task]) for task in tasks if task in rows]
        # A kill must leave the old file or the new one.
        new = path.with_name(f"{path.name}.new")
        new.write_text("".join(lines), encoding="utf-8")
        new.replace(path)


def append_row(path: Path | None, task: Task, row: Row, program: tuple[str, ...] = PROGRAM) -> None:
    """Append a row to the file `path`, if there is one."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(_line(program, task, row))


def _line(program: tuple[str, ...], task: Task, row: Row) -> str:
    return json.dumps({"mark": mark(program), "task": task, "row": row}) + "\n"


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Processes that start within this context ignore Ctrl-C of the terminal. Their parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
