# SPDX-License-Identifier: Apache-2.0
"""Two weeks of jobs on CRUX's clusters (section 6.3): the fabrics, the jobs, who runs when and where, and
what a policy makes of the jobs that run at one moment."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from sim.cluster import Cluster, JobRequest, Placement, check, machines, ranks_of
from sim.network import Network
from sim.readers import read_lingjun_topology
from sim.scheduler import scheduler_named
from sim.shape import PhaseShape, Shape
from sim.simulation import Settings, Simulation
from sim.units import NEVER
from sim.workload import check_connected, read_trace
from topo.files import load_topology
from topo.generate import leaf_spine, three_tier
from topo.graph import Topology

POLICIES: Mapping[str, str] = {
    "sincronia": "sincronia",
    "taccl": "taccl",
    "cassini": "cassini",
    "crux_pa": "crux-pa",
    "crux_ps_pa": "crux-ps-pa",
    "crux_full": "crux",
    "ours": "polyrhythm",
}
"""What the report calls them -> the planner's policy."""
PAPER: Mapping[str, Mapping[str, float]] = {
    "clos": dict(zip(POLICIES, (0.39, 0.49, 0.48, 0.51, 0.62, 0.62), strict=False)),
    "double_sided": dict(zip(POLICIES, (0.43, 0.46, 0.45, 0.48, 0.51, 0.50), strict=False)),
}
"""Figure 23."""
GPUS_A_HOST, HOSTS = 8, 346
JOBS_A_DAY = 5_000 / 14
_LINK_BPS = 100_000_000_000
_QP_BPS = 100_000_000_000
_ENDLESS = 10**9
_LEAST_ITERATIONS = 6


@dataclass(frozen=True, slots=True)
class Model:
    """An iteration on a GPU: compute in ms, after what part of it communication starts, and the bytes that
    are all-reduced between hosts. The paper gives none of it: all ours."""

    compute_ms: float
    overlap_start: float
    gigabytes: float


