# SPDX-License-Identifier: Apache-2.0
"""Priorities in the planner: hysteresis, path order, baselines by name, and levels without compression."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from controller.interleave.timing import OwnPace
from controller.model import TRAFFIC_CLASSES, Flow, Job, Phase, Plan, Profile
from controller.planner import POLICIES, PlanInput, explain, plan
from topo.generate import leaf_spine, three_tier

MS = 1_000_000
G = 25_000_000_000


def job(name: str, src: str, dst: str, flops: float, up_ms: float = 100) -> Job:
    flows = tuple(
        Flow(f"{name}/{a}>{b}", name, a, b, round(G * up_ms / 8e3)) for a, b in ((src, dst), (dst, src))
    )
    profile = Profile(260 * MS, (Phase(0, round(up_ms * MS), G),))
    return Job(name, "model", 16, (src, dst), profile, flops, flows)


def many_jobs(count: int, seed: int = 0) -> tuple[Job, ...]:
    """Jobs that all go from one leaf to the other, of intensities all different."""
    rng = random.Random(seed)
    flops = rng.sample(range(1, 10 * count), count)
    return tuple(job(f"j{i:02}", f"h{i + 1}", f"h{i + 31}", 1e12 * flops[i]) for i in range(count))


def narrow(spines: int = 1) -> PlanInput:
    fabric = leaf_spine(2, spines, 30, host_bps=G, fabric_bps=G)
    return PlanInput(fabric, (), POLICIES["crux"], 0)


def levels(made: Plan) -> dict[str, int]:
    return {j.job: j.level for j in made.jobs.values()}


def kept_apart(made: Plan) -> float:
    """The contention of a plan on one link (all meet) that levels keep apart, as a part of all of it."""
    ranked = sorted(
        (j for j in made.jobs.values() if j.intensity is not None), key=lambda j: -(j.intensity or 0)
    )
    level = levels(made)
    total = cut = 0.0
    for i, high in enumerate(ranked):
        for low in ranked[i + 1 :]:
            total += high.intensity or 0
            cut += (high.intensity or 0) * (level[high.job] != level[low.job])
    return cut / total


@pytest.mark.parametrize("name", ["crux", "polyrhythm"])
def test_a_cap_on_losses_bends_the_order(name: str) -> None:
    """The first job leaves the other 90 of 260 ms, which needs 170: alone on two levels it loses half."""
    jobs = tuple(
        job(n, f"h{i}", f"h{i + 30}", f, 170) for i, (n, f) in enumerate((("a", 9e14), ("b", 1e12)), 1)
    )
    policy = replace(POLICIES[name], timing=OwnPace(), joint_search=False, max_slowdown=None)
    free = plan(replace(narrow(), jobs=jobs, policy=policy))
    assert levels(free)["a"] < levels(free)["b"]
    capped = plan(replace(narrow(), jobs=jobs, policy=policy.with_options({"loss_cap": 0.4})))
    assert levels(capped)["a"] == levels(capped)["b"]
    assert "equal to b; cap on losses 40% met" in capped.jobs["a"].why
    generous = plan(replace(narrow(), jobs=jobs, policy=policy.with_options({"loss_cap": 0.9})))
    assert levels(generous) == levels(free)
    impossible = plan(replace(narrow(), jobs=jobs, policy=policy.with_options({"loss_cap": 0.0})))
    assert "cap on losses 0% not met" in impossible.jobs["b"].why
    with pytest.raises(ValueError, match="a loss cap is from 0 to 1"):
        policy.with_options({"loss_cap": 2})


def test_more_jobs_than_can_be_played_through_have_no_cap_and_say_so() -> None:
    fabric = leaf_spine(2, 1, 40, host_bps=G, fabric_bps=G)
    jobs = tuple(job(f"j{i:02}", f"h{i + 1}", f"h{i + 41}", 1e12 + i) for i in range(33))
    made = plan(PlanInput(fabric, jobs, POLICIES["crux-fair"], 0))
    assert "no cap on losses: more than 32 jobs contend" in made.jobs["j00"].why
    assert levels(made) == levels(plan(PlanInput(fabric, jobs, POLICIES["crux"], 0)))


@pytest.mark.parametrize("policy", ["crux", "polyrhythm"])
def test_jobs_that_meet_on_a_pcie_link_alone_get_levels_too(policy: str) -> None:
    fabric = leaf_spine(2, 2, 1, host_bps=4 * G, fabric_bps=4 * G)
    jobs = tuple(job(name, "h1", "h2", flops, 170) for name, flops in (("low", 1e12), ("high", 9e12)))
    apart = PlanInput(fabric, jobs, POLICIES[policy], 0)
    assert len(set(levels(plan(apart)).values())) == 1
    meet = replace(apart, jobs=tuple(replace(j, pcie_link="gpu0", pcie_bps=G) for j in jobs))
    made = plan(meet)
    if policy == "crux":
        assert levels(made) == {"high": 0, "low": 1}
        assert "before low" in made.jobs["high"].why
    else:
        assert levels(made) == {"high": 0, "low": 1} or all(j.period_ns for j in made.jobs.values())
    assert ("h1:gpu0", "h1") in {(link.src, link.dst) for link in made.links}
    other = replace(meet, jobs=(meet.jobs[0], replace(meet.jobs[1], pcie_link="gpu1")))
    assert len(set(levels(plan(other)).values())) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_new_job_does_not_reshuffle_the_levels_of_the_others(seed: int) -> None:
    jobs = many_jobs(20, seed)
    inputs = narrow()
    first = plan(replace(inputs, jobs=jobs))
    assert len(set(levels(first).values())) == 6
    star = job("star", "h25", "h55", 55e12)
    second = plan(replace(inputs, jobs=(*jobs, star), previous=first))
    afresh = plan(replace(inputs, jobs=(*jobs, star)))
    moved = [n for n, level in levels(first).items() if levels(second)[n] != level]
    assert len(moved) <= 1
    assert kept_apart(second) >= 0.95 * kept_apart(afresh)
    third = plan(replace(inputs, jobs=jobs, previous=second))
    assert [n for n, level in levels(third).items() if levels(second)[n] != level] == []


def test_the_levels_of_another_policy_hold_nobody() -> None:
    jobs = many_jobs(12)
    inputs = replace(narrow(), jobs=jobs)
    equal = plan(replace(inputs, policy=POLICIES["ecmp"]))
    assert levels(plan(replace(inputs, previous=equal))) == levels(plan(inputs))


def test_every_arrival_departure_and_move_is_planned_anew_and_stays_valid() -> None:
    """A job more, a job less, a job on other hosts: the order of those that meet is by priority always."""
    rng = random.Random(7)
    waiting, running = list(many_jobs(24, 3)), []
    before: Plan | None = None
    for step in range(40):
        if waiting and (not running or rng.random() < 0.6):
            running.append(waiting.pop())
        elif step % 2:
            gone = running.pop(rng.randrange(len(running)))
            waiting.append(gone)
        else:
            i = rng.randrange(len(running))
            old = running[i]
            a, b = (f"h{rng.randint(1, 30)}", f"h{rng.randint(31, 60)}")
            running[i] = job(old.name, a, b, old.flops_per_iteration)
        made = plan(replace(narrow(), jobs=tuple(running), previous=before))
        assert made.version == (before.version + 1 if before else 1)
        assert set(made.jobs) == {j.name for j in running}
        by_intensity = sorted(made.jobs.values(), key=lambda j: -(j.intensity or 0))
        assert [j.level for j in by_intensity] == sorted(j.level for j in by_intensity)
        assert all(0 <= j.level < 6 for j in by_intensity)
        before = made


@pytest.mark.parametrize("name", ["crux", "crux-ps-pa", "intensity", "polyrhythm"])
def test_the_most_intense_jobs_choose_their_paths_first(name: str) -> None:
    """The two most intense have different spines, whatever the others take after them (CRUX, 4.1)."""
    order = list(enumerate((1, 9, 2, 8)))
    for spines in (2, 3):
        jobs = tuple(job(f"j{i}", f"h{i + 1}", f"h{i + 31}", f * 1e13, up_ms=200) for i, f in order)
        made = plan(replace(narrow(spines), jobs=jobs, policy=POLICIES[name]))
        ways = {n: {f.path[2] for f in made.flows.values() if f.path and f.flow[:2] == n} for n in made.jobs}
        assert ways["j1"].isdisjoint(ways["j3"])
        if spines == 3:
            assert ways["j2"].isdisjoint(ways["j1"] | ways["j3"])


def test_taccl_lets_the_farthest_choose_first_and_go_first() -> None:
    fabric = three_tier(2, 2, 1, 1, 4, host_bps=G, fabric_bps=G)
    near, far, local = (
        job("near", "h1", "h5", 9e13),
        job("far", "h2", "h9", 1e12),
        job("local", "h3", "h4", 9e14),
    )
    made = plan(PlanInput(fabric, (near, far, local), POLICIES["taccl"], 0))
    assert levels(made)["far"] < levels(made)["near"] < levels(made)["local"]
    assert "by taccl's order" in made.jobs["far"].why


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_plans_any_jobs(name: str) -> None:
    for count in (0, 1, 2, 9):
        silent = Job("silent", "model", 8, ("h9",), Profile(100 * MS, ()), 1e12, ())
        jobs = (*many_jobs(count), silent)
        made = plan(replace(narrow(2), jobs=jobs, policy=POLICIES[name]))
        assert set(made.jobs) == {j.name for j in jobs}
        assert {j.dscp for j in made.jobs.values()} <= set(TRAFFIC_CLASSES.levels)
        assert explain(made).startswith(f"plan 1, policy {name}")
        if POLICIES[name].priority.orders_jobs:
            assert levels(made)["silent"] == max(levels(made).values())


def test_without_compression_every_job_that_meets_others_has_a_level_of_its_own() -> None:
    jobs = many_jobs(10)
    made = plan(replace(narrow(), jobs=jobs, policy=POLICIES["crux-pa"]))
    assert sorted(levels(made).values()) == list(range(10))
    # The switches have six: those beyond share the last one's queue.
    assert {j.dscp for j in made.jobs.values() if j.level >= 5} == {TRAFFIC_CLASSES.levels[5]}
    assert kept_apart(made) == 1.0
    assert set(levels(plan(replace(narrow(), jobs=jobs))).values()) == set(range(6))


def test_pairs_of_jobs_that_send_nothing_are_no_contention() -> None:
    """Flows of no bytes, with no limit for mice: they have paths and no intensity."""
    empty = tuple(
        replace(j, flows=tuple(replace(f, bytes_per_iteration=0) for f in j.flows)) for j in many_jobs(2)
    )
    made = plan(replace(narrow(), jobs=empty, elephant_bytes=0))
    assert {j.intensity for j in made.jobs.values()} == {None}


def test_too_many_jobs_for_the_loop_get_no_turns_that_others_upset() -> None:
    fabric = leaf_spine(2, 2, 30, host_bps=G, fabric_bps=G)
    jobs = []
    for i in range(17):
        # Pairs that could share links in time, some of which overlap: more jobs than the search evaluates.
        jobs += [job(f"j{i:02}{side}", f"h{i + 1}", f"h{i + 31}", 1e12 * (i + 1), 100) for side in "ab"]
    assert len(jobs) > 32
    inputs = PlanInput(fabric, tuple(jobs), POLICIES["polyrhythm"], 0)
    made = plan(inputs)
    held = {j.job for j in made.jobs.values() if j.period_ns}
    for link in made.links:
        users = set(link.jobs)
        if users & held and len(users) > 1 and link.score < 1:
            assert users <= held
    for planned in made.jobs.values():
        assert planned.expected_ns is not None
        assert planned.expected_ns <= (planned.floor_ns or 0)
    reasons = [j.why for j in made.jobs.values() if "disturbed" in j.why]
    assert reasons


def test_jobs_that_slots_keep_apart_have_one_level_also_after_a_plan_with_two() -> None:
    """On a lower level a burst that lasts a little too long would wait for the whole burst of the other job."""
    a, b = job("a", "h1", "h31", 2e12, up_ms=130), job("b", "h2", "h32", 2e12, up_ms=130)
    a = replace(a, profile=replace(a.profile, period_ns=315 * MS))
    b = replace(b, profile=replace(b.profile, period_ns=320 * MS))
    other = replace(b, profile=replace(b.profile, period_ns=450 * MS))
    x = replace(narrow(), jobs=(a, other), policy=POLICIES["polyrhythm"])
    before = plan(x)
    assert sorted(levels(before).values()) == [0, 1]
    made = plan(replace(x, jobs=(a, b), previous=before))
    assert all(j.period_ns for j in made.jobs.values())
    assert levels(made) == {"a": 0, "b": 0}
    assert all("needs no order" in j.why for j in made.jobs.values())
