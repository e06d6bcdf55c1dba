# SPDX-License-Identifier: Apache-2.0
"""The file of `polyrhythm interleave`: links, and the jobs that share them with their Up phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from controller.interleave.angles import angle_count
from controller.interleave.circle import SharedLink
from controller.model import Phase
from polyrhythm_files import (
    InvalidValueError,
    Limits,
    Loc,
    Section,
    convert,
    finite,
    listed,
    read_document,
)

LIMITS = Limits(64 << 20, 20_000_000)
"""Chosen: 100,000 phases of each of 10 jobs."""
MAX_MS = 1e9
"""Of a period (chosen: eleven days)."""
MAX_GBPS = 1e6
MAX_PHASES = 100_000

Name = Annotated[str, Meta(min_length=1, extra={"legal": "a name of printable characters"})]


class PhaseRow(Section, frozen=True, kw_only=True):
    """An Up phase. A phase over the period's end is written as two."""

    start_ms: Annotated[float, finite(0, MAX_MS, what="from the start of the period")]
    end_ms: Annotated[float, finite(0, MAX_MS, what="from the start of the period")]
    gbps: Annotated[float, finite(0, MAX_GBPS, what="rate at which the job sends on each of its links")]


class TimedJob(Section, frozen=True, kw_only=True):
    """A job with its period and its Up phases."""

    name: Name
    period_ms: Annotated[float, finite(0.001, MAX_MS)]
    phases: Annotated[tuple[PhaseRow, ...], Meta(max_length=MAX_PHASES)]


class TimedLink(Section, frozen=True, kw_only=True):
    """A link and the names of the jobs that share it."""

    name: Name
    gbps: Annotated[float, finite(1e-6, MAX_GBPS)]
    jobs: tuple[Name, ...]


class InterleaveFile(Section, frozen=True, kw_only=True):
    """A file of links and jobs."""

    links: tuple[TimedLink, ...]
    jobs: tuple[TimedJob, ...]
    step_deg: Annotated[float, finite(0.01, 360, what="angle step of the search; it divides 360")] = 5.0


@dataclass(frozen=True, slots=True)
class InterleaveTask:
    """What is to be interleaved.

    Each of the `links` has (its name, "") as its name. `periods` are in ns, by job, in the order of the file.
    """

    links: tuple[SharedLink, ...]
    periods: Mapping[str, int]
    step_deg: float


def load_interleave_task(path: Path) -> InterleaveTask:
    """Read and check a file. Raises ConfigError with file, line and path."""
    document = read_document(path, LIMITS)
    given = convert(document, InterleaveFile)
    with document.checks():
        return _task(given)


def _task(given: InterleaveFile) -> InterleaveTask:
    try:
        angle_count(given.step_deg)
    except ValueError as error:
        raise InvalidValueError(("step_deg",), str(error)) from None
    periods: dict[str, int] = {}
    phases: dict[str, tuple[Phase, ...]] = {}
    for i, job in enumerate(given.jobs):
        _check_name(job.name, ("jobs", i, "name"), periods)
        periods[job.name] = round(job.period_ms * 1e6)
        phases[job.name] = _phases(job, ("jobs", i, "phases"))
    links: dict[str, SharedLink] = {}
    for i, link in enumerate(given.links):
        _check_name(link.name, ("links", i, "name"), links)
        demands: dict[str, tuple[Phase, ...]] = {}
        for k, name in enumerate(link.jobs):
            loc: Loc = ("links", i, "jobs", k)
            _check_name(name, loc, demands)
            if name not in phases:
                raise InvalidValueError(loc, f"no job {name!r}; legal: {listed(list(phases))}")
            demands[name] = phases[name]
        links[link.name] = SharedLink((link.name, ""), round(link.gbps * 1e9), demands)
    return InterleaveTask(tuple(links.values()), periods, given.step_deg)


def _check_name(name: str, loc: Loc, taken: Mapping[str, object]) -> None:
    if not name.isprintable():
        raise InvalidValueError(loc, f"{name!r:.60} is wrong; legal: a name of printable characters")
    if name in taken:
        raise InvalidValueError(loc, f"{name!r:.60} is there twice; legal: each name once")


def _phases(job: TimedJob, loc: Loc) -> tuple[Phase, ...]:
    found = []
    for i, phase in enumerate(job.phases):
        for key, value in (("start_ms", phase.start_ms), ("end_ms", phase.end_ms)):
            if value > job.period_ms:
                raise InvalidValueError(
                    (*loc, i, key), f"{value:g} is past the period; legal: 0 to {job.period_ms:g}"
                )
        if phase.end_ms < phase.start_ms:
            raise InvalidValueError(
                (*loc, i, "end_ms"),
                f"{phase.end_ms:g} is before start_ms; legal: {phase.start_ms:g} to {job.period_ms:g} "
                "(write a phase over the period's end as two)",
            )
        found.append((round(phase.start_ms * 1e6), round(phase.end_ms * 1e6), round(phase.gbps * 1e9), i))
    # An empty half-open phase sends nothing, so it needs no room.
    found = sorted(phase for phase in found if phase[0] < phase[1] and phase[2])
    for before, after in pairwise(found):
        if after[0] < before[1]:
            raise InvalidValueError(
                (*loc, after[3], "start_ms"),
                f"{after[0] / 1e6:g} is inside phases[{before[3]}]; legal: {before[1] / 1e6:g} or more "
                "(phases of a job must not overlap)",
            )
    return tuple(Phase(start, end, rate) for start, end, rate, _ in found)
