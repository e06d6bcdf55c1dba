# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the agents of all hosts in one process: their sessions, and what they have been told.

Each real agent has a machine of its own. This process stands for all of them on one processor, so it uses
gRPC's asyncio interface instead of the agents' session (hostagent/session.py), which has two threads for each
agent: a message that waits here for those of other agents waits so on no fabric.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import grpc

from controller.wire import agent_pb2 as pb
from controller.wire import agent_pb2_grpc as pb_grpc
from polyrhythm.bench.processes import READY_S
from topo.graph import Host

_AGAIN_S = 0.1
"""How long after the end of a session the next one is opened."""
_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


@dataclass
class JobArrival:
    """A job that arrives. `missing` are the flows and the hosts that have not been told yet."""

    began_s: float
    missing: set[str]
    ended_s: float | None = None


class AgentSession:
    """The session of a stand-in, opened again whenever it ends."""

    def __init__(self, hello: pb.Hello, agents: AgentStandIns) -> None:
        self._hello = hello
        self._agents = agents
        self._outbox: asyncio.Queue[pb.AgentMessage] | None = None
        self._sequence = 0

    def send(self, message: pb.AgentMessage) -> None:
        """Number a message and queue it. Without a session it is dropped."""
        if self._outbox is not None:
            self._sequence += 1
            message.sequence = self._sequence
            self._outbox.put_nowait(message)

    async def run(self, address: str) -> None:
        """Hold a session with the controller at `address` until cancelled."""
        while True:
            async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await self._serve(channel)
            await asyncio.sleep(_AGAIN_S)

    async def _serve(self, channel: grpc.aio.Channel) -> None:
        call = pb_grpc.AgentHubStub(channel).Session()  # type: ignore[no-untyped-call]
        outbox = self._outbox = asyncio.Queue()
        self._agents.connected(self._hello)

        async def write() -> None:
            while True:
                await call.write(await outbox.get())

        writing = asyncio.create_task(write())
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                self._agents.said(self._hello.host, message)
        finally:
            self._outbox = None
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await writing


@dataclass
class AgentStandIns:
    """The sessions of all agents, and what they have been told."""

    sessions: dict[str, AgentSession] = field(default_factory=dict)
    present: dict[str, pb.JobJoin] = field(default_factory=dict)
    up: set[str] = field(default_factory=set)
    arrivals: dict[str, JobArrival] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    answers_s: list[float] = field(default_factory=list)

    def said(self, host: str, message: pb.ControllerMessage) -> None:
        """The controller has sent a message to the agent of `host`."""
        now = time.monotonic()
        kind = message.WhichOneof("body")
        if kind == "welcome":
            self.up.add(host)
        elif kind == "flow":
            flow = message.flow.flow
            asked = self.asked.pop(flow, None)
            if asked is not None:
                self.answers_s.append(now - asked)
            elif message.flow.source_port:
                self._told(flow.partition("/")[0], flow, now)
        elif kind == "schedule":
            self._told(message.schedule.job, host, now)

    def _told(self, job: str, what: str, now: float) -> None:
        arrival = self.arrivals.get(job)
        if arrival is not None and what in arrival.missing:
            arrival.missing.discard(what)
            if not arrival.missing:
                arrival.ended_s = now

    def arrive(self, job: pb.JobJoin) -> None:
        """All workers of a job join, and ask for the paths of their flows."""
        told = {*job.hosts, *(f.name for f in job.flows)}
        self.arrivals[job.job] = JobArrival(time.monotonic(), told)
        self.present[job.job] = job
        for rank, host in enumerate(job.hosts):
            self._join(job, rank, host)

    def connected(self, hello: pb.Hello) -> None:
        """The session of an agent has begun, perhaps anew: as a real one, it announces its workers again."""
        self.sessions[hello.host].send(pb.AgentMessage(hello=hello))
        for job in self.present.values():
            for rank, name in enumerate(job.hosts):
                if name == hello.host:
                    self._join(job, rank, name)

    def _join(self, job: pb.JobJoin, rank: int, host: str) -> None:
        joined = pb.JobJoin()
        joined.CopyFrom(job)
        joined.rank = rank
        flow = next(f.name for f in job.flows if f.src == host)
        self.sessions[host].send(pb.AgentMessage(job_join=joined))
        self.sessions[host].send(pb.AgentMessage(flow_request=pb.FlowRequest(flow=flow)))

    def leave(self, job: pb.JobJoin) -> None:
        """All workers of a job leave."""
        del self.present[job.job]
        for rank, host in enumerate(job.hosts):
            self.sessions[host].send(pb.AgentMessage(job_leave=pb.JobLeave(job=job.job, rank=rank)))

    def ask(self, flow: pb.FlowSpec) -> None:
        """Ask for the path of a flow, unless the last question for it waits still."""
        if flow.name not in self.asked:
            self.asked[flow.name] = time.monotonic()
            self.sessions[flow.src].send(pb.AgentMessage(flow_request=pb.FlowRequest(flow=flow.name)))


@contextlib.asynccontextmanager
async def connected(address: str, hosts: Sequence[Host]) -> AsyncIterator[AgentStandIns]:
    """The sessions of the agents of all hosts.

    Raises:
        RuntimeError: they did not begin.
    """
    agents = AgentStandIns()
    for host in hosts:
        hello = pb.Hello(host=host.name, ip=host.ip, pinning="verbs", protocol=1)
        agents.sessions[host.name] = AgentSession(hello, agents)
    held = [asyncio.create_task(session.run(address)) for session in agents.sessions.values()]
    try:
        await until(lambda: len(agents.up) == len(hosts), "the sessions of the agents")
        yield agents
    finally:
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds. Raises RuntimeError if it does not within READY_S."""
    deadline = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} not ready within {READY_S:g} s")
        await asyncio.sleep(0.02)
