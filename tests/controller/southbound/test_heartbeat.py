# SPDX-License-Identifier: Apache-2.0
"""A switch that falls silent: it is noticed, nothing waits for it, and it comes back into service."""

from __future__ import annotations

import asyncio

import pytest
from control_rig import PATIENCE_S, eventually, job, join_message, on_loop
from silent_proxy import SilentProxy

from controller.southbound.heartbeat import Heartbeat
from controller.wire import agent_pb2 as wire


@pytest.mark.parametrize("answers", [0, 3])
def test_a_switch_is_silent_when_a_request_has_no_answer(answers: int) -> None:
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        if asked > answers:
            await asyncio.sleep(PATIENCE_S)

    words = on_loop(Heartbeat(interval_s=0.001, deadline_s=0.02).silence(ask, asyncio.Event()))
    assert (asked, words) == (answers + 1, "silent: no answer within 0.02 s")


def test_a_suspected_switch_is_asked_at_once() -> None:
    async def silence() -> str:
        hurry = asyncio.Event()
        hurry.set()
        async with asyncio.timeout(PATIENCE_S):
            return await Heartbeat(interval_s=10 * PATIENCE_S, deadline_s=0.02).silence(
                asyncio.Event().wait, hurry
            )

    assert on_loop(silence()) == "silent: no answer within 0.02 s"


def test_a_suspicion_at_the_end_of_the_session_does_not_keep_it_alive() -> None:
    async def ends() -> bool:
        asked, hurry = asyncio.Event(), asyncio.Event()

        async def ask() -> None:
            asked.set()

        watch = asyncio.create_task(Heartbeat(interval_s=PATIENCE_S).silence(ask, hurry))
        await asyncio.sleep(0.01)
        hurry.set()
        # Lets the wait end, but not yet the watch.
        await asyncio.sleep(0)
        watch.cancel()
        await asyncio.wait({watch}, timeout=0.5)
        ended = watch.done()
        watch.cancel()
        return ended

    assert on_loop(ends())


def test_a_broken_connection_is_no_silence() -> None:
    async def ask() -> None:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        on_loop(Heartbeat(interval_s=0.001).silence(ask, asyncio.Event()))


@pytest.mark.slow
def test_nothing_waits_for_a_silent_switch(fabric, start_controller, connect):
    proxy = SilentProxy(fabric.servers["spine2"].address)
    described = fabric.description()
    described["switches"]["spine2"]["address"] = proxy.address
    # Counters are polled all the time, and the tables are read back every second.
    controller = start_controller({**described, "read_back_ms": 1000}, "--poll")
    agents = []
    try:
        eventually(lambda: controller.says("spine2 is in service"))
        proxy.silence()
        for name, hosts in (("a", ("h1", "h3")), ("b", ("h2", "h4"))):
            member = job(name, *hosts)
            agents = [connect(controller.agents, host) for host in hosts]
            for rank, agent in enumerate(agents):
                agent.next("welcome")
                agent.send(join_message(member, rank))
            question = wire.AgentMessage(flow_request=wire.FlowRequest(flow=f"{name}/{hosts[0]}>{hosts[1]}"))
            # Until the other agent's message has come, the flow is not known.
            agents[0].send(question)
            while not agents[0].next("flow").source_port:
                agents[0].send(question)
            for _ in range(20):
                agents[0].send(question)
                assert agents[0].next("flow").source_port >= 0xC000
            # The first job came before the silence was noticed, the second comes after.
            eventually(
                lambda: controller.says("switch spine2: the session is lost (silent"),
                "the silence is noticed",
            )
        counted = controller.api("counters")["counters"]
        assert {c["switch"] for c in counted if c["packets"]} >= {"leaf1", "leaf2"}
        proxy.resume()
        eventually(
            lambda: controller.log.read_text().count("spine2 is in service") == 2, "it is back in service"
        )
    finally:
        proxy.close()
