# SPDX-License-Identifier: Apache-2.0
"""Collectives, shapes and the routing paper's golden times."""

import numpy as np
import pytest

from controller.model import Profile
from sim.generators import LARGE_MODELS, paper_fabric, paper_jobs
from sim.jobrun import JobRun
from sim.network import HostInternals, Network
from sim.reference import ReferenceEngine
from sim.shape import PhaseShape, Shape, planner_job, program
from sim.task_graph import FLOW, TaskGraphBuilder, TaskGraphError
from sim.units import NEVER, PS_PER_S
from topo.generate import leaf_spine

GOLDEN = {
    "BLOOM": {2: 1.1733333333, 4: 1.76, 8: 2.0533333333},
    "GPT-3": {2: 0.875, 4: 1.3125, 8: 1.53125},
    "LLaMA2": {2: 0.175, 4: 0.2625, 8: 0.30625},
}


@pytest.mark.parametrize("name", sorted(GOLDEN))
@pytest.mark.parametrize("ring", [2, 4, 8])
def test_the_papers_ideal_all_reduce_is_met_step_by_step(name: str, ring: int) -> None:
    # One rank's ring on NICs with nothing between them: 2 (ring - 1) barriers, each rounded to 1 ps.
    model = LARGE_MODELS[name]
    assert model.ideal_s(ring) == pytest.approx(GOLDEN[name][ring], rel=1e-10)
    phase = PhaseShape("ring", model.message_bytes(ring) * ring, before_ns=round(model.compute_s * 1e9))
    members = [f"g{i}" for i in range(ring)]
    built = program(Shape((phase,)), "j", members)
    capacity = np.full(2 * ring, 1e11)
    ways = tuple((2 * int(c.src[1:]), 2 * int(c.dst[1:]) + 1) for c in built.channels)
    run = JobRun("j", built, ways, 4, 1, 0)
    ReferenceEngine(capacity, np.zeros(2 * ring, np.int8), [run], 0).advance(NEVER)
    all_reduce = run.total - round(model.compute_s * PS_PER_S)
    assert abs(all_reduce - round(model.ideal_s(ring) * PS_PER_S)) <= 2 * (ring - 1)


def test_the_papers_jobs_have_one_flow_out_and_one_in_per_nic() -> None:
    topology = paper_fabric(8, 4, 32)
    for job in paper_jobs(topology, [("BLOOM", 2), ("GPT-3", 2)], 7):
        built = program(job.model.shape(job.ring), job.name, job.ranks)
        assert sorted(c.src for c in built.channels) == sorted(job.ranks)
        assert sorted(c.dst for c in built.channels) == sorted(job.ranks)
        assert 1 <= job.start_s <= 10
    assert paper_jobs(topology, [("BLOOM", 2)], 7) == paper_jobs(topology, [("BLOOM", 2)], 7)
    with pytest.raises(ValueError, match=r"job 1 \(BLOOM, ring 8\) wants 384 NICs"):
        paper_jobs(topology, [("BLOOM", 8)], 7)


@pytest.mark.parametrize(
    ("collective", "members", "flows", "total"),
    [
        ("ring", 4, 2 * 3 * 4, 2 * 3 * 100.0),
        ("fused_ring", 4, 4, 2 * 3 * 100.0),
        ("tree", 7, 2 * 6, 2 * 6 * 100.0),
        ("all_to_all", 4, 12, 3 * 100.0),
        ("ring", 1, 0, 0.0),
    ],
)
def test_what_a_collective_sends(collective: str, members: int, flows: int, total: float) -> None:
    phase = PhaseShape(collective, 100.0, after_ns=1)
    built = program(Shape((phase,), qps=2), "j", [f"h{i}" for i in range(members)])
    assert (built.kind == FLOW).sum() == 2 * flows
    assert built.channel_bits.sum() / 8 == pytest.approx(total)


def test_a_tree_reduces_level_by_level() -> None:
    built = program(Shape((PhaseShape("tree", 125.0),)), "j", [f"h{i}" for i in range(5)])
    # 2 levels up, 2 down, 1000 bits each over links of their own.
    assert built.timeline(np.full(len(built.channels), 1e9))[1][-1] == 4 * 1_000_000
    pairs = {(c.src, c.dst) for c in built.channels}
    assert pairs == {(f"h{c}", f"h{p}") for c, p in ((1, 0), (2, 0), (3, 1), (4, 1))} | {
        (f"h{p}", f"h{c}") for c, p in ((1, 0), (2, 0), (3, 1), (4, 1))
    }


def test_gpus_of_a_host_talk_over_nvlink_and_to_others_over_pcie_and_nic() -> None:
    network = Network(leaf_spine(1, 0, 2, host_bps=10**9, fabric_bps=1), HostInternals(5 * 10**8, 4 * 10**9))
    built = program(Shape((PhaseShape("fused_ring", 1e6, after_ns=1),)), "j", ["h1", "h1", "h1", "h2"])
    ways = {
        (c.src, c.dst): network.links((c.src, "leaf1", c.dst) if c.src != c.dst else (c.src,))
        for c in built.channels
    }
    assert [network.names[i] for i in ways["h1", "h1"]] == [("h1", "h1")]
    assert [network.names[i] for i in ways["h1", "h2"]] == [
        ("h1", "h1.nic"),
        ("h1", "leaf1"),
        ("leaf1", "h2"),
        ("h2.nic", "h2"),
    ]
    assert sum(c.src == c.dst for c in built.channels) == 2
    job = planner_job(Shape(()), "j", "m", 4, built, Profile(1, ()))
    assert [(f.src, f.dst) for f in job.flows] == [("h1", "h2"), ("h2", "h1")]


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(TaskGraphError, match="'star' is no collective"):
        PhaseShape("star", 1.0)
    with pytest.raises(TaskGraphError, match="cannot be negative"):
        PhaseShape("ring", -1.0)
    with pytest.raises(TaskGraphError, match="an iteration needs time"):
        program(Shape((PhaseShape("ring", 0.0),)), "j", ["a", "b"])
    with pytest.raises(TaskGraphError, match="0 QPs"):
        program(Shape((PhaseShape("ring", 1.0),), qps=0), "j", ["a", "b"])
    with pytest.raises(TaskGraphError, match="not all there yet in its loop"):
        TaskGraphBuilder().barrier([5])


def test_each_rank_of_a_job_of_messages_has_a_loop() -> None:
    phase = PhaseShape("messages", 0.0, after_ns=5, messages=((0, 1, 125.0), (1, 0, 250.0)))
    built = program(Shape((phase,)), "j", ["a", "b"])
    assert len(built.loops) == 3
    assert [(c.flow, bits) for c, bits in zip(built.channels, built.channel_bits, strict=True)] == [
        ("j/a>b", 1000.0),
        ("j/b>a", 2000.0),
    ]
    assert built.busy_ps == 5 * 1000
    assert len(program(Shape((phase,)), "j", ["a", "b"], barriers=True).loops) == 2
    with pytest.raises(TaskGraphError, match="an iteration needs time"):
        # The third rank has nothing to wait for.
        program(Shape((PhaseShape("messages", 0.0, messages=((0, 1, 125.0),)),)), "j", ["a", "b", "c"])
    builder = TaskGraphBuilder()
    with pytest.raises(TaskGraphError, match="cannot give a token"):
        builder.give(0, 0)
