# SPDX-License-Identifier: Apache-2.0
"""Read workloads by name or from a file. The columns of a file say which trace it is."""

from __future__ import annotations

import re
from pathlib import Path

from sim.cluster import Cluster, JobRequest, WorkloadError
from sim.generators import PlacedModel, batch, paper_jobs, poisson, snapshot
from sim.readers import (
    TraceError,
    read_lingjun_jobs,
    read_model_mix,
    read_philly,
    read_sensetime,
    read_snapshot,
)
from sim.readers.errors import header
from topo.graph import Topology

GENERATORS = ("poisson", "batch", "snapshot", "paper")

_DIGITS = re.compile("[0-9]{1,9}")


def read_trace(text: str, cluster: Cluster, seed: int, hours: float) -> list[JobRequest]:
    """The jobs of a trace file, or of a generator: `poisson:JOBS`, `batch:JOBS`, `snapshot:JOBS`, or the
    routing paper's `paper:BLOOM/8,GPT-3/4` (models and ring sizes). `hours` is the span of what is drawn.

    Raises:
        TraceError, WorkloadError: in words, with row and column where there are any.
    """
    kind, colon, rest = text.partition(":")
    if colon and kind in GENERATORS:
        return _generate(kind, rest, cluster, seed, hours)
    path = Path(text)
    if path.suffix == ".json":
        return read_sensetime(path)
    columns = header(path)
    if "num_gpu" in columns or "submit_time" in columns:
        return read_philly(path)
    if "gmt_job_running" in columns and "total_gpu" in columns:
        return read_snapshot(path)
    if "gmt_job_running" in columns:
        return read_lingjun_jobs(path, path.with_name("worker.csv"))
    if columns == ["model", "total_gpu"]:
        return read_model_mix(path, 100, seed, horizon_s=hours * 3600, hours=hours / 10)
    raise TraceError(
        f"{path}: row 1: of no known kind; known are Philly/Muri (job_id, num_gpu, submit_time, ...), "
        f"Lingjun's snapshot (job_id, model, gmt_job_running, total_gpu, ...), its job.csv with worker.csv, "
        f"its models (model, total_gpu), SenseTime's JSON, and {', '.join(g + ':...' for g in GENERATORS)}"
    )


def check_connected(topology: Topology) -> None:
    """Refuse a fabric whose parts cannot reach each other.

    Raises:
        WorkloadError: names two switches without a path between them.
    """
    leaves = list(dict.fromkeys(h.leaf for h in topology.hosts))
    apart = next((leaf for leaf in leaves if topology.part[leaf] != topology.part[leaves[0]]), None)
    if apart is not None:
        raise WorkloadError(f"{topology.name}: no way from {leaves[0]} to {apart}; add a link")


def _generate(kind: str, rest: str, cluster: Cluster, seed: int, hours: float) -> list[JobRequest]:
    if kind == "paper":
        return _paper(rest, cluster, seed)
    if not _DIGITS.fullmatch(rest) or not 1 <= int(rest) <= 1_000_000:
        raise WorkloadError(f"{kind}:{rest}: a number of jobs is needed; legal: 1 to 1000000")
    jobs = int(rest)
    if kind == "batch":
        return batch(jobs, seed, gpus=cluster.gpus, hours=hours)
    if kind == "snapshot":
        return snapshot(jobs, seed, gpus=cluster.gpus)
    return poisson(jobs, seed, gpus=cluster.gpus, horizon_s=hours * 3600)


def _paper(rest: str, cluster: Cluster, seed: int) -> list[JobRequest]:
    wanted: list[tuple[str, int]] = []
    for word in rest.split(","):
        name, _, ring = word.partition("/")
        if not _DIGITS.fullmatch(ring) or int(ring) < 2:
            raise WorkloadError(f"paper:{rest}: {word!r} is no MODEL/RING with a ring of 2 or more")
        wanted.append((name, int(ring)))
    try:
        placed = paper_jobs(cluster.network.topology, wanted, seed)
    except ValueError as error:
        raise WorkloadError(f"paper:{rest}: {error}") from None
    return [paper_request(job, iterations=10) for job in placed]


def paper_request(job: PlacedModel, iterations: int) -> JobRequest:
    """A placed job of the routing paper as a request; it starts computing when it arrives."""
    return JobRequest(
        name=job.name,
        model=job.model.name,
        arrival_ns=round(job.start_s * 1e9),
        gpus=len(job.ranks),
        iterations=iterations,
        shape=job.model.shape(job.ring),
        ranks=job.ranks,
    )
