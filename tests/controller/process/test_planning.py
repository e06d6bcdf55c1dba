# SPDX-License-Identifier: Apache-2.0
"""A plan that is being made holds up no answer to a failure, and does not come into force over a dead link."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from control_rig import job, on_loop

from controller.live.core import Core
from controller.live.messages import PortsSeen, WorkerJoined
from controller.live.settings import CoreSettings
from controller.planner import POLICIES
from controller.process.planning import Planning
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=1_000_000, fabric_bps=1_000_000)


class SlowWorker:
    """Makes a plan once it is allowed to."""

    def __init__(self) -> None:
        self.allowed = asyncio.Event()

    async def run_timed(self, limit_s: float, function: Any, *args: Any) -> tuple[Any, float]:
        await self.allowed.wait()
        return function(*args), 0.1


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
