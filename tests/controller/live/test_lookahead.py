# SPDX-License-Identifier: Apache-2.0
"""Paths assigned ahead of time, for those that are going to send."""

from __future__ import annotations

from dataclasses import replace

from control_rig import RATE_BPS, job

from controller.live.core import Core
from controller.live.lookahead import LEAD_TIME_NS, Lookahead
from controller.live.messages import FlowAsked, IterationReport, SendAssignment, WorkerJoined, WorkerLeft
from controller.live.settings import CoreSettings
from controller.model.job import Job, Phase, Profile
from controller.planner import POLICIES, plan
from controller.routing.routings import LeastCongested
from topo.generate import leaf_spine

MS = 1_000_000
FABRIC = leaf_spine(2, 2, 3, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


def member(name: str, *hosts: str, period_ms: int = 100, up_ms: int = 30) -> Job:
    profile = Profile(period_ms * MS, (Phase(0, up_ms * MS, RATE_BPS),))
    return replace(job(name, *hosts), profile=profile)


def began(name: str, at_ms: float) -> IterationReport:
    at = round(at_ms * MS)
    host = {"a": "h1", "b": "h2", "c": "h3"}[name]
    return IterationReport(host, name, 0, 1, at - 100 * MS, at, 0, 0, 0, 0, 0)


def test_ends_and_starts_are_foreseen_one_after_another() -> None:
    jobs = [member("a", "h1", "h4"), member("b", "h2", "h5"), member("c", "h3", "h6", period_ms=50, up_ms=10)]
    ahead = Lookahead(LeastCongested(lookahead=True))
    ahead.update(0, jobs)
    assert ahead.next_timer_ns is None
    ahead.iteration_reported(began("a", 0))
    ahead.iteration_reported(began("b", 50))
    ahead.iteration_reported(began("c", 0))
    ahead.plan_adopted(1 * MS, jobs)
    seen = []
    while len(seen) < 6:
        now = ahead.next_timer_ns
        assert now is not None
        active = ahead.due(now, jobs)
        seen.append((now + LEAD_TIME_NS, "".join(sorted(active or ()))))
    assert [(round(t / MS, 3), a) for t, a in seen] == [
        (10, "a"), (30, ""), (50, "bc"), (60, "b"), (80, ""), (100, "ac")
    ]  # fmt: skip
    ahead.forget("a")
    assert ahead.due(200 * MS, jobs) is not None
    # Of a job that has told nothing yet all is possible.
    assert "a" in (ahead.next_senders or ())


def lookahead_core(lookahead: bool = True) -> Core:
    core = Core(CoreSettings(FABRIC, POLICIES["routing"].with_options({"lookahead": lookahead}), 1, False, 1))
    for name, *hosts in (("a", "h1", "h4"), ("b", "h2", "h5"), ("c", "h3", "h6")):
        each = member(name, *hosts)
        for rank, host in enumerate(each.hosts):
            core.handle(WorkerJoined(host, rank, each))
        for flow in each.flows:
            core.handle(FlowAsked(flow.src, flow.name))
    core.adopt(plan(core.plan_input()))
    core.take_effects()
    return core


def spine(core: Core, name: str) -> str:
    (flow,) = [f for n, f in core.plan.flows.items() if n.startswith(f"{name}/h") and f.path[1] == "leaf1"]
    return flow.path[2]


def test_those_that_send_together_get_ways_apart() -> None:
    core = lookahead_core()
    crowded = next({x, y} for x in "abc" for y in "abc" if x < y and spine(core, x) == spine(core, y))
    (alone,) = set("abc") - crowded
    for name in sorted(crowded):
        core.handle(began(name, 0))
    core.handle(began(alone, 50))
    version, moved_at = core.plan.version, []
    while len(moved_at) < 4:
        core.now_ns = core.next_timer_ns
        core.run_timers()
        if core.lookahead_jobs is None:
            continue
        active, core.lookahead_jobs = core.lookahead_jobs, None
        early = core.lookahead_input(active)
        assert core.lookahead_input(active) == early
        core.adopt_lookahead(plan(early))
        told = [e.flow for e in core.take_effects() if isinstance(e, SendAssignment)]
        moved_at.append((round(core.now_ns / MS) % 100, active, told))
        if crowded <= active:
            assert len({spine(core, x) for x in crowded}) == 2
    assert {97} == {at for at, active, _ in moved_at if active == crowded}
    # Each flow that moves is told once; when nothing has to move, nobody hears anything.
    assert any(told for _, _, told in moved_at)
    assert moved_at[-1][2] == []
    assert core.plan.version == version
    for rank, host in enumerate(("h1", "h4")):
        core.handle(WorkerLeft(host, rank, "a"))
    assert core.wants_plan


def test_nobody_looks_ahead_where_the_hash_decides() -> None:
    core = Core(CoreSettings(FABRIC, POLICIES["ecmp"], 1, False, 1))
    assert core.next_senders is None
    assert lookahead_core(lookahead=False).next_timer_ns is None
