# SPDX-License-Identifier: Apache-2.0
"""How late an iteration may begin after its slot: what waiting costs the job against what it costs others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_rig import job
from hypothesis import given
from hypothesis import strategies as st

from controller.interleave.slot_tolerance import LATEST
from controller.live.slot_tolerance import tolerances
from controller.model.job import Job, Phase, Profile
from controller.model.plan import JobPlan, LinkPlan, Plan, PolicyReference

MS = 1_000_000


def a_job(name: str, period_ms: float, *ups_ms: tuple[float, float]) -> Job:
    phases = tuple(Phase(round(a * MS), round(b * MS), 25) for a, b in ups_ms)
    return replace(job(name, "h1", "h3"), profile=Profile(round(period_ms * MS), phases))


def a_plan(slots: dict[str, tuple[float, float]], *links: tuple[str, ...]) -> Plan:
    """`slots` maps a job to the shift and the period of its slots in ms."""
    jobs = {
        n: JobPlan(n, 0, 30, round(s * MS), round(p * MS) if p else None, 1.0, "")
        for n, (s, p) in slots.items()
    }
    shared = tuple(LinkPlan("x", str(n), names, 1.0) for n, names in enumerate(links))
    return Plan(1, PolicyReference("p"), 0, {}, jobs, shared)


def latest(plan: Plan, jobs: list[Job]) -> dict[str, float]:
    return {name: t.latest for name, t in tolerances(plan, jobs).items()}


def test_a_job_may_be_late_by_the_gap_before_the_next_burst() -> None:
    jobs = [a_job("a", 260, (0, 110)), a_job("b", 260, (0, 120))]
    found = tolerances(a_plan({"a": (0, 260), "b": (130, 260)}, ("a", "b")), jobs)
    assert {name: t.gap_ns for name, t in found.items()} == {"a": 20 * MS, "b": 10 * MS}
    assert all(t.latest > t.gap_ns / (260 * MS) for t in found.values())


@given(st.floats(40, 120), st.floats(0, 8), st.floats(0.5, 12), st.integers(1, 4))
def test_the_job_waits_where_the_others_would_lose_more(
    up: float, gap: float, margin: float, others: int
) -> None:
    period = (others + 1) * (up + gap) + 5 * gap
    names = [f"j{n}" for n in range(others + 1)]
    jobs = [a_job(n, period - margin, (0, up)) for n in names]
    slots = {n: (k * (up + gap), period) for k, n in enumerate(names)}
    late = latest(a_plan(slots, tuple(names)), jobs)["j0"] * period
    assert gap - 1e-3 <= late <= LATEST * period + 1e-3
    # All slots move later by the lateness beyond the gap, so each other job waits once for so long.
    lost_by_others = others * (late - gap)
    if late < LATEST * period - 1e-3:
        assert lost_by_others == pytest.approx(period - late, rel=1e-6)
    else:
        assert lost_by_others <= period - late + 1e-3


def test_more_neighbours_leave_less_time() -> None:
    def late(others: int) -> float:
        names = [f"j{n}" for n in range(others + 1)]
        jobs = [a_job(n, 495, (0, 80)) for n in names]
        slots = {n: (k * 90, 500) for k, n in enumerate(names)}
        return latest(a_plan(slots, tuple(names)), jobs)["j0"]

    assert 0.5 >= late(1) > late(2) > late(4) > 10 / 500


def test_periods_that_are_multiples_meet_in_every_position() -> None:
    jobs = [a_job("a", 398, (0, 60)), a_job("b", 199, (0, 60))]
    found = latest(a_plan({"a": (0, 400), "b": (80, 200)}, ("a", "b")), jobs)
    # b sends from 80 and from 280 on: a may be late by 20 at least, and b by the 60 until a begins again.
    assert 20 / 400 < found["a"] <= 0.5
    assert found["b"] > 60 / 200


def test_who_has_no_slot_or_no_neighbour_has_no_tolerance_of_its_own() -> None:
    jobs = [a_job("a", 260, (0, 110)), a_job("b", 260, (0, 120)), a_job("c", 260), a_job("d", 260, (0, 10))]
    plan = a_plan(
        {"a": (0, 262), "b": (0, 0), "c": (0, 262), "d": (0, 262), "e": (0, 262)}, ("a", "b", "c", "e")
    )
    assert tolerances(plan, jobs) == {}
    assert tolerances(a_plan({}), []) == {}


def test_bursts_that_overlap_by_plan_say_nothing() -> None:
    jobs = [a_job("a", 260, (0, 110)), a_job("b", 260, (0, 120))]
    assert tolerances(a_plan({"a": (0, 262), "b": (60, 262)}, ("a", "b")), jobs) == {}
