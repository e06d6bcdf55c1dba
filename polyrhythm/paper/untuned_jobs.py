# SPDX-License-Identifier: Apache-2.0
"""Workloads on which no policy was tuned: jobs of published traces, brought to a load on one cluster.

The traces are files that the user has. Where a file is missing, jobs are generated with the statistics of
that file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random

from sim.cluster import Cluster, JobRequest, check, machines, ranks_of
from sim.models import data_parallel, model_named
from sim.network import Network
from sim.shape import Shape, program
from sim.uncontended import uncontended
from sim.units import PS_PER_NS
from sim.workload import check_connected, read_trace
from topo.files import load_topology
from topo.generate import leaf_spine
from topo.graph import Topology

GPUS_A_HOST = 8
JOBS_A_GPU = 4.0
"""Each GPU runs about so many jobs, one after another, so that the cluster is not filled only once.
Chosen."""
HORIZON_S = 300.0
"""The jobs arrive within this time. Lengths are scaled to it: their ratios and the load count. Chosen."""
_LONGEST = 1 / 3
"""No job is longer than this part of the horizon, or it would dominate the result (as in `crux-trace`)."""
_ROUNDS = 60
_LEAST_FACTOR = 1e-15
_ANY_NS = 10**12
_HOURS = 24.0


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """What a generator of jobs takes from a published file: how often each number of GPUs and each model
    occurs, and the standard deviation of the logarithm of the lengths. GPUs and models are drawn apart."""

    source: str
    gpus: tuple[tuple[int, int], ...]
    models: tuple[tuple[str, int], ...]
    sigma: float


STATISTICS: Mapping[str, TraceStatistics] = {
    "lingjun": TraceStatistics(
        "jobs_real_models.csv of Lingjun (774 jobs with GPUs; lengths of its snapshot of 39 jobs)",
        (
            (1, 72), (2, 34), (4, 88), (6, 21), (8, 186), (16, 44), (24, 21), (32, 147), (48, 76), (64, 16),
            (72, 21), (128, 3), (256, 31), (400, 14),
        ),
        (
            ("llama", 266), ("gpt-13b", 238), ("resnet", 118), ("gpt-3b", 98), ("gpt-7b", 83), ("65b", 57),
            ("gpt", 46), ("mnist", 39), ("llama_30b", 32), ("dlm", 30), ("word_embedding", 22), ("66b", 6),
        ),
        2.2,
    ),
    "muri": TraceStatistics(
        "trace2.csv of Muri (5,755 jobs)",
        ((1, 2335), (2, 171), (4, 937), (8, 1825), (16, 424), (32, 63)),
        (
            ("vgg16", 756), ("dqn", 755), ("vgg19", 751), ("gpt2", 742), ("bert", 702), ("resnet18", 696),
            ("a2c", 679), ("shufflenet_v2_x1_0", 674),
        ),
        2.6,
    ),
    "sensetime": TraceStatistics(
        "the 500 jobs of SenseTime in the Dally evaluation",
        ((1, 270), (2, 13), (4, 52), (8, 109), (16, 42), (32, 11), (48, 3)),
        (
            ("mobilenetv3", 125), ("bert", 125), ("resnet50", 125), ("alexnet", 53), ("resnet18", 38),
            ("vgg", 34),
        ),
        2.0,
    ),
}  # fmt: skip
"""By name of the data set; counted in the files."""


@dataclass(frozen=True, slots=True)
class UntunedSpec:
    """Where the jobs come from, and how they are scaled. `trace` is a file, or a name in STATISTICS;
    `topology`
    is a file, or a name in FABRICS. `load` is the part of the GPUs that the jobs would
    keep busy if no job disturbed another. `digest` is that of the files."""

    trace: str
    topology: str
    load: float
    seed: int
    jobs_a_gpu: float
    digest: str


@dataclass(frozen=True)
class UntunedWorkload:
    """The jobs, and the load that they really are: below the one asked for if even the longest legal jobs
    do not reach it."""

    requests: tuple[JobRequest, ...]
    load: float


def digest_of(*files: str) -> str:
    """The digest of the files; a word that is no file counts as itself."""
    words = [Path(f).read_bytes() if Path(f).is_file() else f.encode() for f in files]
    return sha256(b"".join(sha256(w).digest() for w in words)).hexdigest()[:16]


FABRICS: Mapping[str, tuple[int, int, int]] = {"2-racks": (2, 2, 4), "8-racks": (8, 4, 8)}
"""Racks, spines and hosts a rack, with 100 Gbit/s everywhere: 2:1 oversubscribed, as CASSINI's testbed. The
last has the racks and hosts of Dally's evaluation. Ascending. Not tuned."""


def fabric(topology: str) -> Topology:
    """One of FABRICS, or the fabric of a file.

    Raises:
        ConfigError: the file describes no fabric.
    """
    if topology not in FABRICS:
        return load_topology(Path(topology))
    racks, spines, hosts = FABRICS[topology]
    return leaf_spine(racks, spines, hosts, host_bps=10**11, fabric_bps=10**11, name=topology)


@cache
def cluster(topology: str) -> Cluster:
    """Hosts with 8 GPUs each on one of FABRICS, or on the fabric of a file.

    Raises:
        ConfigError, WorkloadError: the file describes no fabric, or one that is not connected.
    """
    found = fabric(topology)
    check_connected(found)
    return machines(Network(found), GPUS_A_HOST)


