# SPDX-License-Identifier: Apache-2.0
"""Sessions that died in silence and jobs whose hosts died: a controller in a process, agents by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from control_rig import (
    PATIENCE_S,
    Agent,
    Controller,
    HostFabric,
    artefacts,
    connect,
    eventually,
    fabric,
    job,
    join_message,
    start_controller,
    topology,
)
from silent_proxy import SilentProxy

from controller.wire import agent_pb2 as wire

__all__ = ["artefacts", "connect", "fabric", "start_controller", "topology"]

Connect = Callable[..., Agent]
Start = Callable[..., Controller]


def hello(
    host: HostFabric, name: str, instance: str, workers: list[tuple[str, int]] | None
) -> wire.AgentMessage:
    said = wire.Hello(host=name, ip=host.topology.host[name].ip, pinning="udp", protocol=1, instance=instance)
    if workers is not None:
        said.workers.SetInParent()
        for member, rank in workers:
            said.workers.workers.add(job=member, rank=rank)
    return wire.AgentMessage(hello=said)


def opened(connect: Connect, address: str, first: wire.AgentMessage) -> tuple[Agent, Any]:
    """A session and its first answer."""
    agent = connect(address, first.hello.host, hello=False)
    agent.send(first)
    answer = agent.inbox.get(timeout=PATIENCE_S)
    assert answer is not None
    return agent, answer


def running(controller: Controller) -> dict[str, list[str]]:
    shown = controller.api("jobs") or {"jobs": []}
    return {j["name"]: j["hosts"] for j in shown["jobs"]}


@pytest.mark.slow
def test_a_half_open_session_keeps_nobody_out(
    fabric: HostFabric, start_controller: Start, connect: Connect
) -> None:
    """The host lost power: its connection stands, and nothing comes from it."""
    controller = start_controller(fabric.description(verify=False))
    proxy = SilentProxy(controller.agents)
    try:
        _, welcome = opened(connect, proxy.address, hello(fabric, "h1", "before", None))
        assert welcome.HasField("welcome")
        proxy.silence()
        refused = 0
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            agent, answer = opened(connect, controller.agents, hello(fabric, "h1", "after", None))
            if answer.HasField("welcome"):
                break
            refused += 1
            agent.close()
            time.sleep(0.2)
        else:
            raise AssertionError("the new agent was never let in")
        # The dead session is not taken for a live one, nor the other way round.
        assert refused
        assert controller.says("already has a session")
    finally:
        proxy.close()


def test_a_new_session_of_the_same_process_replaces_its_old_one_at_once(
    fabric: HostFabric, start_controller: Start, connect: Connect
) -> None:
    controller = start_controller(fabric.description(verify=False, profile="declared"))
    first, answer = opened(connect, controller.agents, hello(fabric, "h1", "one", []))
    assert answer.HasField("welcome")
    second, answer = opened(connect, controller.agents, hello(fabric, "h1", "one", []))
    assert answer.HasField("welcome")
    _, answer = opened(connect, controller.agents, hello(fabric, "h1", "two", []))
    assert "already has a session" in answer.refusal.what
    # What the old one still says does not count, and its end does not end the new one.
    first.send(join_message(job("x", "h1", "h3"), 0))
    eventually(lambda: first.inbox.get(timeout=PATIENCE_S) is None, "the old session ends")
    peer, _ = opened(connect, controller.agents, hello(fabric, "h3", "three", []))
    for rank, agent in enumerate((second, peer)):
        agent.send(join_message(job("a", "h1", "h3"), rank))
    eventually(lambda: running(controller) == {"a": ["h1", "h3"]}, "the new session speaks for the host")
    assert not controller.says("agent of host h1: the session is lost")


def test_jobs_end_with_the_lease_of_their_hosts_and_by_what_returning_agents_say(
    fabric: HostFabric, start_controller: Start, connect: Connect
) -> None:
    controller = start_controller(fabric.description(verify=False, profile="declared", lease_ms=1500))
    agents = {
        h: opened(connect, controller.agents, hello(fabric, h, h, []))[0] for h in ("h1", "h2", "h3", "h4")
    }
    for name, hosts in (("a", ("h1", "h3")), ("b", ("h2", "h4")), ("c", ("h1", "h3"))):
        for rank, host in enumerate(hosts):
            agents[host].send(join_message(job(name, *hosts), rank))
    eventually(lambda: running(controller).keys() == {"a", "b", "c"}, "three jobs run")
    # Job b's hosts die, trainers and agents; job c's trainers end while their agents are away for a moment.
    for agent in agents.values():
        agent.close()
    for rank, host in ((0, "h1"), (1, "h3")):
        opened(connect, controller.agents, hello(fabric, host, "again", [("a", rank)]))
    eventually(lambda: running(controller).keys() <= {"a", "b"}, "job c has ended")
    assert controller.says("job c: rank 0 on host h1 ended while its agent was away")
    eventually(lambda: running(controller) == {"a": ["h1", "h3"]}, "job b has ended")
    assert controller.says("job b: rank 0 on host h2 has ended: its agent was away for 1.5 s")
    assert not controller.says("job a has left")
    # A new job of that name is welcome.
    for host, rank in (("h2", 0), ("h4", 1)):
        agent, _ = opened(connect, controller.agents, hello(fabric, host, "new", []))
        agent.send(join_message(job("b", "h2", "h4", gpus=8), rank))
    eventually(lambda: running(controller).keys() == {"a", "b"}, "the new job b")
