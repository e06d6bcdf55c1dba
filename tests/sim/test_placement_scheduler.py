# SPDX-License-Identifier: Apache-2.0
"""Dally and its rivals on the simulator's servers and links."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from controller.placement.schedulers import SCHEDULERS as OFFER_POLICIES
from controller.placement.schedulers import SHARING
from sim.checkpoint import load, save
from sim.cluster import Cluster, JobRequest, machines
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


def simulated(
    requests: list[JobRequest], scheduler: Scheduler, cluster: Cluster = CLUSTER, policy: str = "ecmp"
) -> Simulation:
    settings = SimulationSettings(policy, tidy=3)
    simulation = Simulation(cluster, requests, settings, scheduler=scheduler)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint"

        def saved(now: Simulation) -> None:
            """Every state of a scheduler can be read from a checkpoint."""
            save(now.memory, file, bytes(32))
            memory = load(file, bytes(32))
            assert memory is not None
            assert vars(memory.scheduler).keys() == vars(now.memory.scheduler).keys()

        simulation.run(tidied=saved)
    return simulation


@pytest.mark.parametrize(
    "name", [*sorted({*OFFER_POLICIES} - {*SHARING}), "themis+cassini", "gandiva+cassini"]
)
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
    outcomes = done.memory.outcomes
    assert {n: o.iterations for n, o in outcomes.items()} == {
        n: o.request.iterations for n, o in outcomes.items()
    }
    if name != "pollux":
        assert {o.request for o in outcomes.values()} == set(requests)
    assert done.memory.free.total == CLUSTER.gpus
    again = simulated(requests, scheduler_named(name, lease_s=1.5))
    assert {n: o.ended for n, o in again.memory.outcomes.items()} == {
        n: o.ended for n, o in done.memory.outcomes.items()
    }


def test_pollux_changes_the_gpus_of_a_job_and_it_does_the_rest_of_its_work() -> None:
    """Alone on 16 GPUs, then on 8 beside the second job, then on 16 again."""
    jobs = [job("first", 0, 8, 200), job("second", 1, 8, 100)]
    done = simulated(jobs, scheduler_named("pollux", lease_s=2)).memory.outcomes
    first, second = done["first"], done["second"]
    # Two iterations of 16 GPUs make the progress of three of 8: 16 * 17 / 32 and 8 * 17 / 24.
    assert first.preempted == 2
    assert second.started == 2 * PS_PER_S
    with_eight = second.iterations
    assert with_eight == 100
    assert first.iterations == pytest.approx((200 - with_eight) / 1.5 + with_eight, abs=3)
    assert first.request.gpus == 16


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


@pytest.mark.parametrize("scheduler", ["themis", "dally-nowait"])
def test_of_equal_candidates_cassini_takes_the_compatible_one(scheduler: str) -> None:
    """Three racks have a free server each: nobody sends from the first, a job that leaves no time to others
    from the second, and one that does from the third."""
    cluster = machines(Network(leaf_spine(5, 1, 2, host_bps=10**10, fabric_bps=10**10)), 1)

    def sends(name: str, at_s: float, gpus: int, up_ms: int) -> JobRequest:
        size = up_ms / 1e3 * 10**10 / 8 * gpus / max(1, 2 * (gpus - 1))
        shape = Shape((PhaseShape("fused_ring", size, before_ns=(200 - up_ms) * 10**6),))
        return JobRequest(name, "bert", round(at_s * S), gpus, 30, shape)

    jobs = [sends("alone", 0, 1, 0), sends("clashes", 0.01, 3, 150), sends("fits", 0.02, 3, 90)]
    jobs.append(sends("new", 1, 2, 90))
    own, chosen = (
        simulated(jobs, scheduler_named(name, lease_s=4000), cluster, "cassini").memory.outcomes
        for name in (scheduler, f"{scheduler}+cassini")
    )
    assert own["clashes"].hosts == chosen["clashes"].hosts == ("h3", "h4", "h5")
    assert own["fits"].hosts == chosen["fits"].hosts == ("h7", "h8", "h9")
    assert own["new"].hosts == ("h2", "h6")
    assert chosen["new"].hosts == ("h2", "h10")
    assert chosen["clashes"].total < own["clashes"].total


def test_unknown_names_and_leases() -> None:
    with pytest.raises(ValueError, match=r"'yarn' is no scheduler; legal: fifo, .*dally"):
        scheduler_named("yarn")
    with pytest.raises(ValueError, match=r"a lease of 0 s; legal"):
        scheduler_named("dally", lease_s=0)
