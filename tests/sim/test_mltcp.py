# SPDX-License-Identifier: Apache-2.0
"""MLTCP in the simulator: weighted max-min rates, against the plain engine and the fluid model of the thesis."""

import copy
from random import Random

import numpy as np
import pytest

from controller.interleave.mltcp_fluid import FluidJob, offsets
from controller.interleave.mltcp_fluid import run as run_fluid
from controller.interleave.timing import OwnPace
from controller.planner import Policy
from hostagent.nic.mltcp import SHAPES as SENDERS_SHAPES
from sim.cluster import JobRequest, WorkloadError, machines
from sim.engine import KernelEngine
from sim.jobrun import JobRun
from sim.mltcp import LINEAR, SHAPES, weights
from sim.network import Network
from sim.reference import FlowDemand, ReferenceEngine, max_min
from sim.scheduler import Fifo
from sim.shape import PhaseShape, Shape
from sim.simulation import Simulation, SimulationSettings
from sim.task_graph import TaskGraphBuilder
from sim.units import NEVER, PS_PER_MS
from topo.generate import leaf_spine

pytest.importorskip("numba")
FABRIC = Network(leaf_spine(3, 2, 3, host_bps=10**9, fabric_bps=15 * 10**8))


def test_shares_follow_weights_by_hand() -> None:
    rates = max_min([12.0], {0: FlowDemand({0: 1.0}, 1, 99, 2.0), 1: FlowDemand({0: 1.0}, 1, 99, 1.0)})
    assert rates == {0: 8.0, 1: 4.0}
    # A cap leaves the rest to the other, whatever the weights; a class above goes first.
    rates = max_min([12.0], {0: FlowDemand({0: 1.0}, 1, 3, 2.0), 1: FlowDemand({0: 1.0}, 1, 99, 1.0)})
    assert rates == {0: 3.0, 1: 9.0}
    rates = max_min([12.0], {0: FlowDemand({0: 1.0}, 1, 99, 2.0), 1: FlowDemand({0: 1.0}, 0, 5, 0.25)})
    assert rates == {0: 7.0, 1: 5.0}


def test_the_six_shapes_are_the_senders() -> None:
    assert list(SHAPES) == list(SENDERS_SHAPES)
    for name, shape in SHAPES.items():
        for r in (0.0, 0.3, 1.0):
            assert shape(r) == pytest.approx(SENDERS_SHAPES[name](r))
    with pytest.raises(ValueError, match="no shape of MLTCP; legal"):
        weights("r")


def pair(shape: str, steps: int) -> list[JobRun]:
    """The two jobs of the fluid: 100 ms of the link, 150 ms of silence, 20 ms apart."""
    runs = []
    for i, offset in enumerate((0, 20)):
        builder = TaskGraphBuilder()
        flow = builder.flow([], builder.channel("a", "b", f"f{i}"), 1e8)
        builder.compute([flow], 150 * PS_PER_MS)
        runs.append(
            JobRun(f"j{i}", builder.build(), ((0,),), 4, 9, offset * PS_PER_MS, weights=weights(shape, steps))
        )
    return runs


def offsets_of(engine_type: type, runs: list[JobRun], iterations: int) -> list[float]:
    engine = engine_type(np.array([1e9]), np.array([1], np.int8), runs, 0)
    begins: list[list[int]] = [[], []]
    while min(map(len, begins)) < iterations:
        engine.advance(engine.next_event())
        for found, run in zip(begins, engine.export(), strict=True):
            if run.begin >= 0 and run.begin not in found[-1:]:
                found.append(run.begin)
    return [(b - a) / PS_PER_MS for a, b in zip(*begins, strict=False)][:iterations]


@pytest.mark.parametrize("shape", SHAPES)
def test_two_jobs_move_as_the_fluid_of_the_thesis(shape: str) -> None:
    fluid = [FluidJob(start, 100.0, 150.0) for start in (0.0, 20.0)]
    wanted = offsets(run_fluid(fluid, SENDERS_SHAPES[shape], 5))
    # Finer steps come closer, to a hundredth of a millisecond.
    assert offsets_of(KernelEngine, pair(shape, 64), 5) == pytest.approx(wanted, abs=0.1)
    assert offsets_of(KernelEngine, pair(shape, 512), 5) == pytest.approx(wanted, abs=0.012)
    coarse = offsets_of(ReferenceEngine, pair(shape, 16), 5)
    assert offsets_of(KernelEngine, pair(shape, 16), 5) == pytest.approx(coarse, abs=1e-6)
    assert (wanted[-1] > 99) == (shape not in FALLING)


