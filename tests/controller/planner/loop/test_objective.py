# SPDX-License-Identifier: Apache-2.0
"""The objective of the search: a floor for each job, twins alike, then utilisation; held against a plain reference."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instance_rig import MS, G, random_choice, random_instance

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import Choice, Instance, JointFlow, JointJob, Step, plain
from controller.interleave.joint.sharing_groups import sharing_of
from controller.planner.loop.improvement import PlanLine, Shortlist
from controller.planner.loop.levels import LevelsFor
from controller.planner.loop.moves import level_moves
from controller.planner.loop.objective import (
    CERTAIN,
    ERROR,
    MISSED_COST,
    NEAR,
    SLOT_ERROR,
    TWINS_APART,
    UTILISATION,
    Objective,
    PlanValue,
    best,
    improves,
    replaces,
    twins_of,
)
from controller.planner.loop.plan_values import PlanValues
from controller.planner.loop.search import SearchLimits, solve

LIMITS = SearchLimits(
    evaluations=40, quick=Effort((1,), 10), thorough=Effort((2, 3), 24), arranged_sets=1, exchanges=100
)


def player(
    name: str, up: float, compute: float, weight: float = 1, links: tuple[int, ...] = (0,)
) -> JointJob:
    step = Step(round(up * MS), 50 * G, round(compute * MS))
    return JointJob(name, weight, (step,), (JointFlow(1.0, (links,)),))


def worst_excess(instance: Instance, choice: Choice, objective: Objective) -> tuple[float, float]:
    """(a) and (b) in the plainest way: the part by which the worst job exceeds its limit, and by how much the
    twins that are farthest apart are. Jobs that nothing distinguishes share their mean."""
    by_seed = Evaluator(instance, plain=True).lengths(choice, LIMITS.thorough)
    lengths = by_seed.mean(axis=0)
    use = [set() for _ in instance.jobs]  # type: list[set[tuple[int, ...]]]
    full = {
        k
        for streams in sharing_of(instance, choice.path_choice).streams.values()
        for s in streams
        for k in s.links
    }
    paths = iter(choice.path_choice)
    alike: dict[object, list[int]] = {}
    for j, job in enumerate(instance.jobs):
        flows = sorted(
            (flow.relative_size, tuple(sorted(full & set(flow.candidate_paths[next(paths)]))))
            for flow in job.flows
        )
        use[j] = {links for _, links in flows if links}
        if use[j]:
            alike.setdefault((job.steps, job.weight, job.mltcp_capable, tuple(flows)), []).append(j)
    expected = list(lengths)
    for jobs in alike.values():
        free = [j for j in jobs if choice.timings[j] == (0, 0)]
        for j in free:
            same = [
                i for i in free if (choice.level[i], choice.mltcp[i]) == (choice.level[j], choice.mltcp[j])
            ]
            expected[j] = sum(lengths[i] for i in same) / len(same)
    breach = 0.0
    for j, (ns, own, timing) in enumerate(zip(expected, by_seed.T, choice.timings, strict=True)):
        keeps = timing != (0, 0) and ns <= 1.02 * timing[0]
        spread = float(np.std(own)) / ns if timing == (0, 0) else 0.0
        if timing != (0, 0) and not keeps:
            spread = whole_periods(ns / timing[0])
        error = CERTAIN * math.hypot(SLOT_ERROR if keeps else ERROR, spread, *objective.errors[j : j + 1])
        limit = max(objective.floors[j] / (1 + error), *objective.reference[j : j + 1], 0.0)
        breach = max(breach, ns / limit - 1)
    pairs = [p for jobs in alike.values() for p in combinations(jobs, 2)]
    apart = max(
        (max(expected[a], expected[b]) / min(expected[a], expected[b]) - 1 for a, b in pairs), default=0.0
    )
    return breach, max(0.0, apart - TWINS_APART)


def whole_periods(count: float) -> float:
    """The standard error of the mean of 20 iterations of whole periods, `count` of them in the mean."""
    part = count % 1
    return math.sqrt(part * (1 - part) / 20) / count


def crowd(rng: random.Random) -> Instance:
    """Some jobs on a few links; often several of them are alike."""
    jobs: list[JointJob] = []
    while len(jobs) < rng.randint(2, 4):
        up, compute, weight = rng.randint(10, 120), rng.randint(10, 120), rng.choice([1, 1, 8])
        links = tuple(sorted(rng.sample(range(2), rng.randint(1, 2))))
        for _ in range(rng.choice([1, 1, 2, 3])):
            jobs.append(player(f"j{len(jobs)}", up, compute, weight, links))
    return Instance(tuple(jobs[:5]), (50 * G,) * 2, jitter=0.01)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 1.2, 1.5, 3.0]))
def test_the_search_keeps_the_floor_and_treats_twins_alike_wherever_a_plan_without_harm_is_known(
    seed: int, most: float
) -> None:
    rng = random.Random(seed)
    instance = crowd(rng)
    ecmp = plain(instance, (0,) * len(instance.flows))
    reference = Evaluator(instance, plain=True).lengths(ecmp, Effort((7, 8, 9), 24)).mean(axis=0)
    objective = Objective(tuple(most * reference), tuple(reference), TWINS_APART)
    found = solve(
        instance,
        {"ecmp": ecmp.path_choice},
        objective=objective,
        mltcp=True,
        limits=LIMITS,
        plain=True,
        fast=False,
        seed=seed,
    )
    breach, apart = worst_excess(instance, found.choice, objective)
    assert (breach, apart) == pytest.approx((found.value.breach, found.value.twin_gap), abs=1e-9)
    known, known_apart = worst_excess(instance, ecmp, objective)
    if known == 0:
        assert breach == 0
        assert apart <= known_apart + 0.01
    else:
        assert breach == 0 or max(breach, apart) <= max(known, known_apart) + 0.01
    # Whatever has more utilisation by a step, and is no worse in the floor and for twins, was not there.
    for name, utilisation in found.baselines.items():
        if utilisation > found.utilisation * (1 + NEAR + LIMITS.min_gain):
            assert found.value.met or known > 0, name
    if found.refused is not None:
        assert found.refused.value.rank > found.value.rank
        assert found.refused.value.mean > found.value.mean


@pytest.mark.parametrize("seed", range(20))
def test_values_of_random_plans_are_the_references(seed: int) -> None:
    rng = random.Random(seed)
    instance = random_instance(rng, rng.randint(2, 5))
    choice = random_choice(rng, instance)
    evaluator = Evaluator(instance, plain=True)
    lengths = evaluator.lengths(choice, LIMITS.thorough)
    objective = Objective(tuple(rng.uniform(0.8, 1.5) * p.alone_ns for p in instance.jobs), (), TWINS_APART)
    twins = twins_of(instance, sharing_of(instance, choice.path_choice))
    value = objective.value(lengths, evaluator.used(lengths), twins, choice)
    assert (value.breach, value.twin_gap) == pytest.approx(worst_excess(instance, choice, objective))
    wronged = objective.wronged(value, twins)
    assert bool(wronged) == (value.breach > 0 or value.twin_gap > 0)


def value(
    utilisation: float,
    breach: float = 0.0,
    gap: float = 0.0,
    worst: float = 1.0,
    unlike: int = 0,
    missing: int = 0,
    delicate: int = 0,
) -> PlanValue:
    return PlanValue((1.0,), (utilisation, utilisation), breach, gap, worst, unlike, missing, delicate)


def test_the_order_is_floor_then_twins_then_utilisation_then_the_worst_off() -> None:
    high, fair, even = value(0.9, breach=0.2), value(0.5, gap=0.3), value(0.4)
    assert best({"high": high, "fair": fair, "even": even}) == "even"
    assert best({"high": high, "fair": fair}) == "fair"
    assert best({"higher": value(0.95, breach=0.3), "high": high}) == "high"
    # Where all plans break a limit, equal jobs do not starve for a smaller breach.
    assert best({"apart": value(0.9, breach=0.1, gap=1.4), "alike": value(0.4, breach=0.3)}) == "alike"
    assert best({"apart": value(0.4, breach=0.1, gap=0.1), "slow": value(0.9, breach=0.9)}) == "apart"
    # Within 1 % the worst-off job decides, then whether twins are treated alike, then utilisation.
    near = {"most": value(0.500, worst=1.4), "better": value(0.496, worst=1.2), "far": value(0.49, worst=1.0)}
    assert best(near) == "better"
    assert best({"odd": value(0.5, unlike=1), "alike": value(0.499)}) == "alike"
    assert best({"less": value(0.5), "more": value(0.501)}) == "more"
    # Slots that jobs keep come before who is worst off.
    assert best({"missed": value(0.5, missing=1), "kept": value(0.499, worst=1.2)}) == "kept"
    assert best({"missed": value(0.5, missing=1), "kept": value(0.48)}) == "kept"
    assert best({"missed": value(0.51 / (1 - MISSED_COST), missing=1), "kept": value(0.5)}) == "missed"
    assert best({"missed": value(0.5, missing=1), "delicate": value(0.5, delicate=1)}) == "delicate"
    assert best({"delicate": value(0.5, delicate=1), "robust": value(0.499, worst=1.2)}) == "robust"
    assert improves(value(0.5), value(0.51, missing=1), 0.01)
    assert not improves(value(0.51, missing=1), value(0.5), 0.01)
    assert improves(fair, high, 0.01)
    assert not improves(high, even, 0.01)
    assert improves(value(0.51), value(0.5), 0.01)
    assert not improves(value(0.504), value(0.5), 0.01)


def test_a_plan_in_force_is_replaced_for_harm_for_utilisation_or_for_a_much_better_worst_off_job() -> None:
    kept = value(0.5, worst=1.4)
    assert replaces(value(0.1), value(0.5, breach=0.05), 0.01)
    assert replaces(value(0.1), value(0.5, gap=0.05), 0.01)
    assert replaces(value(0.51, worst=1.5), kept, 0.01)
    assert not replaces(value(0.504, worst=1.4), kept, 0.01)
    assert replaces(value(0.496, worst=1.2), kept, 0.01)
    assert not replaces(value(0.496, worst=1.38), kept, 0.01)
    assert not replaces(value(0.48, worst=1.0), kept, 0.01)
    assert not replaces(value(0.496, worst=1.2, delicate=1), kept, 0.01)
    assert replaces(kept, value(0.5, worst=1.4, delicate=1), 0.01)
    assert not replaces(value(0.52, missing=1, worst=1.4), kept, 0.01)
    assert replaces(value(0.54, missing=1, worst=1.4), kept, 0.01)


def test_slots_on_one_level_are_taken_where_longer_bursts_cost_a_lower_job_its_slot() -> None:
    jobs = (player("a", 294, 346), player("b", 294, 346))
    instance = Instance(jobs, (50 * G,), 0.01, slots_move=True, queues=(True,))
    period = 641 * MS
    timings = ((period, 0), (period, period // 2))
    alike, apart = (Choice((0, 0), level, timings, (False, False)) for level in ((0, 0), (0, 5)))
    values = PlanValues(Evaluator(instance), UTILISATION)
    effort = Effort((1, 2), 30, 0.02)
    found = {"apart": values.value(apart, effort), "alike": values.value(alike, effort)}
    assert [v.delicate for v in found.values()] == [1, 0]
    assert found["apart"].lengths == pytest.approx(found["alike"].lengths, rel=0.01)
    assert best(found) == "alike"


@pytest.mark.parametrize("error", [0.0, 0.1])
def test_a_limit_is_below_the_floor_by_all_errors_in_quadrature(error: float) -> None:
    # Jobs of one period keep their start times: the mean of 100 and 140 says nothing about either of them.
    objective = Objective((150.0,), (100.0,), errors=(error,))
    even, uneven = np.array([[120.0], [120.0]]), np.array([[100.0], [140.0]])
    found = objective.value(even, np.array([0.5, 0.5]))
    assert found.limits == pytest.approx((150 / (1 + CERTAIN * math.hypot(ERROR, error)),))
    assert found.met == (error == 0)
    found = objective.value(uneven, np.array([0.5, 0.5]))
    assert found.lengths == (120.0,)
    limit = max(100.0, 150 / (1 + CERTAIN * math.hypot(ERROR, error, 20 / 120)))
    assert found.limits == pytest.approx((limit,))
    assert found.breach == pytest.approx(120 / limit - 1)
    assert objective.wronged(found, ()) == {0}


def test_no_limit_of_a_floor_is_below_the_iteration_under_ecmp_but_that_of_a_cap_may_be() -> None:
    used, lengths = np.array([0.5, 0.5]), np.array([[95.0], [105.0]])
    assert Objective((150.0,), (100.0,), errors=(0.5,)).value(lengths, used).limits == (100.0,)
    capped = Objective((150.0,), (100.0,), caps=(84.0,)).value(lengths, used)
    assert capped.limits == pytest.approx((84 / 1.05,))
    assert Objective((), (100.0,), caps=(84.0,)).value(lengths, used).limits == capped.limits


def test_a_job_that_keeps_its_slots_has_another_limit() -> None:
    instance = Instance((player("a", 60, 40), player("b", 60, 40)), (50 * G,))
    objective = Objective((150.0, 150.0), (100.0, 100.0))
    sure, other = 150 / (1 + CERTAIN * SLOT_ERROR), 150 / (1 + CERTAIN * ERROR)
    assert objective.slot_limits == pytest.approx((sure, sure))
    used, free = np.array([0.5]), plain(instance, (0, 0))
    slots = replace(free, timings=((140, 0), (140, 60)))
    lengths = np.array([[140.0, 140.0]])
    assert objective.value(lengths, used, (), slots).met
    assert objective.value(lengths, used, (), free).breach == pytest.approx(140 / other - 1)
    # The second job takes 138 with slots every 130: it does not keep them.
    missed = objective.value(
        np.array([[135.0, 138.0]]), used, (), replace(slots, timings=((135, 0), (130, 60)))
    )
    assert missed.missing == 1
    other = 150 / (1 + CERTAIN * math.hypot(ERROR, whole_periods(138 / 130)))
    assert missed.limits == pytest.approx((sure, other))
    assert missed.breach == pytest.approx(138 / other - 1)
    assert objective.wronged(missed, ()) == {1}


def test_a_job_that_misses_every_second_slot_may_take_longer_than_expected() -> None:
    """battery-3-83: 1.53 periods of 458 ms were expected, 1.28 times the iteration under ECMP. On packets it was
    2.15 periods. Jobs that take two periods at a time, as expected, are surer."""
    floors = (1.5 * 544.0,)
    objective = Objective(floors, (544.0,))
    slots = Choice((0,), (0,), ((458, 0),), (False,))
    used = np.array([0.5])
    assert not objective.value(np.array([[698.0]]), used, (), slots).met
    other = replace(slots, timings=((332, 0),))
    assert objective.value(np.array([[698.0]]), used, (), other).met
    kept = replace(slots, timings=((698, 0),))
    assert objective.value(np.array([[698.0]]), used, (), kept).met


def test_twins_are_jobs_alike_on_the_same_full_links() -> None:
    jobs = (player("a", 60, 40), player("b", 60, 40), player("c", 60, 41), player("d", 60, 40, weight=2))
    instance = Instance((*jobs, player("e", 60, 40, links=(1,))), (50 * G,) * 2)
    assert twins_of(instance, sharing_of(instance, (0,) * 5)) == ((0, 1),)
    wide = Instance(jobs, (400 * G,))
    assert twins_of(wide, sharing_of(wide, (0,) * 4)) == ()


def test_interchangeable_twins_share_their_mean_and_others_do_not() -> None:
    instance = Instance((player("a", 60, 40), player("b", 60, 40)), (50 * G,))
    lengths, used = np.array([[100.0, 140.0]]), np.array([0.5])
    fair = plain(instance, (0, 0))
    objective = Objective((150.0, 150.0), (100.0, 100.0), TWINS_APART)
    pooled = objective.value(lengths, used, ((0, 1),), fair)
    assert pooled.lengths == (120.0, 120.0)
    assert pooled.met
    ranked = Choice(fair.path_choice, (0, 1), fair.timings, fair.mltcp)
    apart = objective.value(lengths, used, ((0, 1),), ranked)
    assert apart.lengths == (100.0, 140.0)
    assert apart.breach == pytest.approx(140 / 150 * (1 + CERTAIN * ERROR) - 1)
    assert apart.twin_gap == pytest.approx(0.3)
    assert apart.worst == pytest.approx(1.4)
    assert apart.unlike == 1
    assert objective.wronged(apart, ((0, 1),)) == {0, 1}


def test_twins_change_their_level_together() -> None:
    instance = Instance((*(player(n, 60, 40) for n in "abc"), player("d", 60, 40, weight=2)), (50 * G,))
    choice = replace(plain(instance, (0,) * 4), level=(1, 1, 1, 0))
    group = Evaluator(instance, plain=True).groups(choice)[0]
    (twins,) = twins_of(instance, sharing_of(instance, choice.path_choice))
    found = list(level_moves(instance, LevelsFor(instance), choice, group, random.Random(1), (twins,)))
    # CRUX's order tells equal jobs apart.
    own = [m for m in found if m.words != "levels by intensity"]
    assert {len({m.choice.level[j] for j in twins}) for m in own} == {1}
    assert "a and b and c get the highest level" in {m.words for m in found}
    assert any(m.words == "a and b and c and d exchange levels" for m in found)
    alone = level_moves(instance, LevelsFor(instance), choice, group, random.Random(1))
    assert "a gets the highest level" in {m.words for m in alone}


def test_a_plan_that_seems_to_exceed_a_limit_by_a_little_is_looked_at_again() -> None:
    instance = Instance((player("a", 60, 40), player("b", 60, 40)), (50 * G,))
    shortlist = Shortlist()
    seen = {
        "kept": value(0.4),
        "near": value(0.5, breach=0.08),
        "no better": value(0.4, breach=0.01),
        "far": value(0.6, breach=0.2),
        "unequal": value(0.7, breach=0.01, gap=0.2),
        "best": value(0.55, breach=0.02),
    }
    for i, (name, found) in enumerate(seen.items()):
        shortlist.add(PlanLine(name, replace(plain(instance, (0, 0)), timings=((200 + i, 0),) * 2), found))
    assert [line.start for line in shortlist.doubtful(5)] == ["best", "near"]
    assert [line.start for line in shortlist.doubtful(1)] == ["best"]
