# SPDX-License-Identifier: Apache-2.0
"""Schedules that say `once` (CASSINI as published), other thresholds, and jobs that end while they wait."""

from __future__ import annotations

import pytest
from host_bench import MS
from hypothesis import given
from hypothesis import strategies as st
from training_rig import Cluster, job

from controller.model import REALIGN
from controller.wire import agent_pb2 as pb
from polyrhythm_job.schedule import REALIGN_THRESHOLD, Schedule, next_slot

PERIOD = 200 * MS


@given(
    st.integers(0, 10**10), st.integers(1, 10**9), st.floats(0.001, 1.0), st.integers(0, 2 * 10**10), st.booleans()
)  # fmt: skip
def test_the_rule_of_once(epoch: int, period: int, realign: float, now: int, kept: bool) -> None:
    schedule = Schedule(epoch, 0, period, realign, once=True)
    slot = next_slot(now, schedule, kept=kept)
    begun = now + slot.delay_ns
    off = (begun - epoch) % period
    off = min(off, period - off)
    if kept:
        assert slot.delay_ns == 0 or off == 0
        assert off <= realign * period
        assert slot.realigned == (slot.delay_ns > 0)
    else:
        assert begun >= epoch
        assert (begun - epoch) % period <= min(realign, 0.05) * period


@pytest.mark.parametrize(
    ("realign", "offset_ms", "wait_ms"),
    [(0.05, 10, 0), (0.05, 11, 189), (0.05, 190, 0), (0.05, 189, 11), (0.2, 40, 0), (0.2, 41, 159), (1, 100, 0)],
)  # fmt: skip
def test_after_the_first_only_drift_past_the_threshold_waits(
    realign: float, offset_ms: int, wait_ms: int
) -> None:
    schedule = Schedule(5 * MS, 40 * MS, PERIOD, realign, once=True)
    now = 45 * MS + 7 * PERIOD + offset_ms * MS
    assert next_slot(now, schedule, kept=True).delay_ns == wait_ms * MS
    assert next_slot(now, schedule).delay_ns == (0 if offset_ms <= 10 else PERIOD - offset_ms * MS)


@pytest.mark.parametrize(("realign", "most_ms"), [(0.04, 6.1), (0.08, 12.1), (1.0, 150.1)])
def test_a_job_shifted_once_runs_at_its_own_pace_and_is_aligned_again(realign: float, most_ms: float) -> None:
    """100 ms of its own in slots of 150: it comes ever earlier, until that is too much."""
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(up_ms=40, down_ms=108), 15, 20)
    said = pb.JobSchedule(
        job="a", epoch_ns=20 * MS, shift_ns=70 * MS, period_ns=150 * MS, realign=realign, once=True
    )
    for host in ("h0", "h1"):
        cluster.hosts[host].agent.on_message(pb.ControllerMessage(schedule=said))
    cluster.heap.run(4_000 * MS)
    records = cluster.records("h0", "a")
    assert len(records) == 20
    assert records[0].start_ns == 90 * MS
    early = [-((r.start_ns - 90 * MS + 75 * MS) % (150 * MS) - 75 * MS) for r in records]
    aligned = [r.index for r in records[1:] if r.realigned]
    if realign == 1.0:
        assert aligned == []
        assert all(r.held_ns == 0 for r in records)
        assert max(early) > 12 * MS
    else:
        assert max(early) <= most_ms * MS
        assert aligned
        assert all(early[i] == 0 for i in aligned)
        assert sum(r.held_ns > 0 for r in records) == pytest.approx(len(aligned), abs=1)
        assert {m.iteration.realigned for _, m in cluster.bodies("h0", "iteration")} == {False, True}


def test_a_job_told_the_same_again_is_not_shifted_again() -> None:
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(up_ms=40, down_ms=108), 15, 8)
    said = pb.JobSchedule(job="a", epoch_ns=20 * MS, period_ns=150 * MS, realign=0.5, once=True)
    for until in (400, 600):
        for host in ("h0", "h1"):
            cluster.hosts[host].agent.on_message(pb.ControllerMessage(schedule=said))
        cluster.heap.run(until * MS)
    cluster.heap.run(2_000 * MS)
    assert [r.held_ns for r in cluster.records("h0", "a")] == [0] * 8


def test_a_job_that_ends_while_it_waits_for_its_slot_leaves_nothing_behind() -> None:
    cluster = Cluster()
    cluster.connect()
    cluster.run_job(job(up_ms=40, down_ms=60), 15, 50)
    cluster.run_job(job("b", ("h2", "h3"), up_ms=40, down_ms=60), 15, 12)
    said = pb.JobSchedule(job="a", epoch_ns=20 * MS, shift_ns=500 * MS, period_ns=900 * MS)
    for host in ("h0", "h1"):
        cluster.hosts[host].agent.on_message(pb.ControllerMessage(schedule=said))
    cluster.heap.run(300 * MS)
    for host in ("h0", "h1"):
        (state,) = [w for (name, _), w in cluster.hosts[host].agent._workers.items() if name == "a"]
        state.worker.stop()
    cluster.heap.run(3_000 * MS)
    assert cluster.records("h0", "a") == []
    assert [m.job_leave.job for _, m in cluster.bodies("h0", "job_leave")] == ["a"]
    assert all(not host.agent._workers for host in cluster.hosts.values())
    assert len(cluster.records("h2", "b")) == 12


@given(st.integers(0, 10**12), st.integers(-3, 3), st.integers(-10 * MS, 10 * MS), st.booleans())
def test_a_clock_that_is_corrected_a_little_makes_no_new_schedule(
    slot: int, laps: int, moved: int, once: bool
) -> None:
    schedule = Schedule(slot, 0, PERIOD, 0.05, once)
    assert schedule.keeps(Schedule(slot + laps * PERIOD + moved, 0, PERIOD, 0.05, once))
    assert not schedule.keeps(Schedule(slot + PERIOD // 2 + moved, 0, PERIOD, 0.05, once))
    assert not schedule.keeps(Schedule(slot, 0, PERIOD + 1, 0.05, once))
    assert not schedule.keeps(Schedule(slot, 0, PERIOD, 0.05, not once))
    assert not schedule.keeps(None)


def test_agent_and_controller_use_one_threshold_of_drift() -> None:
    # The job library depends on nothing, so it has its own copy of the controller's value.
    assert REALIGN_THRESHOLD == REALIGN