FALLING = {"2-1.75r", "2-1.75r^2"}


@pytest.mark.parametrize("seed", range(12))
def test_weighted_rates_and_ends_equal_the_full_resolves(seed: int) -> None:
    random = Random(seed)
    hosts = [h.name for h in FABRIC.topology.hosts]
    runs = []
    for i in range(random.randint(2, 12)):
        src, dst = random.sample(hosts, 2)
        a, b = FABRIC.topology.host[src].leaf, FABRIC.topology.host[dst].leaf
        middle = (a,) if a == b else (a, f"spine{random.randint(1, 2)}", b)
        builder = TaskGraphBuilder()
        channel = builder.channel(src, dst, f"f{i}")
        first = builder.flow([], channel, random.uniform(1e5, 1e7), random.choice([np.inf, 3e8]))
        last = builder.flow([first], channel, random.uniform(1e5, 1e7))
        builder.compute([last], random.randrange(20 * PS_PER_MS))
        shares = tuple(random.uniform(0.1, 4) for _ in range(5)) if random.random() < 0.8 else ()
        klass, start = random.randint(3, 4), random.randrange(20 * PS_PER_MS)
        path = FABRIC.links((src, *middle, dst))
        runs.append(JobRun(f"j{i}", builder.build(), (path,), klass, 4, start, weights=shares))
    ended = []
    for engine_type in (ReferenceEngine, KernelEngine):
        engine = engine_type(FABRIC.capacity, FABRIC.marks, copy.deepcopy(runs), 0)
        while engine.advance(NEVER):
            pass
        ended.append([(run.ended, run.sent.tolist()) for run in engine.export()])
    assert min(end for end, _ in ended[0]) > 0
    assert [e for e, _ in ended[1]] == pytest.approx([e for e, _ in ended[0]], rel=1e-6)
    assert [s[0] for _, s in ended[1]] == pytest.approx([s[0] for _, s in ended[0]])


def test_the_policy_and_a_jobs_own_choice() -> None:
    topology = leaf_spine(2, 1, 2, host_bps=10**10, fabric_bps=10**10)
    cluster = machines(Network(topology), 4)
    shape = Shape((PhaseShape("fused_ring", 1.25e8, before_ns=150_000_000),))
    starts = (0, 20_000_000)

    def mean_ms(policy: str, mltcp: str = "") -> float:
        requests = [
            JobRequest(f"j{i}", "m", start, 2, 60, shape, ranks, mltcp)
            for i, (start, ranks) in enumerate(zip(starts, (("h1", "h3"), ("h2", "h4")), strict=True))
        ]
        simulation = Simulation(cluster, requests, SimulationSettings(policy=policy), scheduler=Fifo())
        simulation.run()
        return float(np.mean([o.total / o.iterations / 1e9 for o in simulation.memory.outcomes.values()]))

    # 20 ms apart they stay so for ever, and overlap for 80 of 100 ms. With MLTCP they share the link in time at
    # 250 ms.
    assert mean_ms("ecmp") == pytest.approx(330, rel=0.01)
    assert mean_ms("mltcp") == pytest.approx(250, rel=0.02)
    assert mean_ms("ecmp", LINEAR) == mean_ms("mltcp")
    assert mean_ms("mltcp-falling") == pytest.approx(350, rel=0.02)
    with pytest.raises(WorkloadError, match="job j0: MLTCP"):
        mean_ms("ecmp", "r")
    windows = {"w": Policy("w", timing=OwnPace(sender="mltcp-reno"))}
    with pytest.raises(
        ValueError, match=r"^policy w: .* no equivalent of sender mltcp-reno; legal: dcqcn, mltcp-dcqcn$"
    ):
        Simulation(cluster, [], SimulationSettings(policy="w"), scheduler=Fifo(), policies=windows)
