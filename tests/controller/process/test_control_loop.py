# SPDX-License-Identifier: Apache-2.0
"""The control loop with switches and a planner by hand: what it writes, and when."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from control_rig import job, on_loop

from controller.live.core import Core
from controller.live.messages import (
    AgentEffect,
    ClockAsked,
    FlowAsked,
    SendAssignment,
    SendClock,
    WorkerJoined,
    WorkerLeft,
)
from controller.live.settings import CoreSettings
from controller.model.job import Job
from controller.model.plan import FlowRemark, Plan
from controller.planner import POLICIES
from controller.process.clock import HostClock
from controller.process.control_loop import ControlLoop
from controller.process.loop_options import LoopOptions
from controller.southbound.fleet import RunnerError
from controller.southbound.table_writes import DesiredState
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=1_000_000, fabric_bps=1_000_000)
REMARK = FlowRemark("a/h1>h3", "leaf1", "h1", "h3", 50_000, 18, 26)


class MeasuringCore(Core):
    """While it measures, a plan that comes into force has one more entry for a single flow."""

    measures = True

    def in_force(self, plan: Plan) -> Plan:
        return replace(plan, remarks=(REMARK,)) if self.measures else plan


class Fleet:
    """Takes the desired states. The first one with entries for single flows ends the measurement."""

    keeps_found = False

    def __init__(self, core: MeasuringCore) -> None:
        self.clients = {switch.name: None for switch in TOPOLOGY.switches}
        self.written: list[DesiredState] = []
        self._core = core

    async def apply(self, wanted: DesiredState, ready: object = None) -> tuple[()]:
        self.written.append(wanted)
        if wanted.remarks:
            self._core.measures = False
        return ()


class Worker:
    """Plans in this process, and prepares nothing."""

    async def run(self, function: Any, *args: Any) -> Any:
        raise RunnerError("nothing is prepared here")

    run_in_thread = run

    async def compile_kernels(self) -> None:
        """There is none to compile."""

    async def run_timed(self, limit_s: float, function: Any, *args: Any, **kwargs: Any) -> tuple[Any, float]:
        return function(*args, **kwargs), 0.1


def settings() -> CoreSettings:
    return CoreSettings(TOPOLOGY, POLICIES["routing"], 1, False, 10_000)


def loop_of(core: Core) -> ControlLoop:
    return ControlLoop(
        core,
        HostClock(),
        workers=SimpleNamespace(  # type: ignore[arg-type]
            plans=Worker(), tables=Worker(), compile_kernels=Worker().compile_kernels
        ),
        options=LoopOptions("test", 10**12, False, 10**15),
        publish=lambda _: None,
        state=None,
    )


def joined(core: Core) -> Job:
    """A job whose workers have all joined."""
    member = job("a", "h1", "h3")
    for rank, host in enumerate(member.hosts):
        core.handle(WorkerJoined(host, rank, member))
    return member


class Agents:
    """Keeps what agents are told."""

    def __init__(self) -> None:
        self.told: list[AgentEffect] = []

    def send(self, effect: AgentEffect) -> bool:
        self.told.append(effect)
        return True


def test_a_question_is_answered_at_once_and_not_before_what_its_agent_said_earlier() -> None:
    core = Core(settings())
    member = joined(core)

    async def scenario() -> list[AgentEffect]:
        loop, agents = loop_of(core), Agents()
        loop._agents = agents  # type: ignore[assignment]
        loop.switches.all_ready.set()
        await loop._apply()
        agents.told.clear()
        asked = FlowAsked("h1", member.flows[0].name)
        loop.put("h3", "agent:h3", WorkerLeft("h3", 1, "a"))
        loop.put("h1", "agent:h1", asked)
        answered, before = [*agents.told], len(agents.told)
        loop.put("h1", "agent:h1", ClockAsked("h1", 5))
        loop.put("h1", "agent:h1", asked)
        assert len(agents.told) == before
        await loop._step()
        assert [type(effect) for effect in agents.told[before:]] == [SendClock, SendAssignment]
        loop.close()
        await asyncio.sleep(0)
        return answered

    (answer,) = on_loop(scenario())
    assert isinstance(answer, SendAssignment)
    assert (answer.host, answer.flow) == ("h1", member.flows[0].name)
    assert answer.source_port


def test_what_changes_during_a_write_is_written_too() -> None:
    core = MeasuringCore(settings())
    joined(core)

    async def scenario() -> list[DesiredState]:
        loop, fleet = loop_of(core), Fleet(core)
        loop._fleet = fleet  # type: ignore[assignment]
        loop.switches.all_ready.set()
        await loop._apply()
        loop.close()
        await asyncio.sleep(0)
        return fleet.written

    written = on_loop(scenario())
    assert [state.remarks for state in written[-2:]] == [(REMARK,), ()]
    assert written[-1] == core.desired
