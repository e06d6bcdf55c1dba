# SPDX-License-Identifier: Apache-2.0
"""Workloads for `sim.isolated`: from a trace, or drawn with the statistics of the Dally paper's workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from controller.placement.latency import TABLE_I, ModelRow, table_row
from sim.cluster import JobRequest, WorkloadError
from sim.isolated import IsolatedJob
from sim.models import data_parallel

MEAN_GAP_S = 12_670.0
"""The mean time between two arrivals of the Dally paper's Poisson workload."""

_MIX = {
    "MobileNetV3": (25, {1: 17, 2: 2, 4: 15, 8: 52, 16: 26, 32: 10, 40: 1, 48: 1, 56: 1}, 63_000, 1.2),
    "BERT": (25, {1: 94, 2: 4, 4: 7, 8: 15, 16: 5}, 98_000, 0.8),
    "ResNet50": (25, {1: 67, 2: 7, 4: 16, 8: 27, 16: 7, 32: 1}, 75_000, 0.9),
    "AlexNet": (10.6, {1: 27, 4: 9, 8: 13, 16: 4}, 8_900, 0.15),
    "ResNet18": (7.6, {1: 35, 4: 3}, 9_200, 0.15),
    "VGG": (6.8, {1: 30, 4: 2, 8: 2}, 8_800, 0.15),
}
"""By model: its share in percent, the weights of its GPU demands, and the median and sigma of the log-normal
work in s. Fitted to the SenseTime jobs of the Dally paper."""


def isolated_jobs(requests: Sequence[JobRequest], *, each: bool) -> list[IsolatedJob]:
    """The jobs of a trace. The time without communication is iterations times compute.

    The readers divide a job's iterations by its GPUs. `each`: every GPU runs all of them instead.

    Raises:
        WorkloadError: a model that Table I of the Dally paper does not have.
    """
    jobs = []
    for request in requests:
        compute_s = request.shape.compute_ns / 1e9
        ideal = request.iterations * compute_s * (request.gpus if each else 1)
        known = _job(
            request.name, request.model, request.arrival_ns / 1e9, request.gpus, ideal, request.source
        )
        jobs.append(replace(known, compute_s=compute_s))
    return jobs


def drawn(count: int, seed: int, *, each: bool) -> list[IsolatedJob]:
    """`count` jobs with the statistics of the Dally paper's workload, with Poisson arrivals."""
    return [
        replace(_job(*drawn_job, ""), compute_s=data_parallel(drawn_job[1]).compute_ns / 1e9)
        for drawn_job in _draws(count, seed, each)
    ]


def drawn_requests(count: int, seed: int, *, each: bool) -> list[JobRequest]:
    """The jobs of `drawn` for the simulator of links. What they send and compute is that of `sim.models`."""
    requests = []
    for name, model, at, demand, ideal in _draws(count, seed, each):
        shape = data_parallel(model)
        iterations = max(1, round(ideal / (shape.compute_ns / 1e9)))
        requests.append(JobRequest(name, model, round(at * 1e9), demand, iterations, shape))
    return requests


def _draws(count: int, seed: int, each: bool) -> Iterator[tuple[str, str, float, int, float]]:
    """Name, model, arrival in s, GPUs, and running time without communication in s."""
    random = Random(f"{seed}/dally")
    at, models = 0.0, list(_MIX)
    for number in range(count):
        model = random.choices(models, [_MIX[m][0] for m in models])[0]
        _, demands, median, sigma = _MIX[model]
        demand = random.choices(list(demands), list(demands.values()))[0]
        work = median * random.lognormvariate(0.0, sigma)
        yield f"job-{number}", model, at, demand, work if each else work / demand
        at += random.expovariate(1 / MEAN_GAP_S)


def at_once(jobs: Sequence[IsolatedJob]) -> list[IsolatedJob]:
    """The jobs, all there at time 0."""
    return [replace(job, arrival_s=0.0) for job in jobs]


def one_by_one(jobs: Sequence[IsolatedJob], seed: int) -> list[IsolatedJob]:
    """The jobs with their own arrivals, or with Poisson arrivals if all come at once."""
    if len({job.arrival_s for job in jobs}) > 1:
        return list(jobs)
    random, at, moved = Random(f"{seed}/arrivals"), 0.0, []
    for job in jobs:
        moved.append(replace(job, arrival_s=at))
        at += random.expovariate(1 / MEAN_GAP_S)
    return moved


def _job(name: str, model: str, at: float, demand: int, ideal: float, source: str) -> IsolatedJob:
    row = _row(name, model, source)
    return IsolatedJob(name, at, demand, ideal, row.sensitivity, row.skewed, source=source)


def _row(name: str, model: str, source: str) -> ModelRow:
    row = table_row(model)
    if row is None:
        where = f"{source.partition(', column')[0]}, column model" if source else f"job {name}"
        raise WorkloadError(
            f"{where}: Table I of the Dally paper has no {model!r}; legal: {', '.join(TABLE_I)}"
        )
    return row
