# SPDX-License-Identifier: Apache-2.0
"""Many measurements shared by processes: shown as they come, kept in a file, gone on from after a stop."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from hashlib import sha256
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any

from polyrhythm.progress import Bar

LINES_S = 30.0
"""Where there is no terminal, a line says so often how far it is."""
_PROGRAM = ("controller", "polyrhythm/paper", "sim", "topo")

Task = tuple[Any, ...]
Row = dict[str, Any]


def mark() -> str:
    """What a row depends on besides its task: this program, byte by byte."""
    root, digest = Path(__file__).parents[2], sha256()
    for folder in _PROGRAM:
        for file in sorted((root / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def kept(path: Path | None, tasks: Sequence[Task]) -> dict[Task, Row]:
    """The rows of `tasks` that an earlier run of the same program left at `path`; a line that a kill cut off
    is passed over."""
    if path is None or not path.exists():
        return {}
    now, known = mark(), {json.dumps(task): task for task in tasks}
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
    """A row for each task, in the order of `tasks` whatever the workers; what `path` keeps is not measured
    again, and each new row is added to it at once.

    Ctrl-C ends the processes; the rows until then are in the file, and an error line says so.
    """
    found = kept(path, tasks)
    todo = [task for task in tasks if task not in found]
    if path is not None:
        now = mark()
        path.write_text("".join(_line(now, task, row) for task, row in found.items()), encoding="utf-8")
    others = set(active_children())
    with (
        Bar(title, len(tasks), lines_s=LINES_S, unit="instances") as bar,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_with_parent) as pool,
    ):
        bar.step(len(found))
        try:
            with _unheard():
                work = {pool.submit(measure, task): task for task in todo}
            for future in as_completed(work):
                task = work[future]
                found[task] = future.result()
                if path is not None:
                    with path.open("a", encoding="utf-8") as file:
                        file.write(_line(now, task, found[task]))
                bar.step(len(found))
        except BaseException:
            # Whatever went wrong: what is under way would be waited for.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()) - others:
                child.terminate()
            where = f"; {path} has them, and the same command goes on from there" if path else ""
            print(f"stopped after {len(found)} of {len(tasks)} instances{where}", file=sys.stderr)
            raise
    return {task: found[task] for task in tasks}


def _line(now: str, task: Task, row: Row) -> str:
    return json.dumps({"mark": now, "task": task, "row": row}) + "\n"


def _with_parent() -> None:
    """A process without its parent, which a kill has ended, ends too."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _unheard() -> Iterator[None]:
    """Processes that are started meanwhile do not hear a terminal's Ctrl-C: their parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
