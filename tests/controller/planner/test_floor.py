# SPDX-License-Identifier: Apache-2.0
"""No job starves: equal jobs, hopeless jobs, what was measured, and the cap on losses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from loop_rig import MS, RATE, job

from controller.interleave.joint.instance import JointJob, Step
from controller.model import Job, Phase, Plan, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.planner.ecmp_reference import EcmpLengths
from controller.planner.floor import objective_of
from controller.planner.loop.objective import CERTAIN, ERROR, SLOT_ERROR
from topo.generate import leaf_spine

OURS = POLICIES["polyrhythm"]


def on_one_link(*jobs: tuple[float, float, int]) -> PlanInput:
    """Jobs of (period in ms, Up in ms, GPUs), each between two hosts of its own, over one spine."""
    count = len(jobs)
    fabric = leaf_spine(2, 1, count, host_bps=RATE, fabric_bps=RATE)
    made = []
    for i, (period, up, gpus) in enumerate(jobs):
        own = job(f"j{i:02}", [f"h{i + 1}", f"h{i + 1 + count}"], 1, 1, gpus)
        size = round(RATE * up / 8000)
        profile = Profile(round(period * MS), (Phase(0, round(up * MS), RATE),))
        flows = tuple(replace(f, bytes_per_iteration=size) for f in own.flows)
        made.append(replace(own, profile=profile, flows=flows, flops_per_iteration=1e12 * gpus))
    return PlanInput(fabric, tuple(made), OURS, 0, seed=1, elephant_bytes=1)


def ratios(made: Plan) -> list[float]:
    return [j.ecmp_ratio or 0.0 for j in made.jobs.values()]


@pytest.mark.parametrize(("count", "period"), [(3, 361), (4, 481)])
def test_equal_jobs_take_turns_in_one_period(count: int, period: int) -> None:
    made = plan(on_one_link(*[(260, 120, 2)] * count))
    assert {round((j.period_ns or 0) / MS) for j in made.jobs.values()} == {period}
    assert {j.level for j in made.jobs.values()} == {0}
    assert len({j.shift_ns for j in made.jobs.values()}) == count
    assert max(ratios(made)) <= 1.0


@pytest.mark.parametrize(
    "jobs",
    [
        [(260, 120, 2)] * 8,
        [(260, 120, 2)] * 40,
        [(260, 260, 2), (260, 100, 2)],
        [(260, 260, 2), (200, 200, 2)],
        [(260, 100, 2), (260_000, 100_000, 2)],
        [(260, 130, 2), (260, 130, 2), (0.26, 0.13, 8)],
    ],
    ids=["eight", "forty", "always sends", "both always send", "a thousand times", "a thousandth"],
)
def test_nobody_starves_and_why_says_who_is_worst_off(jobs: list[tuple[float, float, int]]) -> None:
    made = plan(on_one_link(*jobs))
    for planned in made.jobs.values():
        assert planned.expected_ns is not None
        assert planned.expected_ns <= (planned.floor_ns or 0)
        assert "worst off is" in planned.why
    if len(set(jobs)) == 1:
        lengths = [j.expected_ns or 0 for j in made.jobs.values()]
        assert max(lengths) <= 1.1 * min(lengths)


def test_without_a_floor_jobs_may_pay_more_and_why_names_what_was_refused_with_it() -> None:
    inputs = on_one_link((260, 130, 16), (260, 130, 16), (300, 150, 1))
    free = plan(replace(inputs, policy=OURS.with_options({"max_slowdown": None})))
    assert max(ratios(free)) > 1.5
    assert {j.floor_ns for j in free.jobs.values()} == {None}
    kept = plan(inputs)
    assert max(ratios(kept)) <= 1.5
    assert "refused plan" in kept.jobs["j02"].why
    assert "j02 would take" in kept.jobs["j02"].why


def test_a_limit_allows_for_the_spread_of_ecmp_but_is_not_below_its_mean() -> None:
    jobs = [JointJob(name, 1.0, (Step(MS, RATE, MS),), ()) for name in ("sure", "varies", "varies much")]
    ecmp = EcmpLengths(
        dict.fromkeys(("sure", "varies", "varies much"), 100.0),
        {"sure": 0.0, "varies": 0.1, "varies much": 0.3},
    )
    objective = objective_of(OURS, jobs, ecmp)
    used, lengths = np.array([0.5, 0.5]), np.full((2, 3), 120.0)
    least = 150 / (1 + CERTAIN * ERROR), 150 / (1 + CERTAIN * math.hypot(ERROR, 0.1)), 100
    assert objective.value(lengths, used).limits == pytest.approx(least)
    least = 150 / (1 + CERTAIN * SLOT_ERROR), 150 / (1 + CERTAIN * math.hypot(SLOT_ERROR, 0.1)), 100
    assert objective.slot_limits == pytest.approx(least)
    assert objective.reference == (100.0, 100.0, 100.0)
    free = OURS.with_options({"max_slowdown": None})
    assert objective_of(free, jobs, ecmp).slot_limits == ()


def test_jobs_with_few_gpus_have_fewer_turns_but_keep_the_floor_and_twins_are_equal() -> None:
    made = plan(on_one_link((100, 60, 16), (100, 60, 1), (100, 60, 1)))
    rich, *poor = (made.jobs[name] for name in sorted(made.jobs))
    assert rich.period_ns is not None
    assert rich.period_ns < 1.25 * 100 * MS
    assert {job.period_ns for job in poor} == {2 * rich.period_ns}
    assert max(ratios(made)) <= 1.5


def test_a_plan_under_which_a_job_measured_too_long_is_given_up() -> None:
    inputs = on_one_link((210, 110, 16), (170, 130, 2))
    made = plan(inputs)
    again = plan(replace(inputs, previous=made))
    assert again.jobs["j00"].level == made.jobs["j00"].level
    assert again.jobs["j01"].level == made.jobs["j01"].level
    slow = {"j01": 3 * (made.jobs["j01"].floor_ns or 0)}
    other = plan(replace(inputs, previous=made, measured_ns=slow))
    treated = [{(j.job, j.level, j.period_ns, j.sender) for j in p.jobs.values()} for p in (made, other)]
    assert treated[0] != treated[1]


def test_the_cap_on_losses_is_a_limit_of_the_search() -> None:
    inputs = on_one_link((210, 110, 16), (170, 130, 2))
    capped = plan(replace(inputs, policy=OURS.with_options({"loss_cap": 0.3})))
    alone = {"j00": 210, "j01": 170}
    used = 0.0
    for planned in capped.jobs.values():
        expected = (planned.expected_ns or 0) / MS
        assert 1 - alone[planned.job] / expected <= 0.3
        used += {"j00": 16 * 100, "j01": 2 * 40}[planned.job] / expected / 18
    # Equal shares keep 32 % of the GPUs busy, and the plan without a cap 44 %.
    assert used > 0.36


def test_a_job_without_a_profile_shares_equally_with_those_it_meets() -> None:
    inputs = on_one_link((260, 120, 2), (260, 120, 16), (300, 150, 2))
    first: Job = replace(inputs.jobs[0], profile=Profile(0, ()))
    made = plan(replace(inputs, jobs=(first, *inputs.jobs[1:])))
    assert {j.level for j in made.jobs.values()} == {0}
    assert {j.period_ns for j in made.jobs.values()} == {None}
    assert all("j00 cannot be evaluated without a profile" in j.why for j in made.jobs.values())
