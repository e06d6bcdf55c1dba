# SPDX-License-Identifier: Apache-2.0
"""Simulate the jobs of one moment under a policy, and calibrate their traffic to the paper's utilisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from polyrhythm.paper.crux_trace_fabrics import GPUS_A_HOST, cluster
from polyrhythm.paper.crux_trace_jobs import TraceSpec, states
from sim.cluster import JobRequest, ranks_of
from sim.scheduler import scheduler_named
from sim.simulation import Simulation, SimulationSettings

POLICIES: Mapping[str, str] = {
    "sincronia": "sincronia",
    "taccl": "taccl",
    "cassini": "cassini",
    "crux_pa": "crux-pa",
    "crux_ps_pa": "crux-ps-pa",
    "crux_full": "crux",
    "ours": "polyrhythm",
    "ours_unjudged": "polyrhythm.paper.unjudged:UNJUDGED",
    "ecmp": "ecmp",
    "spray": "spray",
    "dlb": "dlb",
}
"""Name in the report -> policy of the planner: those of the paper first, in its order."""
PAPER: Mapping[str, Mapping[str, float]] = {
    "clos": dict(zip(POLICIES, (0.39, 0.49, 0.48, 0.51, 0.62, 0.62), strict=False)),
    "double_sided": dict(zip(POLICIES, (0.43, 0.46, 0.45, 0.48, 0.51, 0.50), strict=False)),
}
"""GPU utilisation in Figure 23 of CRUX."""
FIGURE_25: Mapping[str, tuple[float, float]] = {
    "none": (0.39, 0.62),
    "muri": (0.59, 0.73),
    "hived": (0.64, 0.75),
}
"""GPU utilisation in Figure 25 of CRUX by job scheduler: without and with CRUX."""
LEVEL = PAPER["clos"]["crux_full"]
"""The utilisation of CRUX on the Clos in the paper. The volume of communication is calibrated to it."""
NEAR = 0.01
LEAST_VOLUME, MOST_VOLUME = 1 / 64, 4096.0
_TRIES = 9
_QP_BPS = 50_000_000_000
_HOST_BPS = 4e11
_ENDLESS = 10**9
_LEAST_ITERATIONS = 6
_PARTS = 3


@dataclass(frozen=True, slots=True)
class Moment:
    """The result of a moment.

    `jobs` run and `sending` of them have traffic. They hold `gpus` GPUs, of which `used` compute on average.
    """

    jobs: int
    sending: int
    gpus: int
    used: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibrated volume, the utilisation of CRUX with it, whether that is LEVEL, and all tried pairs."""

    volume: float
    utilisation: float
    reached: bool
    tried: tuple[tuple[float, float], ...]


def measure(spec: TraceSpec, name: str, sample: int, policy: str) -> Moment:
    """Plan the jobs of a moment and simulate them for a while under a policy.

    The window holds at least six iterations of the longest job alone. Its first third does not count, because
    all jobs begin at once. A job uses all NICs of its hosts, with queue pairs of 50 Gbit/s.
    """
    on = cluster(name, spec.topology)
    state = states(spec, name)[sample]
    sending: list[JobRequest] = []
    lone_gpus = 0
    for request, placement in state:
        if len(placement) < 2:
            lone_gpus += request.gpus
            continue
        ranks, shape = ranks_of(on, request, tuple((server, GPUS_A_HOST) for server, _ in placement))
        nic = on.network.topology.host[ranks[0]].rate_bps
        phases = tuple(replace(p, limit_bps=float(nic), size=p.size * spec.volume) for p in shape.phases)
        shape = replace(shape, phases=phases, qps=max(1, round(nic / _QP_BPS)))
        sending.append(replace(request, arrival_ns=0, iterations=_ENDLESS, shape=shape, ranks=ranks))
    gpus = lone_gpus + sum(r.gpus for r in sending)
    if not sending:
        return Moment(len(state), 0, gpus, float(lone_gpus))
    longest = max(_alone_s(r) for r in sending)
    window_ns = round(max(spec.window_s, _LEAST_ITERATIONS * longest) * 1e9)
    settings = SimulationSettings(
        policy=policy, seed=spec.seed, until_ns=window_ns, samples_ns=window_ns // _PARTS - 1, log=False
    )
    simulation = Simulation(on, sending, settings, scheduler=scheduler_named("fifo"))
    simulation.run()
    parts = [s.computing for s in simulation.memory.samples[1:]]
    return Moment(len(state), len(sending), gpus, lone_gpus + sum(parts) / len(parts))


def _alone_s(request: JobRequest) -> float:
    """An upper estimate of the iteration time of a job alone, in s."""
    rails = max(len(p.groups) for p in request.shape.phases) or 1
    sent = sum(16 * p.size * rails for p in request.shape.phases)
    return request.shape.compute_ns / 1e9 + sent / _HOST_BPS


def calibrated(utilisation: Callable[[float], float]) -> Calibration:
    """Find the volume of communication with which CRUX has the paper's utilisation on the Clos, by bisection.

    `utilisation(volume)` falls as the volume grows. The first try is 1. The first try within one point is
    taken.
    """
    tried: list[tuple[float, float]] = []
    low, high, volume = LEAST_VOLUME / 2, MOST_VOLUME * 2, 1.0
    while len(tried) < _TRIES:
        found = utilisation(volume)
        tried.append((volume, found))
        if abs(found - LEVEL) <= NEAR:
            break
        if found > LEVEL:
            low = volume
            following = min(MOST_VOLUME, volume * 4) if high > MOST_VOLUME else math.sqrt(low * high)
        else:
            high = volume
            following = max(LEAST_VOLUME, volume / 4) if low < LEAST_VOLUME else math.sqrt(low * high)
        if following == volume:
            break
        volume = following
    best = min(tried, key=lambda row: abs(row[1] - LEVEL))
    return Calibration(
        volume=best[0],
        utilisation=best[1],
        reached=abs(best[1] - LEVEL) <= NEAR,
        tried=tuple(tried),
    )


def spread(values: Sequence[float], weights: Sequence[float]) -> float:
    """The standard error of the ratio of sums over moments (`values` / `weights`); 0 for a single moment."""
    count, total = len(values), sum(weights)
    if count < 2 or total <= 0:
        return 0.0
    ratio = sum(values) / total
    squares = sum((v - ratio * w) ** 2 for v, w in zip(values, weights, strict=True))
    return math.sqrt(squares / (count - 1) * count) / total
