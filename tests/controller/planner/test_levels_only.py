# SPDX-License-Identifier: Apache-2.0
"""The search of levels only, for more jobs or flows than the joint search takes: levels are evaluated together,
kept, and explained.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from instance_rig import random_choice, random_instance

from controller.interleave.joint import evaluator as evaluators
from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.fluid_arrays import Floats
from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance
from controller.interleave.joint.known_groups import KnownGroups
from controller.model import Flow, Job, Phase, Plan, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.planner.ecmp_reference import _known
from controller.planner.loop.known_searches import KnownSearches
from controller.planner.loop.search import SearchLimits, SearchResult, solve_levels
from sim.cluster import JobRequest, machines
from sim.network import Network
from sim.scheduler import Fifo
from sim.shape import PhaseShape, Shape
from sim.simulation import Simulation, SimulationSettings
from topo.generate import leaf_spine

MS, G = 1_000_000, 10_000_000_000
OURS = POLICIES["polyrhythm"]
LEAVES, JOBS, RANKS = 6, 12, 4
FABRIC = leaf_spine(LEAVES, 1, JOBS + 2, host_bps=G, fabric_bps=2 * G)
LIMITS = SearchLimits(evaluations=40, quick=Effort((1,), 8), thorough=Effort((2, 3), 16), min_gain=0.01)


@pytest.fixture(autouse=True)
def a_few_flows_are_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.planner.joint_search._MOST_FLOWS", 20)


def jobs(seed: int) -> list[tuple[str, tuple[str, ...], int, int]]:
    """Name, hosts on some leaves, compute and Up phase in ms: jobs much alike, a host of their own on each."""
    rng = random.Random(seed)
    return [
        (
            f"j{i:02}",
            tuple(f"h{leaf * (JOBS + 2) + i + 1}" for leaf in sorted(rng.sample(range(LEAVES), RANKS))),
            rng.randint(80, 120),
            rng.randint(120, 170),
        )
        for i in range(JOBS)
    ]


def known(name: str, hosts: tuple[str, ...], compute: int, up: int) -> Job:
    pairs = [(a, hosts[(i + 1) % len(hosts)]) for i, a in enumerate(hosts)]
    flows = tuple(Flow(f"{name}/{a}>{b}", name, a, b, G * up // 8000) for a, b in pairs)
    profile = Profile((compute + up) * MS, (Phase(0, up * MS, G),))
    return Job(name, "model", 8 * len(hosts), hosts, profile, 1e12 * compute * 8 * len(hosts), flows)


def inputs(seed: int) -> PlanInput:
    return PlanInput(FABRIC, tuple(known(*job) for job in jobs(seed)), OURS, 0, seed=1)


def levels(made: Plan) -> dict[str, int]:
    return {name: job.level for name, job in made.jobs.items()}


def busy(policy: str, seed: int) -> float:
    """GPU utilisation in the simulator, which does not use the evaluator of the search."""
    requests = [
        JobRequest(
            name,
            "model",
            0,
            8 * RANKS,
            10**9,
            Shape(
                (PhaseShape("fused_ring", G * up / 8000 * RANKS / (2 * (RANKS - 1)), before_ns=compute * MS),)
            ),
            hosts,
        )
        for name, hosts, compute, up in jobs(seed)
    ]
    settings = SimulationSettings(policy=policy, until_ns=30_000 * MS, samples_ns=10_000 * MS - 1, log=False)
    run = Simulation(machines(Network(FABRIC), 8), requests, settings, scheduler=Fifo())
    run.run()
    parts = [s.computing for s in run.memory.samples[1:]]
    return sum(parts) / len(parts) / (8 * RANKS * JOBS)


@pytest.mark.slow
def test_similar_jobs_lose_under_strict_order_and_gain_by_evaluated_levels() -> None:
    seeds = range(1, 7)
    ours, strict, equal = (
        sum(busy(policy, seed) for seed in seeds) for policy in ("polyrhythm", "crux", "routing")
    )
    assert ours > 1.01 * max(strict, equal)


def test_the_reasons_name_the_evaluated_plans() -> None:
    made = plan(inputs(1))
    said = {j.why.partition(" evaluated plans, ")[2] for j in made.jobs.values()} - {""}
    assert said
    assert all("as composed" in words and "by priority on" in words for words in said)
    assert made == plan(inputs(1))


def test_levels_stay_when_somebody_comes_whom_nobody_meets() -> None:
    asked = inputs(2)
    made = plan(asked)
    again = plan(replace(asked, previous=made))
    assert levels(again) == levels(made)
    hosts = (f"h{JOBS + 1}", f"h{JOBS + 2}")
    more = plan(replace(asked, jobs=(*asked.jobs, known("lone", hosts, 90, 90)), previous=again))
    assert {n: k for n, k in levels(more).items() if n != "lone"} == levels(made)


@pytest.mark.parametrize(
    ("limit", "value"),
    [("LIMITS", replace(LIMITS, max_work=100)), ("_MOST_FLOWS", 1), ("_MOST_STREAMS", 1)],
)
def test_too_many_jobs_to_evaluate_share_one_level_and_without_a_floor_have_cruxs(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: object
) -> None:
    monkeypatch.setattr(f"controller.planner.levels_only.{limit}", value)
    made = plan(inputs(1))
    assert set(levels(made).values()) == {0}
    words = "one level for all, so that no job starves: too many jobs and flows to evaluate plans"
    assert all(words in j.why for j in made.jobs.values())
    assert {j.expected_ns for j in made.jobs.values()} == {None}
    free = plan(replace(inputs(1), policy=OURS.with_options({"max_slowdown": None})))
    assert any("too many jobs and flows to evaluate plans" in j.why for j in free.jobs.values())
    assert levels(free) == levels(plan(replace(inputs(1), policy=POLICIES["crux"])))


def test_fewer_changes_of_levels_are_tried_for_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    known_searches = "controller.planner.levels_only.KNOWN_SEARCHES"
    made = plan(inputs(1))
    monkeypatch.setattr("controller.planner.levels_only._WORK_FOR_MANY", 1)
    monkeypatch.setattr(known_searches, KnownSearches())
    assert plan(inputs(1)) == made
    monkeypatch.setattr("controller.planner.levels_only._MANY_JOBS", JOBS - 1)
    monkeypatch.setattr(known_searches, KnownSearches())
    assert evaluated(plan(inputs(1))) < evaluated(made)


def evaluated(made: Plan) -> int:
    """How many plans the search looked at, as the reasons say."""
    return max(int(n) for j in made.jobs.values() for n in re.findall(r"(\d+) evaluated plans", j.why))


def test_a_job_without_flows_lets_no_search_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans with known searches are those of a planner that searches each time."""
    searched = []

    def search(*args: Any, **options: Any) -> SearchResult | None:
        searched.append(args)
        return solve_levels(*args, **options)

    def with_lone_job(before: Plan | None) -> PlanInput:
        asked = inputs(3)
        lone = replace(known("lone", (f"h{JOBS + 1}",), 90, 90), flows=())
        return replace(asked, jobs=(*asked.jobs, lone), previous=before)

    monkeypatch.setattr("controller.planner.levels_only.solve_levels", search)
    monkeypatch.setattr("controller.planner.levels_only.KNOWN_SEARCHES", KnownSearches())
    first = plan(replace(inputs(3), previous=plan(inputs(3))))
    before = len(searched)
    more = plan(with_lone_job(first))
    assert len(searched) == before
    assert levels(more).keys() == {*levels(first), "lone"}
    monkeypatch.setattr("controller.planner.levels_only.KNOWN_SEARCHES", KnownSearches(0))
    assert plan(with_lone_job(first)) == more
    assert len(searched) == before + 1


