# SPDX-License-Identifier: Apache-2.0
"""Random messages of agents, legal and illegal, against a model of the jobs that the controller must know.

The controller is a real process. After every message its agent asks for a flow that nobody has; the answer to
that question tells that the message has been handled, and that the session lives.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable

import pytest
from control_rig import PATIENCE_S, eventually, job, join_message

from controller.wire import agent_pb2 as wire

HOSTS = ("h1", "h2", "h3", "h4")
# Every pair of hosts on two leaves may have a job of its own, and some have two.
JOBS = {
    f"j{i}": job(f"j{i}", *pair)
    for i, pair in enumerate((("h1", "h3"), ("h2", "h4"), ("h1", "h4"), ("h3", "h2"), ("h3", "h1")))
}
STEPS = 250


class Oracle:
    """Which workers have joined; a job is on the fabric from its last join to its last leave."""

    def __init__(self) -> None:
        self.ranks: dict[str, set[int]] = defaultdict(set)
        self.arrived: set[str] = set()

    def join(self, name: str, rank: int) -> None:
        self.ranks[name].add(rank)
        if len(self.ranks[name]) == len(JOBS[name].hosts):
            self.arrived.add(name)

    def leave(self, name: str, rank: int) -> None:
        self.ranks[name].discard(rank)
        if not self.ranks[name]:
            self.arrived.discard(name)


def illegal(rng: random.Random, host: str) -> wire.AgentMessage:
    """A message that must be refused whatever has happened before."""
    other = next(h for h in HOSTS if h != host)
    mine = job("x", host, other)
    message = join_message(mine, 0)
    match rng.randrange(9):
        case 0:
            message = join_message(mine, 1)
        case 1:
            message.job_join.gpus = 0
        case 2:
            message.job_join.job = "x" * 300
        case 3:
            message.job_join.phases.add(start_ns=0, end_ns=1, rate_bps=1)
        case 4:
            pair = [h for h in HOSTS if h not in (host, other)]
            message.job_join.flows.add(name="x/f", src=pair[0], dst=pair[1], bytes_per_iteration=1)
        case 5:
            message = wire.AgentMessage()
        case 6:
            message = wire.AgentMessage(hello=wire.Hello(host=host, ip="10.0.0.1", pinning="udp", protocol=1))
        case 7:
            message = wire.AgentMessage(flow_opened=wire.FlowOpened(flow="x/f", source_port=1 << 20))
        case 8:
            message.job_join.hosts.append("nowhere")
    return message


@pytest.mark.slow
def test_random_messages_leave_the_jobs_that_the_model_says(
    fabric: object, start_controller: Callable[..., object], connect: Callable[..., object]
) -> None:
    rng = random.Random(1)
    controller = start_controller(fabric.description(verify=False))  # type: ignore[attr-defined]
    agents = {host: connect(controller.agents, host) for host in HOSTS}  # type: ignore[attr-defined]
    for agent in agents.values():
        agent.next("welcome")  # type: ignore[attr-defined]
    oracle, refused = Oracle(), 0

    def said(host: str, number: int) -> list[str]:
        """What the controller has said to a host until it answered the question of this number."""
        question = wire.FlowRequest(flow=f"nobody/{number}")
        agents[host].send(wire.AgentMessage(flow_request=question))  # type: ignore[attr-defined]
        found = []
        while True:
            message = agents[host].inbox.get(timeout=PATIENCE_S)  # type: ignore[attr-defined]
            assert message is not None, "the session has ended"
            if message.WhichOneof("body") == "flow" and message.flow.flow == question.flow:
                return found
            found.append(message.WhichOneof("body"))

    for number in range(STEPS):
        name = rng.choice(sorted(JOBS))
        member = JOBS[name]
        rank = rng.randrange(2)
        host = member.hosts[rank]
        kind = rng.choice(("join", "join", "leave", "flow", "iteration", "illegal"))
        if kind == "join":
            message = join_message(member, rank)
            oracle.join(name, rank)
        elif kind == "leave":
            message = wire.AgentMessage(job_leave=wire.JobLeave(job=name, rank=rank))
            oracle.leave(name, rank)
        elif kind == "flow":
            message = wire.AgentMessage(flow_request=wire.FlowRequest(flow=member.flows[rank].name))
        elif kind == "iteration":
            report = wire.IterationReport(job=name, rank=rank, index=number, start_ns=0, end_ns=260_000_000)
            message = wire.AgentMessage(iteration=report)
        else:
            message = illegal(rng, host)
        # A leave or a report of a rank that has not joined is no fault of the agent's: it may be refused.
        agents[host].send(message)  # type: ignore[attr-defined]
        answers = said(host, number)
        if kind == "illegal":
            refused += 1
            assert "refusal" in answers, message
        elif kind == "join":
            assert "refusal" not in answers, message
        if number % 25 == 24:
            eventually(lambda: known(controller) == oracle.arrived, f"the jobs after step {number}")
    assert refused
    assert controller.process.poll() is None  # type: ignore[attr-defined]
    assert "Traceback" not in controller.log.read_text()  # type: ignore[attr-defined]


def known(controller: object) -> set[str]:
    """The jobs that the REST API shows."""
    return {j["name"] for j in controller.api("jobs")["jobs"]}  # type: ignore[attr-defined]
