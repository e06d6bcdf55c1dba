# SPDX-License-Identifier: Apache-2.0
"""Jobs that measure worse than their floor: a new plan, then one level for all that contend."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_rig import RATE_BPS, job

from controller.live.core import Core
from controller.live.floor_watch import BREACH_ITERATIONS, FloorWatch, with_one_level
from controller.live.messages import (
    AgentUp,
    FlowAsked,
    IterationReport,
    SendAssignment,
    SendSchedule,
    WorkerJoined,
    WorkerLeft,
)
from controller.live.settings import CoreSettings
from controller.model.plan import FlowPlan, JobPlan, LinkPlan, Plan, PolicyReference
from controller.planner import POLICIES, plan
from topo.generate import leaf_spine

MS = 1_000_000
TOPOLOGY = leaf_spine(2, 1, 3, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
DSCPS = (30, 26, 22)
FLOOR_MS = 400


def a_plan() -> Plan:
    """Jobs a, b and c share a link with their neighbour in this order; d is alone."""
    levels = dict(zip("abcd", (1, 0, 2, 0), strict=True))
    return Plan(
        1,
        PolicyReference("p"),
        0,
        {f"{j}/x>y": FlowPlan(f"{j}/x>y", ("x", "y"), 50_000, DSCPS[n], "why") for j, n in levels.items()},
        {j: JobPlan(j, n, DSCPS[n], 5, 100, 1.0, "why", floor_ns=FLOOR_MS * MS) for j, n in levels.items()},
        (LinkPlan("x", "1", ("a", "b"), 1.0), LinkPlan("x", "2", ("b", "c"), 1.0)),
    )


def breach(watch: FloorWatch, name: str, shown: Plan) -> list[bool]:
    """The job takes twice its floor ten times in a row, after an iteration that overlapped a change."""
    watch.plan_changed([name])
    return [watch.ended(name, [2 * FLOOR_MS * MS], shown, None) for _ in range(BREACH_ITERATIONS + 1)]


def test_ten_iterations_in_a_row_above_the_floor_ask_for_a_plan_once() -> None:
    watch, shown = FloorWatch(), a_plan()
    assert breach(watch, "a", shown) == [False] * BREACH_ITERATIONS + [True]
    assert watch.measured_ns == {"a": 2 * FLOOR_MS * MS}
    again = watch.overlay(shown, DSCPS)
    assert "below its floor: 800.0 ms in ten iterations, its floor is 400.0 ms" in again.jobs["a"].why
    assert {j: p.level for j, p in again.jobs.items()} == {j: p.level for j, p in shown.jobs.items()}


def test_one_good_iteration_among_bad_ones_is_no_breach() -> None:
    watch, shown = FloorWatch(), a_plan()
    for _ in range(5):
        assert not any(watch.ended("a", [2 * FLOOR_MS * MS], shown, None) for _ in range(9))
        assert not watch.ended("a", [FLOOR_MS * MS], shown, None)
    assert watch.breaches("a") == 0


def test_what_a_plan_promises_nothing_for_is_not_watched() -> None:
    watch, shown = FloorWatch(), a_plan()
    free = replace(shown, jobs={j: replace(p, floor_ns=None) for j, p in shown.jobs.items()})
    assert not any(breach(watch, "a", free))
    assert not any(watch.ended("x", [10**12], shown, None) for _ in range(30))
    assert not any(watch.ended("a", [10**12], None, None) for _ in range(30))


def test_while_a_job_is_measured_its_neighbours_are_not_judged() -> None:
    watch, shown = FloorWatch(), a_plan()
    watch.plan_changed(["a"])
    assert not any(watch.ended("a", [10**12], shown, "b") for _ in range(30))
    assert not any(watch.ended("b", [10**12], shown, "b") for _ in range(30))
    assert any(watch.ended("a", [10**12], shown, "c") for _ in range(30))


def test_a_job_that_shares_no_link_is_not_judged() -> None:
    watch, shown = FloorWatch(), a_plan()
    assert not any(watch.ended("d", [10**12], shown, None) for _ in range(30))
    assert watch.breaches("d") == 0


def test_a_plan_that_disturbs_a_job_starts_the_count_again() -> None:
    watch, shown = FloorWatch(), a_plan()
    for _ in range(5):
        watch.plan_changed(["a"])
        # Nine, and the one that was under way.
        assert not any(watch.ended("a", [10**12], shown, None) for _ in range(BREACH_ITERATIONS))
    assert watch.ended("a", [10**12], shown, None)


def test_after_the_second_breach_those_that_contend_share_one_level() -> None:
    watch, shown = FloorWatch(), a_plan()
    breach(watch, "a", shown)
    assert watch.shares_with("a") == ()
    assert breach(watch, "a", shown)[-1]
    assert (watch.shares_with("a"), watch.shares_with("b"), watch.shares_with("c")) == (("b",), ("a",), ())
    shared = watch.overlay(shown, DSCPS)
    assert {j: (p.level, p.period_ns) for j, p in shared.jobs.items()} == {
        "a": (0, None), "b": (0, None), "c": (2, 100), "d": (0, 100),
    }  # fmt: skip
    assert {n: f.dscp for n, f in shared.flows.items()} == {
        "a/x>y": 30,
        "b/x>y": 30,
        "c/x>y": 22,
        "d/x>y": 30,
    }
    assert "shared with b until one of them changes: a was below its floor twice" in shared.jobs["a"].why
    # More cannot be done: they ask for nothing more, however slow they are.
    assert not any(breach(watch, "a", shown))
    assert not any(breach(watch, "b", shown))


@pytest.mark.parametrize("who", ["a", "b"])
def test_who_changes_ends_the_sharing(who: str) -> None:
    watch, shown = FloorWatch(), a_plan()
    breach(watch, "a", shown)
    breach(watch, "a", shown)
    watch.job_changed("d", shown)
    assert watch.shares_with("a") == ("b",)
    watch.job_changed(who, shown)
    assert watch.shares_with("a") == ()
    assert watch.measured_ns == {}
    assert watch.overlay(shown, DSCPS) is shown


def test_a_new_neighbour_ends_the_sharing() -> None:
    watch, shown = FloorWatch(), a_plan()
    breach(watch, "a", shown)
    breach(watch, "a", shown)
    watch.end_sharing(shown)
    assert watch.shares_with("a") == ("b",)
    watch.end_sharing(replace(shown, links=(*shown.links, LinkPlan("x", "3", ("a", "d"), 1.0))))
    assert watch.shares_with("a") == ()


def test_jobs_that_the_plan_does_not_have_share_nothing() -> None:
    shown = a_plan()
    assert with_one_level(shown, frozenset("xyz"), DSCPS, "why") is shown


# At the door of the core.


class Contended:
    """A core under the default policy with two jobs on one link, whose plans promise each job a floor."""

    def __init__(self) -> None:
        self.core = Core(CoreSettings(TOPOLOGY, POLICIES["polyrhythm"], 1, False, 10_000))
        self.plans = 0
        self.index = {"a": 0, "b": 0}
        self.inputs: list[object] = []
        for host in TOPOLOGY.host:
            self.core.handle(AgentUp(host, "udp"))
        for name, src, dst in (("a", "h1", "h4"), ("b", "h2", "h5")):
            member = job(name, src, dst)
            for rank, host in enumerate(member.hosts):
                self.core.handle(WorkerJoined(host, rank, member))
            self.core.handle(FlowAsked(src, f"{name}/{src}>{dst}"))
        self.collect()

    def collect(self) -> None:
        while self.core.wants_plan:
            self.inputs.append(self.core.plan_input())
            made = plan(self.inputs[-1])
            jobs = {j: replace(p, floor_ns=FLOOR_MS * MS) for j, p in made.jobs.items()}
            self.core.adopt(replace(made, jobs=jobs))
            self.plans += 1

    def iterate(self, name: str, count: int, length_ms: float, ranks: tuple[int, ...] = (0, 1)) -> None:
        for _ in range(count):
            start, self.core.now_ns = self.core.now_ns, self.core.now_ns + round(length_ms * MS)
            for rank in ranks:
                host = self.core.registry.get(name).hosts[rank]
                report = IterationReport(
                    host, name, rank, self.index[name], start, self.core.now_ns, 120 * MS, 1_500_000, 9, 0, 0
                )
                self.core.handle(report)
            self.index[name] += 1
            self.collect()


def test_a_starved_job_gets_a_plan_and_then_its_share() -> None:
    fabric = Contended()
    core, before = fabric.core, fabric.plans
    fabric.iterate("a", 10, 900)
    assert fabric.plans == before
    fabric.iterate("a", 1, 900)
    assert fabric.plans == before + 1
    assert fabric.inputs[-1].measured_ns == {"a": 900 * MS}
    assert "planned again because it was below its floor" in core.plan.jobs["a"].why
    core.take_effects()
    fabric.iterate("a", 11, 900)
    assert core.floors.shares_with("a") == ("b",)
    assert {p.level for p in core.plan.jobs.values()} == {core.plan.jobs["a"].level}
    assert [p.period_ns for p in core.plan.jobs.values()] == [None, None]
    effects = core.take_effects()
    assert {e.job for e in effects if isinstance(e, SendSchedule)} == {"a", "b"}
    assert all(e.dscp == core.plan.jobs["a"].dscp for e in effects if isinstance(e, SendAssignment))
    # A further plan keeps them on one level, until the neighbour leaves.
    core.wants_plan = True
    fabric.collect()
    assert {p.period_ns for p in core.plan.jobs.values()} == {None}
    for rank, host in enumerate(("h2", "h5")):
        core.handle(WorkerLeft(host, rank, "b"))
    fabric.collect()
    assert core.floors.breaches("a") == 0
    assert "floor" not in core.plan.jobs["a"].why


def test_a_job_that_stops_reporting_triggers_nothing() -> None:
    fabric = Contended()
    before = fabric.plans
    fabric.iterate("a", 9, 900)
    # One worker has stopped in mid-iteration: no iteration of the job ends any more.
    fabric.iterate("a", 50, 9_000, ranks=(1,))
    fabric.iterate("b", 20, 260)
    assert fabric.plans == before
    assert fabric.core.floors.breaches("a") == 0
