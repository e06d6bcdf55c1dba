# SPDX-License-Identifier: Apache-2.0
"""The file of `polyrhythm route --jobs`: what jobs are, and the flows that follow from it on a fabric."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from controller.wire.traffic import TrafficError, flow_name, flows_of, spread
from controller.wire.traffic_config import TrafficConfig
from polyrhythm.scenario.patterns import nics_of
from polyrhythm_files import InvalidValueError, Loc, Section, convert, read_document
from topo.graph import Host, Topology

Name = Annotated[str, Meta(min_length=1, extra={"legal": "a name of printable characters"})]


class JobRow(Section, frozen=True, kw_only=True):
    """A job: what it is, and where its GPUs are."""

    name: Name
    gpus: Annotated[int, Meta(ge=1, le=1_000_000, description="of the whole job")]
    hosts: Annotated[
        tuple[Name, ...],
        Meta(
            min_length=1,
            max_length=65_536,
            description="in the order of the GPUs; a server with several NICs under its own name",
        ),
    ]
    traffic: TrafficConfig


class JobsFile(Section, frozen=True, kw_only=True):
    """Jobs as their collectives and parallelism describe them."""

    jobs: Annotated[tuple[JobRow, ...], Meta(min_length=1, max_length=10_000)]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for k, job in enumerate(self.jobs):
            if job.name in seen:
                raise InvalidValueError(
                    ("jobs", k, "name"), f"{job.name!r} is in the list twice; legal: once"
                )
            seen.add(job.name)
            if len(set(job.hosts)) < len(job.hosts):
                twice = next(h for i, h in enumerate(job.hosts) if h in job.hosts[:i])
                raise InvalidValueError(
                    ("jobs", k, "hosts"), f"{twice!r} is in the list twice; legal: each host once"
                )


@dataclass(frozen=True, slots=True)
class JobFlow:
    """A flow of a job between two NICs, with its bytes in an iteration."""

    name: str
    ends: tuple[Host, Host]
    bytes: int


def load_jobs(path: Path) -> JobsFile:
    """Read and check a file. Raises ConfigError."""
    return convert(read_document(path), JobsFile)


def load_job_flows(path: Path, topology: Topology, most: int) -> list[JobFlow]:
    """The flows of all jobs of a file on a fabric, in the order of the file.

    Raises:
        ConfigError: the file is not legal, a job does not fit the fabric, or there are more than `most`
            flows.
    """
    document = read_document(path)
    file = convert(document, JobsFile)
    found: list[JobFlow] = []
    with document.checks():
        for k, job in enumerate(file.jobs):
            found += _flows(job, topology, ("jobs", k))
            if len(found) > most:
                raise InvalidValueError(
                    ("jobs", k), f"more than {most:,} flows up to here; legal: fewer jobs"
                )
    return found


def _flows(job: JobRow, topology: Topology, loc: Loc) -> list[JobFlow]:
    servers = nics_of(job.hosts, topology, loc, servers=True)
    try:
        places = spread([(name, [n.name for n in nics]) for name, nics in servers], job.gpus)
    except TrafficError as error:
        raise InvalidValueError((*loc, "gpus"), str(error)) from None
    try:
        traffic = job.traffic.traffic(job.gpus)
        flows = flows_of(traffic, places)
    except InvalidValueError as error:
        raise InvalidValueError((*loc, "traffic", *error.loc), error.message) from None
    except TrafficError as error:
        raise InvalidValueError((*loc, "traffic"), str(error)) from None
    return [
        JobFlow(
            flow_name(job.name, f.src, f.dst, f.number),
            (topology.host[f.src], topology.host[f.dst]),
            f.iteration_bytes(traffic.exchanges),
        )
        for f in flows
    ]
