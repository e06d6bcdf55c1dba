# SPDX-License-Identifier: Apache-2.0
"""Two weeks of jobs as in CRUX, section 6.3: their traffic, and which jobs run when and on which hosts."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from polyrhythm.paper.crux_trace_fabrics import cluster
from polyrhythm.paper.crux_trace_places import SCHEDULERS
from sim.cluster import Cluster, JobRequest, Placement, check
from sim.shape import PhaseShape, Shape
from sim.units import NEVER
from sim.workload import read_trace

JOBS_A_DAY = 5_000 / 14
PAPERS_GPUS = 2_768
"""GPUs of the paper's cluster. Jobs keep the fraction BUSY of them busy on every fabric."""
BUSY = 0.6
_LONGEST = 1 / 3
"""No job is longer than this fraction of the trace, or it would dominate the result. Chosen."""
_GIGABYTES_A_S = 25.0
"""Rate in GB/s at which a host with 400 Gbit/s reduces data in a long ring."""


@dataclass(frozen=True, slots=True)
class TraceModel:
    """An iteration of a model on a GPU.

    `compute_ms` of compute; communication starts after the part `overlap_start` of it and lasts, alone on 400
    Gbit/s, the part `communication` of the compute time.
    """

    compute_ms: float
    overlap_start: float
    communication: float


# The eleven models of section 6.3: five open ones, their variants, and two in-house ones (one of which takes
# the place of a variant of Multi-Interests: the paper counts eleven and lists twelve). The paper gives no
# times; all are ours. Intensities must differ widely: large language models compute most of the time, and
# recommendation models wait for the network.
MODELS: Mapping[str, tuple[int, TraceModel]] = {
    "gpt": (4, TraceModel(1500, 0.9, 0.3)),
    "gpt-variant": (5, TraceModel(1100, 0.9, 0.3)),
    "bert": (3, TraceModel(300, 0.5, 1.0)),
    "bert-variant": (2, TraceModel(450, 0.5, 0.8)),
    "resnet": (3, TraceModel(200, 0.5, 0.6)),
    "resnet-variant": (2, TraceModel(250, 0.5, 0.5)),
    "nmt": (2, TraceModel(400, 0.5, 1.5)),
    "nmt-variant": (1, TraceModel(300, 0.5, 2.0)),
    "multi-interests": (1, TraceModel(150, 0.5, 4.0)),
    "click-through-rate": (2, TraceModel(150, 0.5, 6.0)),
    "nlp-transformer": (2, TraceModel(600, 0.5, 0.7)),
}
# (GPUs, weight): over 10 % of the jobs have 128 or more, up to 512 (CRUX, Figure 4); above 128 all are GPT.
SIZES = ((8, 34), (16, 22), (32, 18), (64, 14), (128, 8), (256, 3), (512, 1))


@dataclass(frozen=True, slots=True)
class TraceSpec:
    """The settings of the experiment.

    A trace file ("": generated), a topology file for the third fabric ("": none), the length of the trace in
    days, the number of moments and their length, the seed, the factor for the bytes of all jobs (`volume`),
    the fraction of GPUs that the jobs keep busy (0: as in the file, or BUSY for generated jobs), and the job
    scheduler, one of `crux_trace_places.SCHEDULERS`.
    """

    trace: str
    topology: str
    days: float
    samples: int
    window_s: float
    seed: int
    volume: float = 1.0
    busy: float = 0.0
    scheduler: str = "none"

    @property
    def fabrics(self) -> tuple[str, ...]:
        """The names of the fabrics."""
        return ("clos", "double_sided", *(("given",) if self.topology else ()))


def generated(days: float, gpus: int, seed: int, busy: float = BUSY) -> list[JobRequest]:
    """Jobs as in the paper: 5,000 in two weeks, Poisson arrivals. Log-normal lengths keep `busy` of the GPUs
    busy.
    """
    random = Random(f"{seed}/crux-trace")
    count, horizon_s = max(1, round(days * JOBS_A_DAY)), days * 86400
    names, weights = list(MODELS), [w for w, _ in MODELS.values()]
    at, drawn = 0.0, []
    for _ in range(count):
        at += random.expovariate(count / horizon_s)
        size = random.choices([g for g, _ in SIZES if g <= gpus], [w for g, w in SIZES if g <= gpus])[0]
        name = random.choices(names, weights)[0] if size <= 128 else random.choice(("gpt", "gpt-variant"))
        drawn.append((at, name, size, random.lognormvariate(0, 1.2), random.uniform(0.8, 1.25)))
    scale = busy * gpus * horizon_s / sum(size * length for _, _, size, length, _ in drawn)
    return [
        _request(f"job-{i}", name, at, size, min(length * scale, horizon_s * _LONGEST), stretch)
        for i, (at, name, size, length, stretch) in enumerate(drawn)
    ]


