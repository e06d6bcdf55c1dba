# SPDX-License-Identifier: Apache-2.0
"""A plan that is being made holds up no answer to a failure, and does not come into force over a dead link."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from control_rig import job, on_loop

from controller.live.core import Core
from controller.live.messages import PortsSeen, WorkerJoined
from controller.live.settings import CoreSettings
from controller.model.job import Job
from controller.planner import POLICIES, plan
from controller.process import planning as planning_module
from controller.process.planning import Planning, Rollback
from controller.process.worker_calls import CallAbandonedError
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=1_000_000, fabric_bps=1_000_000)


class SlowWorker:
    """Makes a plan once it is allowed to."""

    def __init__(self) -> None:
        self.allowed = asyncio.Event()

    async def run_timed(self, limit_s: float, function: Any, *args: Any, **kwargs: Any) -> tuple[Any, float]:
        await self.allowed.wait()
        return function(*args, **kwargs), 0.1


@pytest.mark.parametrize("up", [False, True])
def test_a_failure_is_answered_while_a_plan_is_made(up: bool) -> None:
    core = Core(CoreSettings(TOPOLOGY, POLICIES["routing"], 1, False, 10_000))
    member = job("a", "h1", "h3")
    for rank, host in enumerate(member.hosts):
        core.handle(WorkerJoined(host, rank, member))
    port = next(p for p, peer in TOPOLOGY.ports["leaf1"].items() if peer.node == "spine1")
    if up:
        core.handle(PortsSeen("leaf1", {port: False}))
        core.take_condition()

    async def scenario() -> None:
        worker, answered = SlowWorker(), asyncio.Event()
        planning = Planning(worker)  # type: ignore[arg-type]

        async def answer() -> None:
            core.take_condition()
            answered.set()

        made = asyncio.ensure_future(planning.plan(core, answer))
        await asyncio.sleep(0)
        core.handle(PortsSeen("leaf1", {port: up}))
        planning.look_at(core)
        await answered.wait()
        assert not made.done()
        worker.allowed.set()
        # A plan from before a failure is dropped, and another one is wanted; one from before a repair is good.
        assert ((await made) is not None) is up
        assert core.wants_plan

    on_loop(scenario())


def _core(policy: str = "polyrhythm") -> Core:
    core = Core(CoreSettings(TOPOLOGY, POLICIES[policy], 1, False, 10_000))
    _joins(core, "a", "h1", "h3")
    _joins(core, "c", "h2", "h3")
    return core


def _joins(core: Core, name: str, *hosts: str) -> None:
    member = job(name, *hosts)
    for rank, host in enumerate(member.hosts):
        core.handle(WorkerJoined(host, rank, member))


class NotingWorker:
    """Makes plans at once, or not before it is told to; notes the functions."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.slow: asyncio.Future[None] | None = None

    async def run_timed(self, limit_s: float, function: Any, *args: Any, **kwargs: Any) -> tuple[Any, float]:
        self.made.append(function.__name__)
        if function is plan and self.slow is not None:
            await self.slow
        return function(*args, **kwargs), 0.1

    def abandon(self, argument: object, *, patient: bool = False) -> bool:
        if self.slow is not None and not self.slow.done():
            self.slow.set_exception(CallAbandonedError())
        return True


async def _nothing() -> None:
    return None


async def searching(worker: NotingWorker) -> None:
    """Wait until a search has begun."""
    while "plan" not in worker.made:
        await asyncio.sleep(0.01)


def test_a_job_that_arrives_gets_two_plans_at_most() -> None:
    core = _core()

    async def scenario() -> None:
        worker = NotingWorker()
        planning = Planning(worker)  # type: ignore[arg-type]
        for wanted in (True, False):
            made = await planning.plan(core, _nothing)
            assert made is not None
            assert planning.unfinished is wanted
            core.adopt(made)
        assert worker.made == ["first_plan", "plan"]
        # Without a new job there is nothing to hurry for.
        assert await planning.plan(core, _nothing) is not None
        assert worker.made[2:] == ["plan"]

    on_loop(scenario())


