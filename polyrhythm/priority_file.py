# SPDX-License-Identifier: Apache-2.0
"""The file of `polyrhythm priority`: links, and the jobs that share them with their bytes and compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from controller.priority.jobs import LinkJob
from polyrhythm_files import (
    InvalidValueError,
    Limits,
    Section,
    convert,
    finite,
    listed,
    read_document,
)

LIMITS = Limits(64 << 20, 20_000_000)
"""Chosen: as for `polyrhythm interleave`."""
_LARGE = 1e30
"""Bytes and flops (chosen: far beyond any job, and their products stay finite)."""


class RatedLink(Section, frozen=True, kw_only=True):
    """A link of the fabric."""

    gbps: Annotated[float, finite(1e-9, 1e9)]


class PriorityJob(Section, frozen=True, kw_only=True):
    """A job, as CRUX sees it."""

    name: Annotated[str, Meta(min_length=1, extra={"legal": "text of one character or more"})]
    gpus: Annotated[int, Meta(ge=1, le=10**7, description="of the whole job")]
    flops_per_iteration: Annotated[float, finite(0, _LARGE, what="of the whole job")]
    compute_ms: Annotated[float, finite(0, 1e12, what="compute time of an iteration")]
    overlap_start: Annotated[
        float, finite(0, 1, what="part of the compute time after which communication may start")
    ] = 1.0
    bytes: Annotated[
        Mapping[str, Annotated[float, finite(0, _LARGE)]],
        Meta(description="bytes of an iteration by the link's name; 0, or 1 and more"),
    ] = {}

    def __post_init__(self) -> None:
        for link, value in self.bytes.items():
            if 0 < value < 1:
                raise InvalidValueError(("bytes", link), f"{value:g} is wrong; legal: 0, or 1 to {_LARGE:g}")


class PriorityFile(Section, frozen=True, kw_only=True):
    """A file of links and jobs."""

    links: Annotated[Mapping[str, RatedLink], Meta(description="by name")]
    jobs: tuple[PriorityJob, ...]


@dataclass(frozen=True, slots=True)
class PriorityTask:
    """The jobs that are to be ordered, and each link's rate in bit/s."""

    jobs: tuple[LinkJob, ...]
    rate_bps: Mapping[str, float]


def load_priority_task(path: Path) -> PriorityTask:
    """Read and check a file. Raises ConfigError with file, line and path."""
    document = read_document(path, LIMITS)
    given = convert(document, PriorityFile)
    with document.checks():
        return _task(given)


def _task(given: PriorityFile) -> PriorityTask:
    rates = {name: 1e9 * link.gbps for name, link in given.links.items()}
    jobs: dict[str, LinkJob] = {}
    for i, job in enumerate(given.jobs):
        if job.name in jobs:
            raise InvalidValueError(
                ("jobs", i, "name"), f"there are two jobs {job.name!r:.60}; legal: a name of its own"
            )
        unknown = next((link for link in job.bytes if link not in rates), None)
        if unknown is not None:
            raise InvalidValueError(
                ("jobs", i, "bytes", unknown), f"no such link; legal: {listed(list(rates))}"
            )
        jobs[job.name] = LinkJob(
            name=job.name,
            gpus=job.gpus,
            work=job.flops_per_iteration,
            compute_s=job.compute_ms / 1e3,
            bytes_on=dict(job.bytes),
            overlap_start=job.overlap_start,
            distance=sum(v > 0 for v in job.bytes.values()),
        )
    return PriorityTask(tuple(jobs.values()), rates)
