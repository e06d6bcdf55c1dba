# SPDX-License-Identifier: Apache-2.0
"""Simulate moments in several processes, keep the results in a file, and continue from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from polyrhythm.paper.crux_trace_jobs import TraceSpec
from polyrhythm.paper.crux_trace_moment import POLICIES, Moment, measure
from polyrhythm.paper.resumable import mark as program_mark
from polyrhythm.progress import Bar
from sim.output import replace_file, versions

Key = tuple[str, int, str]
"""Fabric, number of the moment, and policy by its name in the report."""


def mark(spec: TraceSpec) -> str:
    """The digest of everything but the key that a result depends on."""
    files = [
        Path(f).read_bytes() if f and Path(f).is_file() else f.encode() for f in (spec.trace, spec.topology)
    ]
    on = [asdict(spec), versions(), program_mark(), [sha256(f).hexdigest() for f in files]]
    words = json.dumps(on, sort_keys=True)
    return sha256(words.encode()).hexdigest()


class Store:
    """The results by mark and key. With a path it also has the results of an earlier run."""

    def __init__(self, pool: ProcessPoolExecutor, path: Path | None) -> None:
        self._pool = pool
        self._path = path
        self._done: dict[tuple[str, Key], Moment] = {}
        if path is not None and path.exists():
            self._read(path)

    def moments(self, spec: TraceSpec, keys: Sequence[Key], what: str) -> Mapping[Key, Moment]:
        """The results of these keys; missing ones are simulated. `what` is shown with the progress."""
        digest = mark(spec)
        todo = [key for key in keys if (digest, key) not in self._done]
        work = {self._pool.submit(measure, spec, k[0], k[1], POLICIES[k[2]]): k for k in todo}
        with Bar(what, len(todo), unit="simulations") as bar:
            for done, future in enumerate(as_completed(work), 1):
                self._keep(digest, work[future], future.result())
                bar.step(done)
        return {key: self._done[digest, key] for key in keys}

    def _keep(self, digest: str, key: Key, moment: Moment) -> None:
        self._done[digest, key] = moment
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"mark": digest, "key": key, "moment": asdict(moment)}) + "\n")

    def _read(self, path: Path) -> None:
        """Read the file. Lines that are no results, for example one that a kill has left incomplete, are
        removed."""
        whole = []
        for line in path.read_bytes().splitlines():
            try:
                entry = json.loads(line)
                fabric, sample, policy = entry["key"]
                self._done[entry["mark"], (fabric, sample, policy)] = Moment(**entry["moment"])
            except (KeyError, TypeError, ValueError, RecursionError):
                continue
            whole.append(line + b"\n")
        # A kill or a full disk must leave the old file or the new one.
        replace_file(path, b"".join(whole))