def test_a_search_that_was_stopped_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.planner.levels_only.KNOWN_SEARCHES", KnownSearches())
    whole = plan(inputs(4))
    monkeypatch.setattr("controller.planner.levels_only.KNOWN_SEARCHES", KnownSearches())
    plan(inputs(4), lambda: True)
    assert plan(inputs(4)) == whole


def test_levels_alone_keep_the_floor_too() -> None:
    made = plan(inputs(1))
    for planned in made.jobs.values():
        assert planned.expected_ns is not None
        assert planned.floor_ns is not None
        assert planned.expected_ns <= planned.floor_ns


def test_jobs_that_iterate_in_a_millisecond_beside_one_that_takes_hours_keep_their_floors() -> None:
    quick = [known(f"q{i}", (f"h{i + 1}", f"h{JOBS + 3 + i}"), 1, 1) for i in range(4)]
    slow = known("slow", ("h6", f"h{JOBS + 8}"), 3_600_000, 3_600_000)
    made = plan(PlanInput(FABRIC, (*quick, slow), OURS, 0))
    for planned in made.jobs.values():
        assert planned.expected_ns is not None
        assert planned.floor_ns is not None
        assert planned.expected_ns <= planned.floor_ns


def without_rhythms(choice: Choice) -> Choice:
    return replace(choice, timings=(UNSCHEDULED,) * len(choice.timings))


