# SPDX-License-Identifier: Apache-2.0
"""Iteration times, link loads and ECN marks of the last 24 hours, in buckets that grow with age.

Plain values in memory, bounded whatever happens; the coarsest buckets are also what the store keeps.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

S = 1_000_000_000
TIERS = ((S, 60), (10 * S, 60), (300 * S, 288))
"""The length of a bucket in ns and how many are kept, by tier: a minute, ten minutes, 24 hours. Chosen: the
load of 8,192 directions of links takes 17 MB."""
MOST_JOBS = 2_000
"""The most jobs in one bucket. Chosen; a bucket leaves out those that come later."""
NO_LOAD = 255
NO_MARKS = 65_535

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """Figures of all directions of links in one bucket, by number: load in per cent (mean, lowest, highest;
    NO_LOAD: not measured) and ECN marks per second (NO_MARKS: not measured)."""

    mean: Bytes
    low: Bytes
    high: Bytes
    marks: Words


@dataclass(frozen=True, slots=True)
class Bucket:
    """What was measured in [start_ns, start_ns + step_ns). `iterations` has by job the number of iterations
    that ended, and their mean, shortest and longest in ms."""

    start_ns: int
    step_ns: int
    iterations: Mapping[str, tuple[int, float, float, float]]
    links: LinkFigures | None


@dataclass(frozen=True, slots=True)
class StoredBucket:
    """A bucket as it is stored. `start_ns` is Unix time. `links` are the four columns of LinkFigures, one
    after the other, compressed; empty: none."""

    start_ns: int
    step_ns: int
    iterations: dict[str, tuple[int, float, float, float]]
    directions: int = 0
    links: bytes = b""


@dataclass(frozen=True, slots=True)
class Column:
    """One subject over some buckets; None: nothing was measured."""

    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


class _LinkSums:
    """Sums over the samples of one bucket, by direction."""

    def __init__(self, directions: int) -> None:
        self.count = np.zeros(directions, np.int32)
        self._total = np.zeros(directions)
        self._low = np.full(directions, np.inf)
        self._high = np.full(directions, -np.inf)
        self._marks = np.zeros(directions)
        self._marks_count = np.zeros(directions, np.int32)

    def add(self, load: Floats, marks: Floats) -> None:
        known, marked = ~np.isnan(load), ~np.isnan(marks)
        self.count += known
        self._total += np.where(known, load, 0.0)
        self._low = np.fmin(self._low, load)
        self._high = np.fmax(self._high, load)
        self._marks_count += marked
        self._marks += np.where(marked, marks, 0.0)

    def figures(self) -> LinkFigures:
        known = self.count > 0

        def per_cent(values: Floats) -> Bytes:
            shown = np.clip(np.rint(100 * np.where(known, values, 0.0)), 0, 100)
            return np.where(known, shown, NO_LOAD).astype(np.uint8)

        rate = np.minimum(np.rint(self._marks / np.maximum(self._marks_count, 1)), NO_MARKS - 1)
        marks = np.where(self._marks_count > 0, rate, NO_MARKS).astype(np.uint16)
        mean = self._total / np.maximum(self.count, 1)
        return LinkFigures(per_cent(mean), per_cent(self._low), per_cent(self._high), marks)


@dataclass(slots=True)
class _Open:
    """The bucket that is being filled."""

    start_ns: int
    step_ns: int
    iterations: dict[str, list[float]] = field(default_factory=dict)
    links: _LinkSums | None = None

    def add_iteration(self, job: str, ms: float) -> None:
        found = self.iterations.get(job)
        if found is None:
            if len(self.iterations) < MOST_JOBS:
                self.iterations[job] = [1, ms, ms, ms]
            return
        self.iterations[job] = [found[0] + 1, found[1] + ms, min(found[2], ms), max(found[3], ms)]

    def add_links(self, load: Floats, marks: Floats) -> None:
        if self.links is None or len(self.links.count) != len(load):
            self.links = _LinkSums(len(load))
        self.links.add(load, marks)

    def closed(self) -> Bucket:
        """The bucket as it is now."""
        iterations = {
            job: (int(n), total / n, low, high) for job, (n, total, low, high) in self.iterations.items()
        }
        links = None if self.links is None else self.links.figures()
        return Bucket(self.start_ns, self.step_ns, iterations, links)


class History:
    """The last 24 hours. Times are those of the controller's clock."""

    def __init__(self, tiers: Sequence[tuple[int, int]] = TIERS) -> None:
        self._tiers = [(step, deque[Bucket](maxlen=kept)) for step, kept in tiers]
        self._open: list[_Open | None] = [None] * len(tiers)
        self._finished: list[Bucket] = []
        self._first_ns: int | None = None

    def add_iteration(self, now_ns: int, job: str, ms: float) -> None:
        """An iteration of a job has ended."""
        for bucket in self._now(now_ns):
            bucket.add_iteration(job, ms)

    def add_links(self, now_ns: int, load: Floats, marks: Floats) -> None:
        """The counters were read: busy fraction (0 to 1) and ECN marks a second of each direction, by number;
        NaN: not measured."""
        for bucket in self._now(now_ns):
            bucket.add_links(load, marks)

    def _now(self, now_ns: int) -> Iterator[_Open]:
        """The open bucket of each tier; those that have ended are closed."""
        self.advance(now_ns)
        if self._first_ns is None:
            self._first_ns = now_ns
        for place, (step_ns, _) in enumerate(self._tiers):
            found = self._open[place]
            if found is None:
                found = self._open[place] = _Open(now_ns - now_ns % step_ns, step_ns)
            yield found

    def advance(self, now_ns: int) -> None:
        """Close the buckets that have ended by now."""
        for place, (step_ns, done) in enumerate(self._tiers):
            found = self._open[place]
            if found is not None and now_ns >= found.start_ns + step_ns:
                bucket = found.closed()
                done.append(bucket)
                self._open[place] = None
                if place == len(self._tiers) - 1:
                    self._finished.append(bucket)

    def take_finished(self) -> list[Bucket]:
        """The buckets of the coarsest tier that have ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def under_way(self) -> Bucket | None:
        """The open bucket of the coarsest tier as it is now."""
        found = self._open[-1]
        return None if found is None else found.closed()

    def restore(self, buckets: Iterable[Bucket]) -> None:
        """Take up buckets of an earlier controller, of the coarsest tier."""
        step_ns, done = self._tiers[-1]
        done.extend(sorted((b for b in buckets if b.step_ns == step_ns), key=lambda b: b.start_ns))
        self._first_ns = done[0].start_ns if done else self._first_ns

    def buckets(self, from_ns: int, to_ns: int) -> tuple[int, Sequence[Bucket]]:
        """The finest buckets that reach back to `from_ns`, or to the beginning of the history where that is
        later, and their length: those that touch the span. What no tier reaches, the coarsest one answers.
        """
        from_ns = max(from_ns, self._first_ns or 0)
        listed: list[Bucket] = []
        found_ns = 0
        for (step_ns, done), now in zip(self._tiers, self._open, strict=True):
            found_ns, listed = step_ns, [*done, *([now.closed()] if now is not None else [])]
            if listed and listed[0].start_ns <= from_ns:
                break
        return found_ns, [b for b in listed if b.start_ns + found_ns > from_ns and b.start_ns < to_ns]


def job_column(buckets: Sequence[Bucket], job: str) -> Column:
    """The iteration times of a job in ms."""
    found = [bucket.iterations.get(job) for bucket in buckets]
    return Column(*(tuple(None if f is None else f[k] for f in found) for k in (1, 2, 3)))


def link_column(buckets: Sequence[Bucket], direction: int, *, marks: bool) -> Column:
    """The load of a direction in per cent, or its ECN marks a second."""
    if marks:
        rate = tuple(_known(b.links.marks[direction], NO_MARKS) if b.links else None for b in buckets)
        nothing = (None,) * len(buckets)
        return Column(rate, nothing, nothing)
    return Column(
        tuple(_known(b.links.mean[direction], NO_LOAD) if b.links else None for b in buckets),
        tuple(_known(b.links.low[direction], NO_LOAD) if b.links else None for b in buckets),
        tuple(_known(b.links.high[direction], NO_LOAD) if b.links else None for b in buckets),
    )


def known_figures(values: NDArray[Any], unknown: int) -> tuple[float | None, ...]:
    """A column of LinkFigures; None: not measured."""
    return tuple(None if value == unknown else value for value in values.tolist())


def _known(value: np.integer[Any], unknown: int) -> float | None:
    return None if value == unknown else float(value)


def to_stored(bucket: Bucket, unix_minus_clock_ns: int) -> StoredBucket:
    """A bucket for the store."""
    links, directions = b"", 0
    if bucket.links is not None:
        found = bucket.links
        directions = len(found.mean)
        columns = (found.mean, found.low, found.high, found.marks.astype("<u2"))
        links = zlib.compress(b"".join(column.tobytes() for column in columns), 6)
    return StoredBucket(
        bucket.start_ns + unix_minus_clock_ns, bucket.step_ns, dict(bucket.iterations), directions, links
    )


def from_stored(stored: StoredBucket, unix_minus_clock_ns: int, directions: int) -> Bucket | None:
    """A stored bucket; without its links where the fabric has another number of directions. None: its length
    is not that of its columns."""
    links = None
    if stored.directions == directions and stored.links:
        try:
            data = zlib.decompressobj().decompress(stored.links, 5 * directions + 1)
        except zlib.error:
            return None
        if len(data) != 5 * directions:
            return None
        parts = [np.frombuffer(data, np.uint8, directions, k * directions) for k in range(3)]
        marks = np.frombuffer(data, "<u2", directions, 3 * directions).astype(np.uint16)
        links = LinkFigures(parts[0], parts[1], parts[2], marks)
    return Bucket(stored.start_ns - unix_minus_clock_ns, stored.step_ns, stored.iterations, links)
