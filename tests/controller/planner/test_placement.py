# SPDX-License-Identifier: Apache-2.0
"""Placements: candidates that differ, ranked by who would share links."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model import Flow, Job, Phase, Profile
from controller.placement.candidates import placements
from controller.planner import POLICIES, PlanInput
from controller.planner.placement import Compatibility, compatibility, most_compatible, rank_placements
from topo.generate import leaf_spine

MS, RATE = 1_000_000, 50_000_000
FABRIC = leaf_spine(5, 1, 4, host_bps=RATE, fabric_bps=RATE)
FREE = {"leaf1": ["h1", "h2"], "leaf2": ["h5", "h6", "h7"], "leaf3": ["h9"], "leaf4": []}


def job(name: str, hosts: tuple[str, ...], period: int, up: int) -> Job:
    pairs = [(a, hosts[(i + 1) % len(hosts)]) for i, a in enumerate(hosts)]
    flows = tuple(Flow(f"{name}/{a}>{b}", name, a, b, RATE * up // 8000) for a, b in pairs)
    return Job(name, "m", len(hosts), hosts, Profile(period * MS, (Phase(0, up * MS, RATE),)), 1e12, flows)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 5), max_size=6),
    st.integers(1, 12),
    st.integers(1, 10),
)
def test_placements_are_different_sets_of_free_hosts(room: dict[str, int], hosts: int, most: int) -> None:
    free = {leaf: [f"{leaf}{i}" for i in range(n)] for leaf, n in room.items()}
    found = placements(free, hosts, most=most)
    every = {h for names in free.values() for h in names}
    assert len(found) <= most
    assert bool(found) == (len(every) >= hosts)
    assert len({frozenset(p) for p in found}) == len(found)
    assert all(len(set(p)) == hosts and set(p) <= every for p in found)
    assert found == placements(free, hosts, most=most)


def test_one_leaf_comes_first() -> None:
    assert placements(FREE, 2)[:2] == [("h1", "h2"), ("h5", "h6")]
    assert placements(FREE, 7) == []
    with pytest.raises(ValueError, match="whole numbers from 1"):
        placements(FREE, 0)


def test_a_job_goes_where_it_can_take_turns() -> None:
    """Leaf 1's uplink has a job that fits beside the new one, leaf 2's one that does not."""
    running = (job("fits", ("h1", "h13"), 200, 90), job("clashes", ("h5", "h17"), 200, 150))
    inputs = PlanInput(FABRIC, running, POLICIES["polyrhythm"], 0)
    wanted = [("h6", "h9"), ("h2", "h10"), ("h9", "h10")]
    candidates = [job("new", hosts, 200, 90) for hosts in wanted]
    found = rank_placements(inputs, candidates)
    assert [f.index for f in found] == [1, 2, 0]
    assert [round(f.compatibility, 3) for f in found] == [1.0, 1.0, 0.8]
    assert [(k.link, k.jobs) for k in found[0].links] == [
        (("leaf1", "spine1"), ("fits", "new")),
        (("spine1", "leaf1"), ("fits", "new")),
    ]
    assert found[0].why == "on all of 2 full links the jobs take turns without excess"
    assert (found[1].links, found[1].why) == ((), "no link would carry more than its rate")
    assert "leaf2-spine1 is the worst: clashes, new together exceed it by 20.0 % of its rate" in found[2].why
    with ThreadPoolExecutor(3) as pool:
        assert rank_placements(inputs, candidates, mapper=pool.map) == found


def test_loops_count_with_their_loss_and_are_left_out_where_the_thesis_does() -> None:
    """Three jobs that share three uplinks pairwise cannot all take turns."""
    running = (job("a", ("h1", "h5"), 30, 12), job("b", ("h6", "h9"), 30, 12))
    inputs = PlanInput(FABRIC, running, POLICIES["polyrhythm"], 0)
    candidates = [job("c", ("h10", "h2"), 30, 12), job("c", ("h13", "h17"), 30, 12)]
    found = rank_placements(inputs, candidates)
    assert [(f.index, f.loops) for f in found] == [(1, False), (0, True)]
    # The jobs together miss 6 of 30 ms, on one of three links each way.
    assert found[1].compatibility == pytest.approx(1 - 6 / 30 / 3, abs=1e-6)
    assert found[1].lost == pytest.approx(6 / 30 / 3, abs=1e-6)
    assert found[1].why.endswith("; a loop in the affinity graph makes their shifts a compromise")
    assert [f.index for f in rank_placements(inputs, candidates, loops=False)] == [1]


def test_a_candidate_without_a_path_comes_last() -> None:
    down = frozenset({("leaf1", "spine1")})
    clashing = (job("clashes", ("h5", "h17"), 200, 150),)
    inputs = PlanInput(FABRIC, clashing, POLICIES["polyrhythm"], 0, down)
    candidates = [job("new", ("h1", "h9"), 200, 150), job("new", ("h6", "h9"), 200, 150)]
    found = rank_placements(inputs, candidates)
    assert [(f.index, f.cut_off) for f in found] == [(1, ()), (0, ("new/h1>h9", "new/h9>h1"))]
    assert found[0].compatibility < found[1].compatibility == 1.0
    assert found[1].why.startswith("2 of its 2 flows have no path, new/h1>h9 first")


def test_what_cannot_be_ranked_is_refused() -> None:
    inputs = PlanInput(FABRIC, (), POLICIES["polyrhythm"], 0)
    with pytest.raises(ValueError, match="0 candidates; legal: 1 to 64"):
        rank_placements(inputs, [])
    with pytest.raises(ValueError, match="65 candidates; legal: 1 to 64"):
        rank_placements(inputs, [job("new", ("h1", "h5"), 200, 90)] * 65)
    with pytest.raises(ValueError, match="h99"):
        rank_placements(inputs, [job("new", ("h1", "h99"), 200, 90)])


def test_the_best_candidate_has_no_loop_and_if_all_have_one_it_is_the_first() -> None:
    looped, poor, good = (
        Compatibility(score, 0.0, loops, (), ()) for score, loops in ((1, 1), (0.5, 0), (0.9, 0))
    )
    cut_off = Compatibility(1, 0.0, 0, (), ("flow",))
    assert most_compatible([looped, poor, good, good, cut_off]) == 2
    assert most_compatible([looped, looped]) == 0
    assert most_compatible([looped, cut_off]) == 1


@pytest.mark.parametrize("policy", ["cassini", "ecmp", "mltcp"])
def test_jobs_are_judged_together_also_where_a_plan_would_need_no_paths(policy: str) -> None:
    jobs = (job("a", ("h1", "h5"), 200, 90), job("b", ("h2", "h6"), 200, 150))
    found = compatibility(PlanInput(FABRIC, jobs, POLICIES[policy], 0))
    assert found.score == pytest.approx(0.8, abs=1e-6)
    assert {k.jobs for k in found.links} == {("a", "b")}
