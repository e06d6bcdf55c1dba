# SPDX-License-Identifier: Apache-2.0
"""The file of `polyrhythm place`: a scenario, one of its jobs, and the hosts that this job could get."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from controller.model import Job
from controller.placement.candidates import MOST as MOST_OFFERED
from controller.placement.candidates import placements
from controller.planner.placement import MOST
from polyrhythm.scenario import Scenario, load_placements, load_scenario, scenario_path
from polyrhythm_files import (
    SUFFIXES,
    ConfigError,
    InvalidValueError,
    Section,
    convert,
    listed,
    read_document,
)

Name = Annotated[str, Meta(min_length=1, extra={"legal": "a name of printable characters"})]


class PlacementFile(Section, frozen=True, kw_only=True):
    """Candidate placements of a job of a scenario, whose other jobs run already."""

    scenario: Annotated[
        Name,
        Meta(
            description="file, from this file's folder, or the name of a scenario that comes with Polyrhythm"
        ),
    ]
    job: Annotated[Name, Meta(description="the job of the scenario that is to be placed")]
    candidates: Annotated[
        tuple[tuple[Name, ...], ...],
        Meta(
            max_length=MOST,
            description="lists of hosts, as many in each as the job has; none: up to "
            f"{MOST_OFFERED} that are made from the hosts that no other job uses",
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class PlacementTask:
    """What is to be ranked: the job once for each candidate, beside the other jobs of the scenario."""

    scenario: Scenario
    others: tuple[Job, ...]
    candidates: tuple[Job, ...]


def load_placement_task(path: Path) -> PlacementTask:
    """Read and check a file.

    Raises:
        ConfigError: the file, or the scenario that it names, cannot be read or is not legal.
    """
    document = read_document(path)
    config = convert(document, PlacementFile)
    with document.checks():
        scenario, jobs = _built(path, config)
    others = tuple(w.job for w in scenario.workloads if w.job.name != config.job)
    return PlacementTask(scenario, others, jobs)


def _built(path: Path, config: PlacementFile) -> tuple[Scenario, tuple[Job, ...]]:
    """The scenario, and the job for each candidate. Raises InvalidValueError."""
    named = Path(config.scenario)
    try:
        file = path.parent / named if named.suffix.lower() in SUFFIXES else scenario_path(config.scenario)
        candidates = config.candidates or _offered(load_scenario(file), config.job)
        return load_placements(file, config.job, candidates)
    except ConfigError as error:
        raise InvalidValueError(("scenario",), str(error)) from None


def _offered(scenario: Scenario, job: str) -> tuple[tuple[str, ...], ...]:
    """Candidates from the hosts that no other job uses. Raises InvalidValueError."""
    own = next((w.job for w in scenario.workloads if w.job.name == job), None)
    if own is None:
        legal = listed([w.job.name for w in scenario.workloads])
        raise InvalidValueError(("job",), f"{job!r} is no job of the scenario; legal: {legal}")
    busy = {h for w in scenario.workloads if w.job.name != job for h in w.job.hosts}
    free: dict[str, list[str]] = defaultdict(list)
    for host in scenario.topology.hosts:
        if host.name not in busy:
            free[host.leaf].append(host.name)
    found = placements(free, len(own.hosts))
    if not found:
        count = sum(map(len, free.values()))
        raise InvalidValueError(
            ("job",), f"job {job} needs {len(own.hosts)} hosts, and {count} are free; legal: another job"
        )
    return tuple(found)