@pytest.mark.parametrize("seed", range(12))
def test_the_best_of_the_given_is_settled_on_or_a_better_one_of_other_levels(seed: int) -> None:
    rng = random.Random(seed)
    instance: Instance = random_instance(rng, rng.randint(2, 6))
    base = without_rhythms(random_choice(rng, instance))
    given = {"base": base}
    for name in ("second", "third", "fourth"):
        given[name] = replace(base, level=tuple(rng.randrange(3) for _ in base.level))
    found = solve_levels(instance, given, limits=LIMITS, plain=True, seed=seed)
    assert found is not None
    assert found == solve_levels(instance, given, limits=LIMITS, plain=True, seed=seed)
    assert replace(found.choice, level=base.level) == base
    assert max(found.choice.level) < instance.levels
    evaluator = Evaluator(instance, plain=True)
    for name in found.baselines:
        theirs = evaluator.utilisation(given[name], LIMITS.thorough).mean()
        assert found.utilisation >= theirs * (1 - LIMITS.min_gain) - evaluator.bound * 0.01
    if found.start == "base" and not found.steps:
        assert found.choice == base
    assert solve_levels(instance, given, limits=replace(LIMITS, max_work=1), plain=True) is None


@pytest.mark.parametrize("seed", range(6))
def test_the_cost_of_a_look_is_known_before(seed: int) -> None:
    rng = random.Random(seed)
    instance = random_instance(rng, 5)
    evaluator, choice, effort = (
        Evaluator(instance, plain=True),
        random_choice(rng, instance),
        Effort((1, 2), 9),
    )
    cost = evaluator.cost(choice, effort)
    assert evaluator.work_done == 0
    evaluator.utilisation(choice, effort)
    assert evaluator.work_done == cost > 0


@pytest.mark.parametrize("seed", range(2))
def test_a_change_in_one_half_computes_less_of_the_other(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of three leaves come and go; those of the other three stay. Every plan is the one of a planner that
    computes everything anew."""
    rng = random.Random(seed)

    def job(i: int, first: int) -> Job:
        hosts = tuple(f"h{leaf * (JOBS + 2) + i + 1}" for leaf in range(first, first + LEAVES // 2))
        return known(f"j{i:02}", hosts, rng.randint(80, 120), rng.randint(120, 170))

    staying, others = [job(i, 0) for i in range(4)], [job(i, LEAVES // 2) for i in range(4, 9)]
    kept, anew = CountedGroups(), CountedGroups()
    before: Plan | None = None
    made: list[Plan] = []
    for here in (others[:3], others[:4], others[1:]):
        now = PlanInput(FABRIC, (*staying, *here), OURS, 0, previous=before, seed=1)
        anew.forget()
        for groups in (anew, kept):
            # Whole results that are known would hide what is computed of them.
            monkeypatch.setattr("controller.planner.levels_only.KNOWN_SEARCHES", KnownSearches())
            _known.clear()
            monkeypatch.setattr(evaluators, "KNOWN", groups)
            made.append(plan(now))
        before = made[-1]
        assert before == made[-2]
    assert kept.computed < anew.computed


class CountedGroups(KnownGroups):
    """A store that counts what is computed for it."""

    def __init__(self) -> None:
        super().__init__()
        self.computed = 0

    def keep(self, key: bytes, lengths: Floats) -> None:
        self.computed += 1
        super().keep(key, lengths)

    def forget(self) -> None:
        self._found.clear()