def test_no_first_plan_for_one_job_alone() -> None:
    core = Core(CoreSettings(TOPOLOGY, POLICIES["polyrhythm"], 1, False, 10_000))
    _joins(core, "a", "h1", "h3")

    async def scenario() -> None:
        worker = NotingWorker()
        planning = Planning(worker)  # type: ignore[arg-type]
        assert await planning.plan(core, _nothing) is not None
        assert worker.made == ["plan"]

    on_loop(scenario())


@pytest.mark.parametrize("stands_still", [False, True])
def test_no_first_plan_where_it_gains_nothing(stands_still: bool) -> None:
    core = _core("routing")

    async def scenario() -> None:
        worker = NotingWorker()
        planning = Planning(worker, stands_still=stands_still)  # type: ignore[arg-type]
        assert await planning.plan(core, _nothing) is not None
        assert worker.made == ["plan"]
        assert not planning.unfinished

    on_loop(scenario())


def test_where_time_stands_still_the_search_waits_in_fabric_time_until_no_job_comes() -> None:
    core, settle_ns = _core(), round(planning_module.SETTLE_S * 1e9)
    core.now_ns = 1_000

    async def scenario() -> None:
        worker = NotingWorker()
        planning = Planning(worker, stands_still=True)  # type: ignore[arg-type]

        async def made() -> list[str]:
            found = await planning.plan(core, _nothing)
            assert found is not None
            core.adopt(found)
            return worker.made

        assert await made() == ["first_plan"]
        assert not planning.wanted(core)
        assert planning.next_timer_ns == 1_000 + settle_ns
        core.now_ns += settle_ns - 1
        assert not planning.wanted(core)
        _joins(core, "b", "h2", "h4")
        assert await made() == ["first_plan"] * 2
        core.now_ns += settle_ns
        assert planning.wanted(core)
        assert await made() == ["first_plan"] * 2 + ["plan"]
        assert planning.next_timer_ns is None
        assert not planning.wanted(core)

    on_loop(scenario())


def test_where_jobs_come_all_the_time_a_search_is_made_all_the_same() -> None:
    core = _core()

    async def scenario() -> None:
        worker = NotingWorker()
        planning = Planning(worker, stands_still=True)  # type: ignore[arg-type]
        for name in "bdefg":
            made = await planning.plan(core, _nothing)
            assert made is not None
            core.adopt(made)
            core.now_ns += planning_module.SEARCH_EVERY_NS // 2
            _joins(core, name, "h2", "h4")
        assert worker.made == ["first_plan"] * 3 + ["plan", "first_plan"]

    on_loop(scenario())


def test_a_rollback_ends_the_wait_for_a_search() -> None:
    """A job that comes long after it gets a first plan at once, as any other does."""
    core = _core()
    earlier = plan(core.input_now())

    async def scenario() -> None:
        worker = NotingWorker()
        planning = Planning(worker, stands_still=True)  # type: ignore[arg-type]
        for rollback in (None, Rollback(earlier)):
            planning.rollback = rollback
            made = await planning.plan(core, _nothing)
            assert made is not None
            core.adopt(made)
        assert planning.next_timer_ns is None
        core.now_ns += planning_module.SEARCH_EVERY_NS + 1
        _joins(core, "b", "h2", "h4")
        assert await planning.plan(core, _nothing) is not None
        assert worker.made == ["first_plan"] * 2

    on_loop(scenario())


def test_a_new_job_does_not_wait_for_the_search() -> None:
    core = _core()

    async def scenario() -> None:
        worker = NotingWorker()
        planning = Planning(worker)  # type: ignore[arg-type]
        first = await planning.plan(core, _nothing)
        assert first is not None
        core.adopt(first)
        worker.slow = asyncio.get_running_loop().create_future()
        making = asyncio.ensure_future(planning.plan(core, _nothing))
        await searching(worker)
        planning.look_at(core)
        assert not making.done()
        _joins(core, "b", "h2", "h4")
        planning.look_at(core)
        assert await making is None
        assert core.wants_plan
        again = await planning.plan(core, _nothing)
        assert again is not None
        assert set(again.jobs) == {"a", "b", "c"}
        assert worker.made == ["first_plan", "plan", "first_plan"]

    on_loop(scenario())


