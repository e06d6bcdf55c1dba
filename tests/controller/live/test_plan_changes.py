# SPDX-License-Identifier: Apache-2.0
"""Which jobs the change from one plan to another disturbs."""

from __future__ import annotations

from dataclasses import replace

from controller.live.plan_changes import disturbed, neighbours
from controller.model.plan import FlowPlan, JobPlan, LinkPlan, Plan, PolicyReference

PLAN = Plan(
    1,
    PolicyReference("p"),
    1_000,
    {f"{j}/x>y": FlowPlan(f"{j}/x>y", ("x", "y"), 50_000, 30, "why") for j in "abcd"},
    {j: JobPlan(j, 0, 30, 5, 100, 1.0, "why") for j in "abcd"},
    (LinkPlan("x", "1", ("a", "b"), 1.0), LinkPlan("x", "2", ("b", "c"), 1.0)),
)


def with_job(name: str, **changes: object) -> Plan:
    return replace(PLAN, jobs={**PLAN.jobs, name: replace(PLAN.jobs[name], **changes)})


def test_jobs_that_share_a_link_are_neighbours() -> None:
    assert neighbours(PLAN, "a") == {"b"}
    assert neighbours(PLAN, "b") == {"a", "c"}
    assert neighbours(PLAN, "d") == frozenset()


def test_a_plan_that_changes_nothing_disturbs_nobody() -> None:
    assert disturbed(PLAN, PLAN) == frozenset()
    # The same slots, counted from another epoch, and other words.
    same = replace(with_job("a", why="other words"), epoch_ns=1_100)
    assert disturbed(PLAN, same) == frozenset()
    assert disturbed(None, PLAN) == frozenset("abcd")


def test_a_change_disturbs_its_job_and_the_neighbours() -> None:
    for changes in ({"level": 1, "dscp": 26}, {"shift_ns": 6}, {"period_ns": None}, {"sender": "mltcp"}):
        assert disturbed(PLAN, with_job("a", **changes)) == {"a", "b"}
    moved = replace(PLAN, flows={**PLAN.flows, "d/x>y": replace(PLAN.flows["d/x>y"], source_port=5)})
    assert disturbed(PLAN, moved) == {"d"}


def test_who_comes_or_goes_disturbs_those_that_share_its_links() -> None:
    without = replace(
        PLAN,
        jobs={j: p for j, p in PLAN.jobs.items() if j != "c"},
        flows={n: f for n, f in PLAN.flows.items() if n != "c/x>y"},
        links=PLAN.links[:1],
    )
    assert disturbed(PLAN, without) == {"b", "c"}
    assert disturbed(without, PLAN) == {"b", "c"}
