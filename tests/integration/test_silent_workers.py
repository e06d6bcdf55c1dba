# SPDX-License-Identifier: Apache-2.0
"""A job, or one of its workers, that stops reporting in mid-iteration: nobody else loses anything."""

from __future__ import annotations

import pytest
from control_rig import RATE_BPS, job

from controller.live.core import Core
from controller.live.iterations import _MOST_OPEN, IterationStats, PeriodCheck
from controller.live.measuring import MeasureSettings
from controller.live.messages import AgentUp, IterationReport, SendSchedule, WorkerJoined
from controller.live.settings import CoreSettings
from controller.planner import POLICIES, plan
from topo.generate import leaf_spine

MS = 1_000_000
TOPOLOGY = leaf_spine(2, 1, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


def a_core(*, measured: bool) -> Core:
    """Two equal jobs on one link, planned once."""
    measure = MeasureSettings(enabled=measured, window_ns=2_000 * MS)
    core = Core(CoreSettings(TOPOLOGY, POLICIES["polyrhythm"], 1, False, 10_000, measure=measure))
    for host in TOPOLOGY.host:
        core.handle(AgentUp(host, "udp"))
    for member in (job("a", "h1", "h3"), job("b", "h2", "h4")):
        for rank, host in enumerate(member.hosts):
            core.handle(WorkerJoined(host, rank, member))
    replan(core)
    return core


def replan(core: Core) -> None:
    while core.wants_plan:
        core.adopt(plan(core.plan_input()))
    core.take_effects()


def iterate(core: Core, name: str, index: int, ranks: tuple[int, ...] = (0, 1), late_ms: float = 0) -> None:
    """One iteration of a job that keeps its slots, reported by some of its workers."""
    assert core.plan is not None
    planned = core.plan.jobs[name]
    period = planned.period_ns or 261 * MS
    start = core.plan.epoch_ns + planned.shift_ns + index * period
    end = start + period + round(late_ms * MS)
    core.now_ns = max(core.now_ns, end)
    held = max(0, period - 260 * MS)
    member = core.registry.get(name)
    assert member is not None
    for rank in ranks:
        core.handle(
            IterationReport(member.hosts[rank], name, rank, index, start, end, 120 * MS, 1, 0, 0, held)
        )


def test_a_job_that_stops_reporting_takes_no_slot_from_the_others_and_asks_for_no_plan() -> None:
    core = a_core(measured=False)
    before = core.plan
    assert before is not None
    assert before.jobs["b"].period_ns is not None
    for index in range(5):
        iterate(core, "a", index)
    for index in range(60):
        iterate(core, "b", index)
    assert core.plan == before
    assert not core.wants_plan
    assert not [e for e in core.take_effects() if isinstance(e, SendSchedule)]


@pytest.mark.parametrize("reports", [0, 1])
def test_a_job_that_stops_while_it_is_measured_makes_room_and_its_reason_says_so(reports: int) -> None:
    core = a_core(measured=True)
    first = core.measuring.profiled
    assert first is not None
    for index in range(reports):
        iterate(core, first, index)
    for _ in range(2):
        core.now_ns += 3_000 * MS
        core.run_timers()
        replan(core)
    assert core.measuring.profiled is None
    assert core.plan is not None
    for name in ("a", "b"):
        assert "profile as the job declares it" in core.plan.jobs[name].why
        assert core.plan.jobs[name].period_ns is not None
    assert {core.plan.jobs[n].level for n in ("a", "b")} == {0}


def test_one_worker_that_reports_no_more_leaves_no_growing_memory() -> None:
    stats, check = IterationStats(2), PeriodCheck()
    for index in range(10_000):
        report = IterationReport("h3", "a", 1, index, 0, 260 * MS, 0, 0, 0, 0, 0)
        assert stats.add(report) == ()
        assert check.add(report, 260 * MS, 261 * MS) is None
    assert stats.count == 0
    assert len(stats._open) <= _MOST_OPEN + 1
    assert len(check._open) <= _MOST_OPEN + 1
    # Once it reports again, iterations end as before.
    for rank in (0, 1):
        ended = stats.add(IterationReport("h1", "a", rank, 10_000, 0, 262 * MS, 0, 0, 0, 0, 0))
    assert ended[-1] == 262 * MS


def test_without_the_reports_of_one_worker_slots_still_move_with_the_other() -> None:
    core = a_core(measured=False)
    assert core.plan is not None
    before = core.plan.jobs["b"].shift_ns
    for index in range(3):
        iterate(core, "a", index, ranks=(0,))
    iterate(core, "a", 3, ranks=(0,), late_ms=25)
    after = core.plan.jobs["b"].shift_ns
    assert 0 < after - before < 25 * MS
    moved = [e.job for e in core.take_effects() if isinstance(e, SendSchedule)]
    assert moved == ["a", "a", "b", "b"]


def test_why_and_log_say_that_a_job_no_longer_reports(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "controller.live.iterations")
    core = a_core(measured=False)
    member = core.registry.get("a")
    assert member is not None
    for index in range(5):
        iterate(core, "a", index)
    # The worker on h3 dies in the next one.
    iterate(core, "a", 5, ranks=(0,))
    core.now_ns += 2_500 * MS
    core.run_timers()
    assert core.reports.silence(core.now_ns, member) == ""
    for _ in range(2):
        core.now_ns += 200 * MS
        core.run_timers()
    words = "no worker has reported an iteration for 2.9 s; the last one was not ended on h3"
    assert core.reports.silence(core.now_ns, member) == words
    assert [r.getMessage() for r in caplog.records if "no worker" in r.getMessage()] == [
        "job a: no worker has reported an iteration for 2.7 s; the last one was not ended on h3; plans keep it "
        "until its workers leave"
    ]
    assert core.reports.silence(core.now_ns, core.registry.jobs[1]) == ""
    iterate(core, "a", 30)
    core.run_timers()
    assert core.reports.silence(core.now_ns, member) == ""
    assert caplog.records[-1].getMessage() == "job a reports its iterations again"