def test_no_search_begins_while_jobs_come_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would be ended before it has a result. But one begins once in a while."""
    monkeypatch.setattr(planning_module, "SETTLE_S", 1e6)
    core = _core()

    async def scenario() -> None:
        worker = NotingWorker()
        planning = Planning(worker)  # type: ignore[arg-type]
        for name in ("b", "d"):
            first = await planning.plan(core, _nothing)
            assert first is not None
            core.adopt(first)
            making = asyncio.ensure_future(planning.plan(core, _nothing))
            await asyncio.sleep(0.05)
            planning.look_at(core)
            assert not making.done()
            _joins(core, name, "h2", "h4")
            planning.look_at(core)
            assert await making is None
        first = await planning.plan(core, _nothing)
        assert first is not None
        core.adopt(first)
        assert worker.made == ["first_plan"] * 3
        core.now_ns += planning_module.SEARCH_EVERY_NS + 1
        assert await planning.plan(core, _nothing) is not None
        assert worker.made[3:] == ["plan"]

    on_loop(scenario())


class StoppedWorker(NotingWorker):
    """Its search ends with what it has when it is asked to. Notes the plans that inputs start from."""

    def __init__(self) -> None:
        super().__init__()
        self.stop = asyncio.Event()
        self.previous: list[Any] = []

    async def run_timed(self, limit_s: float, function: Any, *args: Any, **kwargs: Any) -> tuple[Any, float]:
        self.made.append(function.__name__)
        self.previous.append(args[0].previous)
        if function is plan:
            await self.stop.wait()
        return function(args[0]), 0.1

    def abandon(self, argument: object, *, patient: bool = False) -> bool:
        self.stop.set()
        return True


def test_what_the_search_has_found_is_where_a_new_job_starts() -> None:
    """It is not published for itself: the job would wait for its tables and messages."""
    core = _core()

    async def scenario() -> None:
        worker = StoppedWorker()
        planning = Planning(worker)  # type: ignore[arg-type]
        first = await planning.plan(core, _nothing)
        assert first is not None
        core.adopt(first)
        making = asyncio.ensure_future(planning.plan(core, _nothing))
        await searching(worker)
        _joins(core, "b", "h2", "h4")
        planning.look_at(core)
        made = await making
        assert made is not None
        assert set(made.jobs) == {"a", "b", "c"}
        assert worker.made == ["first_plan", "plan", "first_plan"]
        found = worker.previous[2]
        assert (
            found.jobs == plan(replace(core.input_now(), jobs=tuple(first_jobs(core)), previous=first)).jobs
        )
        # No number is missing in the history.
        assert (found.version, made.version) == (first.version, first.version + 1)
        assert planning.unfinished
        assert not core.wants_plan

    def first_jobs(core: Core) -> list[Job]:
        return [j for j in core.registry.jobs if j.name != "b"]

    on_loop(scenario())


def test_a_rollback_comes_into_force_under_the_number_that_it_says() -> None:
    """Also if a plan is being made when it is asked for, and if the last plan was a first plan."""
    core = Core(CoreSettings(TOPOLOGY, POLICIES["routing"], 1, False, 10_000))
    for member in (job("a", "h1", "h3"), job("b", "h2", "h4")):
        for rank, host in enumerate(member.hosts):
            core.handle(WorkerJoined(host, rank, member))
    earlier = plan(core.input_now())

    async def scenario() -> None:
        worker = SlowWorker()
        planning = Planning(worker)  # type: ignore[arg-type]

        async def answer() -> None:
            core.take_condition()

        making = asyncio.ensure_future(planning.plan(core, answer))
        await asyncio.sleep(0.01)
        rollback = planning.rollback = Rollback(earlier)
        worker.allowed.set()
        between = await making
        assert between is not None
        core.adopt(between)
        assert rollback.version == 0
        planning.unfinished = True
        made = await planning.plan(core, answer)
        assert made is not None
        assert rollback.version == made.version == between.version + 1
        assert made.flows == earlier.flows
        assert not planning.unfinished
        assert f"rollback to plan {earlier.version}" in core.causes.in_force()

    on_loop(scenario())
