# SPDX-License-Identifier: Apache-2.0
"""A Slurm job, from the environment of PrologSlurmctld and EpilogSlurmctld.

https://slurm.schedmd.com/prolog_epilog.html has the variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyrhythm.integrations.description import DescriptionError, job_body
from topo.slurm import expanded

PREFIX = "slurm-"
"""Begins the name of every job that Slurm declares; its number follows."""
MARK = "polyrhythm:"
"""Begins a job's description in its comment (`sbatch --comment`), which may hold other things before it."""


def job_name(environment: Mapping[str, str]) -> str:
    """The name of the job. Raises DescriptionError outside of a prolog or epilog."""
    number = environment.get("SLURM_JOB_ID", "")
    if not number.isdecimal():
        raise DescriptionError(
            "SLURM_JOB_ID is not set; legal: a call from PrologSlurmctld or EpilogSlurmctld"
        )
    return f"{PREFIX}{number}"


def declared_job(environment: Mapping[str, str], gpus_per_node: int) -> dict[str, Any] | None:
    """The body that declares the job; None: it has one node. Raises DescriptionError."""
    name = job_name(environment)
    nodes = environment.get("SLURM_JOB_NODELIST", "")
    try:
        hosts = expanded(nodes) if nodes else []
    except ValueError as error:
        raise DescriptionError(f"SLURM_JOB_NODELIST: {error}") from None
    _, _, said = environment.get("SLURM_JOB_COMMENT", "").partition(MARK)
    return job_body(name, hosts, gpus_per_node * len(hosts), said, f"{name}: the comment after {MARK}")
