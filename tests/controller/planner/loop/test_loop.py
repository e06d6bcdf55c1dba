# SPDX-License-Identifier: Apache-2.0
"""The planner's loop of time and space: only where jobs still meet, never to their loss, and explained."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop_rig import MS, RATE, job, joint

from controller.model import Job, Profile
from controller.planner import POLICIES, PlanInput, diff, plan
from controller.planner.joint_search import LIMITS
from topo.generate import leaf_spine

OURS = POLICIES["polyrhythm"]
FABRIC = leaf_spine(3, 2, 4, host_bps=RATE, fabric_bps=RATE)


def many_jobs() -> tuple[Job, ...]:
    """Eight flows for two spines each way between three leaves: much overlaps whatever the paths."""
    return (
        job("a", ["h1", "h5", "h9"], 200, 110),
        job("b", ["h2", "h6"], 200, 80),
        job("c", ["h3", "h10"], 310, 170),
        job("d", ["h7", "h11"], 200, 90, gpus=8),
        job("e", ["h4", "h8", "h12"], 270, 120),
    )


@pytest.mark.slow
def test_it_beats_every_mechanism_alone_and_says_so() -> None:
    inputs = PlanInput(FABRIC, many_jobs(), OURS, 0, seed=1)
    found = joint(inputs).found
    assert found is not None
    assert found.utilisation >= max(found.baselines.values())
    assert found.utilisation > found.baselines["as composed"] * 1.01
    assert found.evaluations <= LIMITS.evaluations + 60
    made = plan(inputs)
    assert any(f"{found.utilisation:.1%}" in j.why and "evaluated plans" in j.why for j in made.jobs.values())
    assert {"ecmp", "composed"} <= {name.split(":")[-1] for name in found.baselines}
    assert made == plan(inputs)


def test_it_is_left_out_where_nobody_meets_or_somebody_is_unknown() -> None:
    pair = (job("a", ["h1", "h5"], 200, 80), job("b", ["h2", "h6"], 200, 80))
    assert joint(PlanInput(FABRIC, pair, OURS, 0)).found is None
    unknown = replace(many_jobs()[0], profile=Profile(200 * MS, ()))
    assert joint(PlanInput(FABRIC, (unknown, *many_jobs()[1:]), OURS, 0)).found is None
    for name in ("ecmp", "crux", "cassini", "routing"):
        assert joint(PlanInput(FABRIC, many_jobs(), POLICIES[name], 0)).found is None


@pytest.mark.slow
def test_plans_come_to_rest() -> None:
    """Planning again may go on from the plan in force, if that gains; soon nothing does, at any time."""
    inputs = PlanInput(FABRIC, many_jobs(), OURS, 5, seed=1)
    made = plan(inputs)
    values = []
    for _ in range(4):
        made = plan(replace(inputs, previous=made))
        found = joint(replace(inputs, previous=made)).found
        assert found is not None
        values.append(found.utilisation)
    assert values == sorted(values)
    assert values[-1] == values[-2]
    again = plan(replace(inputs, previous=made, epoch_ns=123_456_789))
    assert not diff(made, again)


def test_two_jobs_that_do_not_fit_take_turns_in_a_longer_period() -> None:
    fabric = leaf_spine(2, 1, 2, host_bps=RATE, fabric_bps=RATE)
    jobs = (job("a", ["h1", "h3"], 304, 160), job("b", ["h2", "h4"], 304, 174))
    made = plan(PlanInput(fabric, jobs, OURS, 0))
    periods = {j.period_ns for j in made.jobs.values()}
    assert len(periods) == 1
    assert 334 <= (periods.pop() or 0) / MS < 340
    assert {j.level for j in made.jobs.values()} == {0}
    assert all(link.score > 0.999 for link in made.links)
    assert "10.1 % over its own" in made.jobs["a"].why


@pytest.mark.parametrize("asked", [1, 2, 20, 100])
@pytest.mark.parametrize("jobs", [5, 40])
def test_a_search_that_is_stopped_gives_its_best(asked: int, jobs: int) -> None:
    """Whenever it is stopped, also where only levels are searched: a plan for all jobs, never nothing."""
    inputs = PlanInput(FABRIC, many_jobs(), OURS, 0, seed=1)
    if jobs > 5:
        pairs = [(f"h{1 + n % 4}", f"h{5 + n % 8}") for n in range(jobs)]
        some = tuple(job(f"j{n}", list(pair), 200 + n, 20) for n, pair in enumerate(pairs))
        inputs = replace(inputs, jobs=some)
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls >= asked

    made = plan(inputs, stop)
    assert asked <= calls <= asked + 3
    assert made.jobs.keys() == {j.name for j in inputs.jobs}
    assert made.flows.keys() == {f.name for j in inputs.jobs for f in j.flows}
    whys = [j.why for j in made.jobs.values()]
    assert any("stopped before its end" in why for why in whys) == any(
        "evaluated plans" in why for why in whys
    )
    # The plan in force is the first that is evaluated, so what follows is not worse.
    again = plan(replace(inputs, previous=made), lambda: True)
    assert {n: j.level for n, j in again.jobs.items()} == {n: j.level for n, j in made.jobs.items()}
