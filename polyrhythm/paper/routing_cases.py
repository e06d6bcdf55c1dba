# SPDX-License-Identifier: Apache-2.0
"""The cases of the routing paper's evaluation: job mixes and failed spines, each with all schemes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np

from controller.kernel import available
from controller.routing.algorithms import Options
from controller.routing.algorithms.ilp import installed
from controller.routing.fabric import LeafDemand, TwoTier
from controller.routing.from_topology import Failures
from controller.routing.routings import Annealing, Ecmp, Greedy, Ilp, Optimal
from polyrhythm.paper.routing_epochs import EpochExperiment, EpochOutcome, Scheme
from sim.generators import LARGE_MODELS, PAPER_BPS, PlacedModel, paper_fabric, paper_jobs

RINGS, JOBS, FAILED = (2, 4, 8), (1, 2, 3, 4, 5), (0, 1, 4, 8)
SPINES, LEAVES, NICS = 32, 64, 2048
MAX_QPS = 8
_ECMP_SEEDS = 3
_FCT_KEPT = 200
# Two jobs of one model; the authors' published code was run on them too (`routing_claims.py`).
PUBLISHED = ("BLOOM", "GPT-3")
# These jobs use 2,016 of the 2,048 NICs.
FULL = (("LLaMA2", 8), ("GPT-3", 8), ("BLOOM", 8), ("BLOOM", 2))


@dataclass(frozen=True, slots=True)
class RoutingCase:
    """Jobs as (model, ring size), the number of `failed` spines of `spines`, and the seed of placement and
    starts.
    """

    mix: tuple[tuple[str, int], ...]
    failed: int
    seed: int
    spines: int = SPINES

    @property
    def nics(self) -> int:
        """The number of NICs that the jobs need."""
        return sum(LARGE_MODELS[model].copy_gpus * ring for model, ring in self.mix)

    @property
    def fits(self) -> bool:
        """Whether the fabric has enough NICs."""
        return self.nics <= NICS


def cases(seeds: int, quick: bool) -> Iterator[RoutingCase]:
    """All cases of the evaluation.

    Every ring size and number of jobs, with models drawn at random and every number of failed spines; an
    almost full fabric; and 2:1 oversubscription. `quick`: rings of 2, at most two jobs, one seed.
    """
    for seed in range(1, 2 if quick else seeds + 1):
        for ring in RINGS[:1] if quick else RINGS:
            for jobs in JOBS[:2] if quick else JOBS:
                random = Random(f"{seed}/{ring}/{jobs}/mix")
                mix = tuple((random.choice(list(LARGE_MODELS)), ring) for _ in range(jobs))
                for failed in FAILED[::3] if quick else FAILED:
                    yield RoutingCase(mix, failed, seed)
                yield RoutingCase(mix, 0, seed, SPINES // 2)
        for failed in (0,) if quick else FAILED:
            yield RoutingCase(FULL, failed, seed)
        for model in PUBLISHED:
            yield RoutingCase(((model, 8), (model, 8)), 0, seed)


def schemes(case: RoutingCase, jobs: Sequence[PlacedModel], ilp_s: float) -> list[Scheme]:
    """ECMP with several seeds, the algorithms, and the optimum with flows split over queue pairs."""
    found = [Scheme(f"ecmp{s}", Ecmp(), Options(seed=100 * case.seed + s)) for s in range(_ECMP_SEEDS)]
    found += [
        Scheme("greedy", Greedy(order="connections"), Options()),
        Scheme("annealing", Annealing(), Options(seed=case.seed)),
        Scheme("optimal", Optimal(), Options()),
    ]
    if ilp_s > 0 and installed():
        found.append(Scheme("ilp", Ilp(limit_s=ilp_s), Options()))
    qps = best_split(case.spines - case.failed, max(map(_out_of_a_leaf, jobs)))
    if qps > 1:
        found.append(Scheme("optimal_split", Optimal(), Options(), qps))
    return found


def _out_of_a_leaf(job: PlacedModel) -> int:
    """The largest number of flows that leave a leaf. Every NIC sends one flow."""
    return min(NICS // LEAVES, len(job.ranks))


def best_split(ways: int, flows: int) -> int:
    """The least number of queue pairs per flow, up to MAX_QPS, that loads each of the leaf's `ways` uplinks
    least.
    """
    return min(range(1, MAX_QPS + 1), key=lambda q: (-(-flows * q // ways) / q, q))


def measure(case: RoutingCase, iterations: int, ilp_s: float) -> dict[str, Any]:
    """All schemes on one case as JSON values. If the jobs do not fit, `fits` is false and nothing else
    follows.
    """
    row: dict[str, Any] = {**asdict(case), "nics": case.nics, "fits": case.fits}
    if not case.fits or not available():
        return row
    topology = paper_fabric(LEAVES, case.spines, NICS // LEAVES)
    jobs = paper_jobs(topology, case.mix, case.seed)
    _warm()
    failures = Failures(switches=frozenset(f"spine{i + 1}" for i in range(case.failed)))
    row["schemes"] = {
        scheme.name: _figures(scheme, jobs, EpochExperiment(topology, failures, jobs, scheme).run(iterations))
        for scheme in schemes(case, jobs, ilp_s)
    }
    return row


@cache
def _warm() -> None:
    """Load the kernels once in each process, so that the measured times do not include the compilation."""
    two = LeafDemand(np.array([0, 1], dtype=np.int32), np.array([1, 0], dtype=np.int32))
    fabric = TwoTier(("a", "b"), ("s", "t"), np.ones((2, 2)))
    for routing in (Greedy(), Optimal(), Annealing()):
        routing.choices(fabric, two)


def _figures(scheme: Scheme, jobs: Sequence[PlacedModel], outcome: EpochOutcome) -> dict[str, Any]:
    ideal = {j.name: j.model.ideal_s(j.ring) for j in jobs}
    slowdown = [t / ideal[name] for name, times in outcome.all_reduce_s.items() for t in times]
    fct = np.sort(outcome.fct_s)
    picks = np.linspace(0, len(fct) - 1, min(len(fct), _FCT_KEPT)).astype(int)
    return {
        "all_reduce_s": {name: statistics.mean(times) for name, times in outcome.all_reduce_s.items()},
        "slowdown": statistics.mean(slowdown),
        "slowdown_max": max(slowdown),
        "throughput_gbps": statistics.mean(PAPER_BPS / 1e9 / s for s in slowdown),
        "run_s": statistics.mean(outcome.run_s.values()),
        "fct_mean_s": float(fct.mean()),
        "fct_p99_s": float(np.quantile(fct, 0.99)),
        "fct_s": fct[picks].round(6).tolist(),
        "qps": scheme.qps,
        # Per flow: with several QPs each carries its share.
        "max_load": max(load for load, _ in outcome.loads) / scheme.qps,
        "excess": max(load - bound for load, bound in outcome.loads),
        "assign_ms": statistics.median(outcome.assign_ms),
        "epochs": outcome.epochs,
    }
