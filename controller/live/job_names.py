# SPDX-License-Identifier: Apache-2.0
"""Names of jobs: several jobs on different hosts may announce themselves under one name.

The first of them goes by that name. Each further one goes by NAME@HOST, where HOST is its first host, or by
NAME@HOST.2 and so on. Agents never see the longer name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from controller.model.job import Job
from controller.wire.job_name import job_name_fault, of_host


def candidate_names(job: Job) -> Iterator[str]:
    """The names that a job may go by, in order; `job` has the name that its agents use."""
    yield job.name
    longer = f"{job.name}@{job.hosts[0]}"
    yield longer
    yield from (f"{longer}.{n}" for n in count(2))


def announced_name(job: Job) -> str:
    """The name that the agents of a job use."""
    return of_host(job.hosts[0]).sub("", job.name)


def name_fault(job: Job) -> str:
    """Why the name that an agent announces is illegal; empty: it is legal."""
    return job_name_fault(job.name, job.hosts)


def renamed(job: Job, name: str) -> Job:
    """A job, and its flows, under another name."""
    if name == job.name:
        return job
    flows = tuple(replace(f, name=renamed_flow(f.name, job.name, name), job=name) for f in job.flows)
    return replace(job, name=name, flows=flows)


def renamed_flow(flow: str, job: str, name: str) -> str:
    """The name of a flow of `job` when the job goes by `name`."""
    return name + flow.removeprefix(job)