# The eleven models of section 6.3: five open ones, their variants, and two in-house ones (one of which takes
# the place of a variant of Multi-Interests: the paper counts eleven and lists twelve). GPT's communication is
# mostly exposed, the others' mostly hidden by their compute when nobody is in the way.
MODELS: Mapping[str, tuple[int, Model]] = {
    "gpt": (4, Model(1500, 0.9, 12)),
    "gpt-variant": (5, Model(1100, 0.9, 9)),
    "bert": (3, Model(300, 0.3, 2.5)),
    "bert-variant": (2, Model(450, 0.3, 4)),
    "resnet": (3, Model(200, 0.3, 1.5)),
    "resnet-variant": (2, Model(150, 0.3, 1.2)),
    "nmt": (2, Model(400, 0.4, 3)),
    "nmt-variant": (1, Model(300, 0.4, 2.5)),
    "multi-interests": (1, Model(120, 0.3, 1)),
    "click-through-rate": (2, Model(100, 0.3, 0.9)),
    "nlp-transformer": (2, Model(600, 0.4, 5)),
}
# (GPUs, weight): over 10 % of the jobs have 128 or more, up to 512 (CRUX, Figure 4); above 128 all are GPT.
SIZES = ((8, 34), (16, 22), (32, 18), (64, 14), (128, 8), (256, 3), (512, 1))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: a trace file ("" for the generated one) and a topology file for the third fabric ("" for
    none), the days of the trace, how many moments are looked at, for how long, and the seed."""

    trace: str
    topology: str
    days: float
    samples: int
    window_s: float
    seed: int

    @property
    def fabrics(self) -> tuple[str, ...]:
        """The fabrics by name."""
        return ("clos", "double_sided", *(("given",) if self.topology else ()))


@dataclass(frozen=True, slots=True)
class Moment:
    """The jobs of a moment, the GPUs that they hold, and how many of these compute on average."""

    jobs: int
    gpus: int
    used: float


def fabric(name: str, file: str) -> Topology:
    """`clos`: 173 ToRs of 2 hosts, 16 aggregation switches, 100 Gbps each, a host's NICs 400 Gbps together.
    `double_sided`: 6 ToRs, 12 aggregation switches, 32 cores, every host on both ToRs of its pod at 200
    Gbps, switches joined by 400 Gbps each (the paper does not say). `given`: a file.

    Raises:
        TraceError, TopologyError: for a file that is none.
    """
    if name == "clos":
        return leaf_spine(173, 16, 2, host_bps=4 * _LINK_BPS, fabric_bps=_LINK_BPS, name=name)
    if name == "double_sided":
        pod = -(-HOSTS // 3)
        wired = three_tier(3, 2, 4, 8, pod, host_bps=2 * _LINK_BPS, fabric_bps=4 * _LINK_BPS, name=name)
        hosts = [
            replace(h, name=f"h{p * pod + i + 1}.{side + 1}", server=f"h{p * pod + i + 1}")
            for n, h in enumerate(wired.hosts)
            for p, side, i in [(n // (2 * pod), n // pod % 2, n % pod)]
        ]
        return replace(wired, hosts=tuple(sorted(hosts, key=lambda h: (int(h.machine[1:]), h.name))))
    if Path(file).suffix == ".csv":
        return read_lingjun_topology(Path(file), host_gbps=400, fabric_gbps=400)
    return load_topology(Path(file))


@cache
def cluster(name: str, file: str) -> Cluster:
    """Hosts of 8 GPUs on the fabric. Raises WorkloadError for one that is not connected."""
    topology = fabric(name, file)
    check_connected(topology)
    return machines(Network(topology), GPUS_A_HOST)


def generated(days: float, gpus: int, seed: int) -> list[JobRequest]:
    """Jobs as the paper's: 5,000 in two weeks, Poisson; log-normal lengths keep 60 % of the GPUs busy."""
    random = Random(f"{seed}/crux-trace")
    count, horizon_s = max(1, round(days * JOBS_A_DAY)), days * 86400
    names, weights = list(MODELS), [w for w, _ in MODELS.values()]
    at, drawn = 0.0, []
    for _ in range(count):
        at += random.expovariate(count / horizon_s)
        size = random.choices([g for g, _ in SIZES if g <= gpus], [w for g, w in SIZES if g <= gpus])[0]
        name = random.choices(names, weights)[0] if size <= 128 else random.choice(("gpt", "gpt-variant"))
        drawn.append((at, name, size, random.lognormvariate(0, 1.2), random.uniform(0.8, 1.25)))
    scale = 0.6 * gpus * horizon_s / sum(size * length for _, _, size, length, _ in drawn)
    # A job longer than a third of the trace would be all there is to see.
    return [
        _request(f"job-{i}", name, at, size, min(length * scale, horizon_s / 3), stretch)
        for i, (at, name, size, length, stretch) in enumerate(drawn)
    ]


def _request(name: str, model: str, at: float, gpus: int, length_s: float, stretch: float) -> JobRequest:
    known = MODELS[model][1]
    compute = round(known.compute_ms * stretch * 1e6)
    before = round(compute * known.overlap_start)
    phase = PhaseShape("fused_ring", known.gigabytes * 1e9, before_ns=before, beside_ns=compute - before)
    shape = Shape((phase,))
    return JobRequest(name, model, round(at * 1e9), gpus, max(1, round(length_s * 1e9 / compute)), shape)


@cache
def requests(plan: Plan, name: str) -> tuple[JobRequest, ...]:
    """The jobs of the plan on a fabric, those that it can hold. Raises as `read_trace`, WorkloadError."""
    on = cluster(name, plan.topology)
    if not plan.trace:
        return tuple(generated(plan.days, on.gpus, plan.seed))
    found = read_trace(plan.trace, on, plan.seed, plan.days * 24)
    end = min(r.arrival_ns for r in found) + plan.days * 86400e9
    fitting = tuple(r for r in found if r.arrival_ns <= end and r.gpus <= on.gpus)
    check(on, fitting)
    return fitting