def smallest_fabric(trace: str) -> str:
    """The smallest of FABRICS that has the GPUs of the trace's largest job, or the largest one.

    Raises:
        TraceError: a file that cannot be used.
    """
    *smaller, last = FABRICS
    if trace in STATISTICS:
        largest = max(gpus for gpus, _ in STATISTICS[trace].gpus)
    else:
        largest = max(job.gpus for job in read_trace(trace, cluster(last), 1, _HOURS))
    return next((name for name in smaller if cluster(name).gpus >= largest), last)


def generated(statistics: TraceStatistics, count: int, largest: int, seed: int) -> list[JobRequest]:
    """Jobs with these statistics, Poisson, on clusters of up to `largest` GPUs."""
    random = Random(f"{seed}/{statistics.source}/untuned")
    sizes = [(gpus, weight) for gpus, weight in statistics.gpus if gpus <= largest]
    at, jobs = 0.0, []
    for i in range(count):
        at += random.expovariate(1.0)
        gpus = random.choices([g for g, _ in sizes], [w for _, w in sizes])[0]
        model = random.choices([m for m, _ in statistics.models], [w for _, w in statistics.models])[0]
        shape = data_parallel(model, model_named(model).compute_ms * random.uniform(0.7, 1.5))
        length_ns = 1e12 * random.lognormvariate(0.0, statistics.sigma)
        iterations = max(1, round(length_ns / shape.compute_ns))
        jobs.append(JobRequest(f"job-{i}", model, round(at * 1e9), gpus, iterations, shape))
    return jobs


def excerpt(jobs: Sequence[JobRequest], count: int, seed: int) -> list[JobRequest]:
    """`count` jobs of a trace, from a place that the seed draws, in the trace's order and distances.

    A trace whose jobs all begin at once says nothing of arrivals: there the seed draws the order, and the
    jobs arrive at equal chances at any time.
    """
    random = Random(f"{seed}/untuned")
    if len({job.arrival_ns for job in jobs}) == 1:
        drawn = random.sample(list(jobs), min(count, len(jobs)))
        times = sorted(random.randrange(_ANY_NS) for _ in drawn)
        return [replace(job, arrival_ns=at) for job, at in zip(drawn, times, strict=True)]
    ordered = sorted(jobs, key=lambda job: (job.arrival_ns, job.name))
    first = random.randrange(max(1, len(ordered) - count + 1))
    return ordered[first : first + count]


def alone_ns(on: Cluster, jobs: Sequence[JobRequest]) -> list[float]:
    """The length of each job in ns on as few servers as hold it, if no job disturbs it."""
    known: dict[tuple[int, Shape], float] = {}
    for job in jobs:
        if (job.gpus, job.shape) not in known:
            known[job.gpus, job.shape] = _iteration_ns(on, job)
    return [job.iterations * known[job.gpus, job.shape] for job in jobs]


def _iteration_ns(on: Cluster, job: JobRequest) -> float:
    servers = on.servers[: math.ceil(job.gpus / GPUS_A_HOST)]
    ranks, shape = ranks_of(on, job, tuple((server.name, GPUS_A_HOST) for server in servers))
    built = program(shape, job.name, ranks)
    lone = uncontended(built, on.network)
    return max(1.0, lone.iteration_ps / PS_PER_NS)


def at_load(
    jobs: Sequence[JobRequest], alone: Sequence[float], load: float, gpus: int, horizon_ns: int
) -> UntunedWorkload:
    """The jobs with their lengths multiplied by one factor, so that they keep the part `load` of `gpus` GPUs
    busy over the horizon, and with arrivals stretched to it. `alone` is the length of each job in ns. No job
    gets longer than a third of the horizon, and none has less than one iteration."""
    longest, wanted = horizon_ns * _LONGEST, load * gpus * horizon_ns

    def offered(factor: float) -> float:
        lengths = (min(length * factor, longest) for length in alone)
        return math.fsum(job.gpus * length for job, length in zip(jobs, lengths, strict=True))

    high = longest / min(alone)
    low = high * _LEAST_FACTOR
    for _ in range(_ROUNDS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if offered(middle) < wanted else (low, middle)
    first = min(job.arrival_ns for job in jobs)
    span = max(1, max(job.arrival_ns for job in jobs) - first)
    scaled, total = [], 0.0
    for job, length in zip(jobs, alone, strict=True):
        one = length / job.iterations
        iterations = max(1, round(min(length * high, longest) / one))
        total += job.gpus * iterations * one
        arrival = round((job.arrival_ns - first) * horizon_ns / span)
        scaled.append(replace(job, arrival_ns=arrival, iterations=iterations))
    return UntunedWorkload(tuple(scaled), total / gpus / horizon_ns)


@cache
def workload(spec: UntunedSpec) -> UntunedWorkload:
    """The jobs of a spec.

    Raises:
        TraceError, WorkloadError, ConfigError: a file that cannot be used, or a job that the cluster can
            never run; with file, row and column.
    """
    on = cluster(spec.topology)
    if spec.trace in STATISTICS:
        statistics = STATISTICS[spec.trace]
        mean = _mean(statistics.gpus, on.gpus)
        jobs = generated(statistics, round(spec.jobs_a_gpu * on.gpus / mean), on.gpus, spec.seed)
    else:
        read = read_trace(spec.trace, on, spec.seed, _HOURS)
        check(on, read)
        mean = sum(job.gpus for job in read) / len(read)
        jobs = excerpt(read, max(1, round(spec.jobs_a_gpu * on.gpus / mean)), spec.seed)
    return at_load(jobs, alone_ns(on, jobs), spec.load, on.gpus, round(HORIZON_S * 1e9))


def _mean(sizes: Sequence[tuple[int, int]], largest: int) -> float:
    fitting = [(g, w) for g, w in sizes if g <= largest]
    return sum(g * w for g, w in fitting) / sum(w for _, w in fitting)
