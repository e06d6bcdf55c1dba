# SPDX-License-Identifier: Apache-2.0
"""Slots that move later when a job is late: by how much, for whom, and by which reports."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import mean

import pytest
from control_rig import job

from controller.live.messages import IterationReport
from controller.live.plan_changes import with_slots_later
from controller.live.slot_drift import SlotDrift
from controller.live.slot_tolerance import tolerances
from controller.model.job import Job, Phase, Profile
from controller.model.plan import JobPlan, LinkPlan, Plan, PolicyReference
from polyrhythm_job.schedule import Schedule, next_slot

MS = 1_000_000
PERIOD_MS = 262
UP_MS = 120


def member(name: str) -> Job:
    profile = Profile(round((PERIOD_MS - 1) * MS), (Phase(0, UP_MS * MS, 25),))
    return replace(job(name, "h1", "h3"), profile=profile)


JOBS = [member("a"), member("b")]


def a_plan(epoch_ms: float = 0) -> Plan:
    """Two jobs that take turns, with gaps of 11 ms; a third one has no slots."""
    jobs = {
        n: JobPlan(n, 0, 30, round(s * MS), p and p * MS, 1.0, "")
        for n, s, p in (("a", 0, PERIOD_MS), ("b", 131, PERIOD_MS), ("c", 0, None))
    }
    link = LinkPlan("x", "y", ("a", "b", "c"), 1.0)
    return Plan(1, PolicyReference("p"), round(epoch_ms * MS), {}, jobs, (link,))


def done(name: str, index: int, late_ms: float, held_ms: float = 1, drift_ms: float = 0) -> IterationReport:
    """A worker's report: its next iteration begins `late_ms` after its slot number `index`."""
    slot = (131 if name == "b" else 0) + index * PERIOD_MS
    end = round((slot + late_ms) * MS)
    return IterationReport("h", name, 0, index, end - PERIOD_MS * MS, end, 0, 0, 0, 0, round(held_ms * MS),
                           drift_ns=round(drift_ms * MS))  # fmt: skip


def test_slots_move_only_beyond_the_gap_and_the_job_is_late_by_half_of_it() -> None:
    shown = a_plan()
    known = tolerances(shown, JOBS)
    drift = SlotDrift()
    drift.plan_adopted(0, shown)
    moved = [
        drift.later_ns(0, done("a", 10 * k, late), shown, known) / MS
        for k, late in enumerate((0, 10, 13, 15, 20, 60, 130, 250), 1)
    ]
    # By 13 they only touch. Beyond half a period the job waits for its next slot.
    assert moved == pytest.approx([0, 0, 0, 15 - 5.5, 20 - 5.5, 60 - 5.5, 130 - 5.5, 0])
    assert known["a"].group == {"a", "b"}


def test_a_worker_that_keeps_no_slots_moves_none() -> None:
    shown = a_plan()
    known = tolerances(shown, JOBS)
    drift = SlotDrift()
    drift.plan_adopted(0, shown)
    assert not any(drift.later_ns(0, done("a", k, 20, held_ms=0), shown, known) for k in range(1, 40))
    assert drift.later_ns(0, done("a", 50, 20, held_ms=0, drift_ms=3), shown, known)
    assert drift.later_ns(0, done("c", 50, 20), shown, known) == 0
    assert drift.later_ns(0, done("a", 60, 20), None, known) == 0


def test_reports_of_iterations_under_the_slots_before_move_nothing_again() -> None:
    shown = a_plan()
    known = tolerances(shown, JOBS)
    drift = SlotDrift()
    now = round((10 * PERIOD_MS + 21) * MS)
    drift.plan_adopted(0, shown)
    assert drift.later_ns(now, done("a", 10, 20), shown, known)
    assert drift.later_ns(now, done("a", 10, 20), shown, known) == 0
    assert drift.later_ns(now, done("b", 9, 20), shown, known) == 0
    drift.plan_adopted(20 * PERIOD_MS * MS, shown)
    assert drift.later_ns(0, done("a", 19, 20), shown, known) == 0