def _request(name: str, model: str, at: float, gpus: int, length_s: float, stretch: float) -> JobRequest:
    known = MODELS[model][1]
    compute = round(known.compute_ms * stretch * 1e6)
    before = round(compute * known.overlap_start)
    # The traffic grows with the compute: a stretched iteration is one of a larger batch or model.
    size = compute * known.communication * _GIGABYTES_A_S
    phase = PhaseShape("fused_ring", size, before_ns=before, beside_ns=compute - before)
    shape = Shape((phase,))
    return JobRequest(name, model, round(at * 1e9), gpus, max(1, round(length_s * 1e9 / compute)), shape)


@cache
def requests(spec: TraceSpec, name: str) -> tuple[JobRequest, ...]:
    """The jobs that the fabric can hold.

    Raises:
        TraceError, WorkloadError: the trace is not legal.
    """
    on = cluster(name, spec.topology)
    gpus, span_ns = min(on.gpus, PAPERS_GPUS), round(spec.days * 86400e9)
    if not spec.trace:
        return tuple(generated(spec.days, gpus, spec.seed, spec.busy or BUSY))
    found = read_trace(spec.trace, on, spec.seed, spec.days * 24)
    end = min(r.arrival_ns for r in found) + span_ns
    fitting = tuple(r for r in found if r.arrival_ns <= end and r.gpus <= on.gpus)
    check(on, fitting)
    return lengthened(fitting, spec.busy * gpus, span_ns) if spec.busy else fitting


def lengthened(jobs: Sequence[JobRequest], gpus: float, horizon_ns: int) -> tuple[JobRequest, ...]:
    """The jobs with their iterations multiplied by one factor, so that their compute keeps `gpus` GPUs busy.

    No job gets longer than a third of the horizon.
    """
    factor = gpus * horizon_ns / max(1, sum(r.gpus * r.iterations * r.shape.compute_ns for r in jobs))
    longest_ns = int(horizon_ns * _LONGEST)

    def count(job: JobRequest) -> int:
        return max(1, min(round(job.iterations * factor), longest_ns // max(1, job.shape.compute_ns)))

    return tuple(replace(job, iterations=count(job)) for job in jobs)


def occupancy(
    on: Cluster, jobs: Sequence[JobRequest], times_ns: Sequence[int], seed: int, scheduler: str = "none"
) -> list[list[tuple[JobRequest, Placement]]]:
    """The running jobs and their hosts at each of the (ascending) times, if jobs last as long as their
    compute.

    First come, first served; a job that does not fit lets later ones overtake. `scheduler`: one of
    SCHEDULERS.
    """
    free = SCHEDULERS[scheduler](on, seed)
    coming = deque(sorted(jobs, key=lambda r: (r.arrival_ns, r.name)))
    waiting: list[JobRequest] = []
    ends: list[tuple[int, str]] = []
    running: dict[str, tuple[JobRequest, Placement]] = {}
    found: list[list[tuple[JobRequest, Placement]]] = []
    for time in times_ns:
        while True:
            arrives = coming[0].arrival_ns if coming else NEVER
            now = min(arrives, ends[0][0] if ends else NEVER)
            if now > time:
                break
            if now < arrives:
                free.give_back(*running.pop(heapq.heappop(ends)[1]))
            else:
                waiting.append(coming.popleft())
            for request in list(waiting):
                placement = free.place(request)
                if placement is not None:
                    waiting.remove(request)
                    running[request.name] = (request, placement)
                    end = now + request.iterations * request.shape.compute_ns
                    heapq.heappush(ends, (end, request.name))
        found.append(list(running.values()))
    return found


@cache
def states(spec: TraceSpec, name: str) -> list[list[tuple[JobRequest, Placement]]]:
    """The running jobs and their hosts on a fabric at each moment of the experiment.

    Raises:
        TraceError, WorkloadError: the trace is not legal.
    """
    jobs = requests(spec, name)
    first = min(r.arrival_ns for r in jobs)
    span = spec.days * 86400e9
    # The middles of equal parts of the trace. The first tenth, in which the cluster fills, is omitted.
    times = [first + round(span * (0.1 + 0.9 * (i + 0.5) / spec.samples)) for i in range(spec.samples)]
    return occupancy(cluster(name, spec.topology), jobs, times, spec.seed, spec.scheduler)
