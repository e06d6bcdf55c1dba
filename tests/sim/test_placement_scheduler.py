# SPDX-License-Identifier: Apache-2.0
"""Dally and its rivals on the simulator's servers and links."""

from __future__ import annotations

import pickle
from random import Random

import pytest

from controller.placement.schedulers import SCHEDULERS as OFFER_POLICIES
from sim.cluster import JobRequest, machines
from sim.network import Network
from sim.scheduler import Scheduler, scheduler_named
from sim.shape import PhaseShape, Shape
from sim.simulation import Simulation, SimulationSettings
from sim.units import PS_PER_S
from topo.generate import leaf_spine

pytest.importorskip("numba")
CLUSTER = machines(Network(leaf_spine(2, 2, 2, host_bps=10**10, fabric_bps=10**10)), 4)
S = 10**9


def job(
    name: str, at_s: float, gpus: int, iterations: int, size: float = 0.0, model: str = "bert"
) -> JobRequest:
    """A job with 100 ms of compute in each iteration."""
    shape = Shape((PhaseShape("fused_ring", size, before_ns=10**8),))
    return JobRequest(name, model, round(at_s * S), gpus, iterations, shape)


def simulated(requests: list[JobRequest], scheduler: Scheduler) -> Simulation:
    simulation = Simulation(CLUSTER, requests, SimulationSettings(tidy=3), scheduler=scheduler)
    simulation.run(tidied=lambda s: pickle.loads(pickle.dumps(s.memory.scheduler)))
    return simulation


@pytest.mark.parametrize("name", sorted(OFFER_POLICIES))
def test_every_job_ends_with_all_its_iterations(name: str) -> None:
    random = Random(4)
    requests = [
        job(
            f"j{i}",
            random.uniform(0, 20),
            random.choice([1, 2, 4, 6, 12, 16]),
            random.randint(5, 120),
            random.uniform(0, 3e7),
            random.choice(["bert", "mobilenetv3"]),
        )
        for i in range(14)
    ]
    done = simulated(requests, scheduler_named(name, lease_s=1.5))
    assert {n: o.iterations for n, o in done.memory.outcomes.items()} == {
        r.name: r.iterations for r in requests
    }
    assert done.memory.free.total == CLUSTER.gpus
    again = simulated(requests, scheduler_named(name, lease_s=1.5))
    assert {n: o.ended for n, o in again.memory.outcomes.items()} == {
        n: o.ended for n, o in done.memory.outcomes.items()
    }


def test_a_new_job_takes_gpus_at_the_end_of_the_lease() -> None:
    jobs = [job("old", 0, 16, 200), job("new", 3, 4, 10)]
    done = simulated(jobs, scheduler_named("dally", lease_s=5)).memory.outcomes
    assert done["new"].started == 5 * PS_PER_S
    assert done["new"].ended == 6 * PS_PER_S
    assert done["old"].preempted == 1
    # It waits for the new job, and runs the iteration again that was interrupted.
    assert done["old"].ended == pytest.approx(21 * PS_PER_S, abs=PS_PER_S // 10)


def test_a_job_moves_closer_when_gpus_become_free() -> None:
    jobs = [job(f"early-{m}", 0, 3, 30 if m == 3 else 300) for m in range(4)]
    jobs.append(job("spread", 1, 4, 300))
    done = simulated(jobs, scheduler_named("gandiva")).memory.outcomes
    assert len(done["spread"].hosts) == 1
    assert done["spread"].preempted == 1
    assert all(done[f"early-{m}"].preempted == 0 for m in range(4))


def test_who_waits_for_a_machine_and_who_takes_any_gpus() -> None:
    jobs = [*(job(f"early-{m}", 0, 3, 400) for m in range(4)), job("late", 1, 4, 10)]
    started = {
        name: simulated(jobs, scheduler_named(name, lease_s=4000)).memory.outcomes["late"].started
        for name in ("dally-nowait", "gandiva", "dally-consolidated", "hived")
    }
    assert started["dally-nowait"] == started["gandiva"] == PS_PER_S
    assert started["dally-consolidated"] == started["hived"] == 40 * PS_PER_S


def test_unknown_names_and_leases() -> None:
    with pytest.raises(ValueError, match=r"'yarn' is no scheduler; legal: fifo, .*dally"):
        scheduler_named("yarn")
    with pytest.raises(ValueError, match=r"a lease of 0 s; legal"):
        scheduler_named("dally", lease_s=0)