def iterations_of_two(jitter: float, period_ms: float, *, watched: bool, count: int = 400) -> list[float]:
    """The lengths (ms) of the iterations of two jobs on one link, which share it fairly where they overlap.

    Each computes for 140 ms, more or less by `jitter`, and is held to slots of `period_ms`.
    """
    rng = random.Random(7)
    shown = a_plan()
    turns = {"a": 0, "b": round(period_ms / 2 * MS)}
    own = {n: replace(shown.jobs[n], period_ns=round(period_ms * MS), shift_ns=s) for n, s in turns.items()}
    shown = replace(shown, jobs={**shown.jobs, **own})
    known = tolerances(shown, JOBS)
    drift = SlotDrift()
    drift.plan_adopted(-10 * MS, shown)
    begun = {n: s / MS for n, s in turns.items()}
    busy_until = -1.0
    lengths: list[float] = []
    for k in range(2 * count):
        name = "ab"[k % 2]
        # While it overlaps the burst before, both get half: the time is lost once for either.
        sent = max(begun[name] + UP_MS, busy_until + UP_MS)
        busy_until = sent
        ready = sent + 140 * (1 + jitter * rng.uniform(-1, 1))
        planned = shown.jobs[name]
        limit = max(0.05, round(known[name].latest, 2))
        schedule = Schedule(0, planned.shift_ns, planned.period_ns or 0, limit)
        slot = next_slot(round(ready * MS), schedule)
        begin = ready + slot.delay_ns / MS
        lengths.append(begin - begun[name])
        report = IterationReport("h", name, 0, k // 2, round(begun[name] * MS), round(begin * MS), 0, 0, 0, 0,
                                 slot.delay_ns, drift_ns=1)  # fmt: skip
        begun[name] = begin
        if watched and (later := drift.later_ns(round(begin * MS), report, shown, known)):
            shown = with_slots_later(shown, known[name].group, later)
    return lengths


@pytest.mark.parametrize("jitter", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("period_ms", [259, 260.5, 265])
def test_jittered_iterations_never_wait_for_a_whole_period(jitter: float, period_ms: float) -> None:
    """Also in slots that are shorter than a mean iteration, which takes 260 ms."""
    lengths = iterations_of_two(jitter, period_ms, watched=True)
    assert max(lengths) < 1.15 * 260
    assert mean(lengths) < 1.02 * max(260, period_ms)


def test_without_moving_slots_they_do_wait() -> None:
    assert max(iterations_of_two(0.05, 259, watched=False)) > 1.5 * 260


def test_a_late_job_is_back_at_once_and_slots_keep_their_distances() -> None:
    shown = a_plan()
    known = tolerances(shown, JOBS)
    drift = SlotDrift()
    drift.plan_adopted(-PERIOD_MS * MS, shown)
    seen: list[float] = []
    for k in range(1, 8):
        # Its own 261 ms are one less than its period.
        report = replace(
            done("a", 0, 0, held_ms=0, drift_ms=5), end_ns=round((k * PERIOD_MS + 50.0 - k) * MS)
        )
        later = drift.later_ns(report.end_ns, report, shown, known)
        shown = with_slots_later(shown, known["a"].group, later)
        seen.append(later / MS)
    assert seen == pytest.approx([49 - 5.5, *[0] * 6])
    where = (shown.jobs["b"].shift_ns - shown.jobs["a"].shift_ns) % (PERIOD_MS * MS)
    assert where == 131 * MS


def test_jobs_without_slots_keep_their_pace_when_slots_move() -> None:
    moved = with_slots_later(a_plan(), frozenset("abc"), 200 * MS)
    assert {n: j.shift_ns // MS for n, j in moved.jobs.items()} == {"a": 200, "b": 69, "c": 0}
