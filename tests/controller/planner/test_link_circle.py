# SPDX-License-Identifier: Apache-2.0
"""Circles of links and predictions for other shifts, against the plan that the planner made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_rig import RATE_BPS, job

from controller.model.plan import Plan
from controller.planner import POLICIES, PlanInput, plan
from controller.planner.link_circle import NotEvaluableError, link_circle, predicted
from topo.generate import leaf_spine

# One spine: both jobs share leaf1>spine1.
TOPOLOGY = leaf_spine(2, 1, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
SHARED = ("leaf1", "spine1")
HALF_NS = 130_000_000


def planned() -> tuple[PlanInput, Plan]:
    """Two jobs that send 120 of 260 ms at the link's rate, half a period apart."""
    jobs = (job("a", "h1", "h3"), job("b", "h2", "h4"))
    inputs = PlanInput(TOPOLOGY, jobs, POLICIES["polyrhythm"], 0, elephant_bytes=0)
    made = plan(inputs)
    slots = {"a": 0, "b": HALF_NS}
    timed = {n: replace(j, period_ns=2 * HALF_NS, shift_ns=slots[n], level=0) for n, j in made.jobs.items()}
    return inputs, replace(made, jobs=timed)


def test_jobs_that_take_turns_score_one_and_together_they_do_not() -> None:
    inputs, made = planned()
    apart = link_circle(inputs, made, SHARED)
    assert [arc.job for arc in apart.arcs] == ["a", "b"]
    assert (apart.score, apart.perimeter_ns, apart.capacity_bps) == (1.0, 2 * HALF_NS, RATE_BPS)
    together = link_circle(inputs, made, SHARED, {"b": 0})
    assert together.score == pytest.approx(1 - 120 / 260)
    assert link_circle(inputs, made, SHARED, {"b": 5 * HALF_NS}).score == 1.0, "shifts wrap around"
    assert [arc.job for arc in link_circle(inputs, made, ("h1", "leaf1")).arcs] == ["a"]


def test_the_judge_says_what_other_shifts_cost() -> None:
    inputs, made = planned()
    before, after = predicted(inputs, made, {"b": 0})
    assert before.keys() == after.keys() == {"a", "b"}
    assert sum(after.values()) > 1.1 * sum(before.values())
    same, again = predicted(inputs, made, {"b": HALF_NS})
    assert same == again == before


def test_what_cannot_be_tried_is_refused() -> None:
    inputs, made = planned()
    free = replace(made, jobs={**made.jobs, "b": replace(made.jobs["b"], period_ns=None)})
    with pytest.raises(NotEvaluableError, match="'b' is not held to slots; legal: a"):
        predicted(inputs, free, {"b": 1})
    assert link_circle(inputs, free, SHARED).score < 1.0, "a job at its own pace meets the other sometimes"
    unknown = replace(
        inputs, jobs=tuple(replace(j, profile=replace(j.profile, phases=())) for j in inputs.jobs)
    )
    with pytest.raises(NotEvaluableError, match="has no profile yet"):
        predicted(unknown, made, {"b": 1})
