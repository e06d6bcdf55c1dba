# SPDX-License-Identifier: Apache-2.0
"""The control loop with switches and a planner by hand: what it writes, and when."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from control_rig import job, on_loop

from controller.live.core import Core
from controller.live.messages import WorkerJoined
from controller.live.settings import CoreSettings
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

    async def run_timed(self, limit_s: float, function: Any, *args: Any, **kwargs: Any) -> tuple[Any, float]:
        return function(*args, **kwargs), 0.1


def test_what_changes_during_a_write_is_written_too() -> None:
    core = MeasuringCore(CoreSettings(TOPOLOGY, POLICIES["routing"], 1, False, 10_000))
    member = job("a", "h1", "h3")
    for rank, host in enumerate(member.hosts):
        core.handle(WorkerJoined(host, rank, member))

    async def scenario() -> list[DesiredState]:
        loop = ControlLoop(
            core,
            HostClock(),
            workers=SimpleNamespace(plans=Worker(), tables=Worker()),  # type: ignore[arg-type]
            options=LoopOptions("test", 10**12, False, 10**15),
            publish=lambda _: None,
            state=None,
        )
        fleet = Fleet(core)
        loop._fleet = fleet  # type: ignore[assignment]
        loop._all_ready.set()
        await loop._apply()
        loop.close()
        await asyncio.sleep(0)
        return fleet.written

    written = on_loop(scenario())
    assert [state.remarks for state in written[-2:]] == [(REMARK,), ()]
    assert written[-1] == core.desired