class Scattered:
    """Free GPUs, given out at random: a job of one host or less goes to the fullest with room, a larger one
    takes whole hosts anywhere. The paper's Clos figures are those of its run without a job scheduler."""

    def __init__(self, on: Cluster, seed: int) -> None:
        self._random = Random(f"{seed}/places")
        self._number = {s.name: i for i, s in enumerate(on.servers)}
        self._free = {s.name: s.gpus for s in on.servers}

    def place(self, gpus: int) -> Placement | None:
        """A placement, taken, its hosts in the order of the fabric; None if there is none."""
        hosts = math.ceil(gpus / GPUS_A_HOST)
        room = [s for s, n in self._free.items() if n >= min(gpus, GPUS_A_HOST)]
        if len(room) < hosts:
            return None
        if hosts == 1:
            chosen = [min(room, key=lambda s: (self._free[s], self._number[s]))]
        else:
            chosen = sorted(self._random.sample(room, hosts), key=self._number.__getitem__)
        last = gpus - GPUS_A_HOST * (hosts - 1)
        placement = (*((s, GPUS_A_HOST) for s in chosen[:-1]), (chosen[-1], last))
        for server, taken in placement:
            self._free[server] -= taken
        return placement

    def give_back(self, placement: Placement) -> None:
        """A job's GPUs are free again."""
        for server, gpus in placement:
            self._free[server] += gpus


def occupancy(
    on: Cluster, jobs: Sequence[JobRequest], times_ns: Sequence[int], seed: int
) -> list[list[tuple[JobRequest, Placement]]]:
    """Who runs where at each of the (ascending) times, if jobs last as long as their iterations' compute.

    First come, first served, with others overtaking where the first does not fit.
    """
    free = Scattered(on, seed)
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
                free.give_back(running.pop(heapq.heappop(ends)[1])[1])
            else:
                waiting.append(coming.popleft())
            for request in list(waiting):
                placement = free.place(request.gpus)
                if placement is not None:
                    waiting.remove(request)
                    running[request.name] = (request, placement)
                    end = now + request.iterations * request.shape.compute_ns
                    heapq.heappush(ends, (end, request.name))
        found.append(list(running.values()))
    return found


@cache
def _states(plan: Plan, name: str) -> list[list[tuple[JobRequest, Placement]]]:
    jobs = requests(plan, name)
    first = min(r.arrival_ns for r in jobs)
    span = plan.days * 86400e9
    # The middles of equal parts of the trace, after the first tenth, in which the cluster fills.
    times = [first + round(span * (0.1 + 0.9 * (i + 0.5) / plan.samples)) for i in range(plan.samples)]
    return occupancy(cluster(name, plan.topology), jobs, times, plan.seed)


def measure(plan: Plan, name: str, sample: int, policy: str) -> Moment:
    """The jobs that run at a moment, planned and played for a while under a policy of the planner.

    All are given the same window, at least six iterations of the longest; GPUs used are those of the
    iterations' compute over their mean length.
    """
    on = cluster(name, plan.topology)
    state = _states(plan, name)[sample]
    sending, lone_gpus = [], 0
    for request, placement in state:
        if len(placement) < 2:
            lone_gpus += request.gpus
            continue
        ranks, shape = ranks_of(on, request, placement)
        nic = on.network.topology.host[ranks[0]].rate_bps
        phases = tuple(replace(p, limit_bps=float(nic)) for p in shape.phases)
        shape = replace(shape, phases=phases, qps=max(1, round(nic / _QP_BPS)))
        sending.append(replace(request, arrival_ns=0, iterations=_ENDLESS, shape=shape, ranks=ranks))
    gpus = lone_gpus + sum(r.gpus for r in sending)
    if not sending:
        return Moment(len(state), gpus, float(lone_gpus))
    window = plan.window_s
    used = float(lone_gpus)
    longest = max(r.shape.compute_ns / 1e9 + 16 * sum(p.size for p in r.shape.phases) / 4e11 for r in sending)
    window = max(window, _LEAST_ITERATIONS * longest)
    settings = Settings(policy=policy, seed=plan.seed, until_ns=round(window * 1e9), log=False)
    simulation = Simulation(on, sending, settings, scheduler=scheduler_named("fifo"))
    simulation.run()
    for r in sending:
        outcome = simulation.memory.outcomes[r.name]
        if outcome.iterations:
            used += r.gpus * r.shape.compute_ns * 1e3 * outcome.iterations / outcome.total
    return Moment(len(state), gpus, used)
