# SPDX-License-Identifier: Apache-2.0
"""The gRPC server for agents, and the embedded fabric's clock on the same port.

An agent has one session. It sends a Hello for each NIC that it serves: for one, or for all rails of its
machine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

import grpc
from google.protobuf.message import DecodeError

from controller.agents.answer_times import AnswerTimes
from controller.agents.channels import ChannelCounts
from controller.agents.job_descriptions import LONG, JobDescriptions, accepted
from controller.agents.port import new_server
from controller.agents.tls import certified_names
from controller.agents.translate import (
    MessageError,
    WelcomeTerms,
    agent_up,
    check_hello,
    from_agent,
    to_agent,
)
from controller.live.messages import AgentDown, AgentEffect, Input, SendAssignment
from controller.model.job import Job
from controller.wire import agent_pb2 as wire
from controller.wire import agent_pb2_grpc as wire_grpc
from controller.wire.limits import MAX_MESSAGES_PER_S, MAX_UNSENT_MESSAGES
from controller.wire.server_tls import ServerTls
from controller.wire.token_bucket import TokenBucket
from topo.graph import Host

log = logging.getLogger(__name__)


_LONGEST_REFUSAL = 1000
HELLO_S = 10.0
"""How long a new session may take to send its Hello, in seconds of host time. Chosen."""
ALIVE_S = 5.0
"""How often the embedded fabric is told, in seconds of host time, that the controller still works on a tick.
Chosen: well below the time after which the fabric gives a silent controller up
(polyrhythm/fabric/boundary.py)."""


class Inbox(Protocol):
    """Receives the inputs from agents."""

    def put(self, node: str, channel: str, item: Input) -> None:
        """Add an input. `node` and `channel` order it among other inputs of the same time."""


class TickHandler(Protocol):
    """Receives the ticks of the embedded fabric's clock."""

    async def tick(self, tick: wire.Tick) -> wire.Settled:
        """Handle everything that the tick announces; returns the answer that settles it."""

    def time_lost(self) -> None:
        """The connection to the fabric's clock ended before the end of the run."""


@dataclass(slots=True)
class _Session:
    """The session of an agent.

    `instance` names the agent's process, `host` the NIC of its first Hello. `rates` has every NIC of its
    Hellos, each with what bounds its messages. `names`: those in the agent's certificate, None without one.
    """

    instance: str
    host: str
    names: frozenset[str] | None
    ended: bool = False
    outbox: asyncio.Queue[wire.ControllerMessage | None] = field(default_factory=asyncio.Queue)
    rates: dict[str, TokenBucket] = field(default_factory=dict)

    @property
    def channel(self) -> str:
        """The session's channel of the embedded fabric's clock."""
        return f"agent:{self.host}"

    def serve(self, host: str) -> None:
        """Serve a NIC of the agent's machine."""
        self.rates[host] = TokenBucket(MAX_MESSAGES_PER_S, time.monotonic)

    def end(self) -> None:
        """End the session, as soon as its peer has read the message that is under way."""
        self.ended = True
        while not self.outbox.empty():
            self.outbox.get_nowait()
        self.outbox.put_nowait(None)


class AgentServer(wire_grpc.AgentHubServicer, wire_grpc.FabricTimeServicer):
    """Serves the gRPC services AgentHub and FabricTime on one port.

    `delay_s` is an artificial sleep before each message is handled or sent. It serves tests that show that
    nothing in the embedded fabric depends on the speed of the transport. With `tls` the port accepts TLS
    only. `hosts`: those of the fabric by name. `asked_s` is when an agent last asked for a flow, in seconds
    of the host's monotonic clock.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        terms: WelcomeTerms,
        *,
        inbox: Inbox,
        channels: ChannelCounts,
        ticks: TickHandler | None,
        delay_s: float,
        tls: ServerTls | None = None,
    ) -> None:
        self._tls = tls
        self._hosts = hosts
        self.terms = terms
        self._inbox = inbox
        self._channels = channels
        self._ticks = ticks
        self._delay_s = delay_s
        self._sessions: dict[str, _Session] = {}
        self._followed = False
        self._server: grpc.aio.Server | None = None
        self.sent: dict[str, int] = {}
        self.asked_s = 0.0
        self.answers = AnswerTimes()
        self._descriptions = JobDescriptions()
        self.sessions_begun = 0
        self.refusals = 0

    @property
    def connected(self) -> Set[str]:
        """The hosts of the fabric, each a NIC, whose agents have a session."""
        return self._sessions.keys()

    async def start(self, address: str, port: int) -> str:
        """Listen on `address` and `port` (0: any), or on "unix:/PATH"; returns the address for agents.

        Raises:
            OSError: the address or port cannot be used.
        """
        self._server, taken = new_server(address, port, self._tls, pings=self._ticks is None)
        wire_grpc.add_AgentHubServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        wire_grpc.add_FabricTimeServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        await self._server.start()
        return taken

    async def stop(self) -> None:
        """End all sessions."""
        if self._server is not None:
            await self._server.stop(grace=0)

    def send(self, effect: AgentEffect) -> bool:
        """Queue a message for an agent. False, with a line in the log, if the agent has no session."""
        session = self._sessions.get(effect.host)
        if session is None:
            log.info(
                "host %s: its agent has no session, so this message is not sent: %s", effect.host, effect
            )
            return False
        if isinstance(effect, SendAssignment):
            self.answers.answered(effect.host, effect.flow)
        message = to_agent(effect, self.terms)
        if effect.host != session.host:
            message.host = effect.host
        self._put(session, message)
        return True

    async def Session(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[wire.AgentMessage],
        context: grpc.aio.ServicerContext[wire.AgentMessage, wire.ControllerMessage],
    ) -> AsyncIterator[wire.ControllerMessage]:
        """One agent's session."""
        try:
            # Hello waits for the embedded fabric's time, which stands still until all agents are connected.
            async with asyncio.timeout(HELLO_S if self._ticks is None else None):
                first = await anext(aiter(request_iterator), None)
        except TimeoutError:
            log.warning("agent at %s refused: it sent no Hello within %g s", context.peer(), HELLO_S)
            return
        except DecodeError:
            log.warning("agent at %s refused: it sent no message of the agent protocol", context.peer())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this is no message of the agent protocol")
            return
        if first is None:
            return
        await self._pause()
        shown = context.auth_context()
        certified = self._tls is not None and self._tls.client_ca is not None
        session = _Session(
            first.hello.instance, first.hello.host, certified_names(shown) if certified else None
        )
        try:
            if first.WhichOneof("body") != "hello":
                raise MessageError("the first message of a session must be Hello")
            self._check(first.hello, session)
        except MessageError as error:
            log.warning("agent at %s refused: %.300s", context.peer(), error)
            self.refusals += 1
            refusal = wire.ControllerMessage(sequence=1)
            refusal.refusal.what = str(error)[:_LONGEST_REFUSAL]
            yield refusal
            return
        self.sessions_begun += 1
        self._channels.opened(session.channel)
        self._serve(first.hello, session)
        self._channels.arrived(session.channel, first.sequence)
        reader = asyncio.create_task(self._read(session, request_iterator))
        try:
            while (message := await session.outbox.get()) is not None:
                await self._pause()
                yield message
        finally:
            reader.cancel()
            # A newer session may serve some of its NICs by now.
            left = [host for host in session.rates if self._sessions.get(host) is session]
            for host in left:
                del self._sessions[host]
                self._inbox.put(session.host, session.channel, AgentDown(host))
            if session.host in left:
                self._channels.lost(session.channel)

    def _serve(self, hello: wire.Hello, session: _Session) -> None:
        """Serve a NIC in a session from now on. Its Hello has been checked."""
        replaced = self._sessions.get(hello.host)
        self._sessions[hello.host] = session
        session.serve(hello.host)
        if replaced is not None and not replaced.ended:
            log.info(
                "host %s: its agent has opened another session, which replaces the one before", hello.host
            )
            replaced.end()
        self._inbox.put(session.host, session.channel, agent_up(hello))

    def _check(self, hello: wire.Hello, session: _Session) -> None:
        """Check a Hello of an agent, and its certificate. Raises MessageError if it is refused."""
        host, hosts = hello.host, self._hosts
        check_hello(hello, hosts)
        if hosts[host].machine != hosts[session.host].machine:
            raise MessageError(
                f"host {host} is a NIC of {hosts[host].machine}, and {session.host} one of "
                f"{hosts[session.host].machine}; legal: the NICs of one machine in a session"
            )
        if session.names is not None and session.names.isdisjoint((host, hosts[host].machine)):
            legal = " or ".join(sorted({host, hosts[host].machine}))
            raise MessageError(
                f"the agent's certificate names {', '.join(sorted(session.names)) or 'nothing'}, "
                f"not host {legal}"
            )
        present = self._sessions.get(host)
        if present is session:
            raise MessageError(f"host {host} has sent its Hello in this session already")
        if present is not None and (not present.instance or present.instance != hello.instance):
            # A dead one is found out by its pings, and the agent tries again.
            raise MessageError(f"host {host} already has a session")

    async def Follow(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[wire.Tick],
        context: grpc.aio.ServicerContext[wire.Tick, wire.Settled],
    ) -> AsyncIterator[wire.Settled]:
        """The stream of the embedded fabric's clock."""
        if self._ticks is None or self._followed:
            what = (
                "uses the host's clock" if self._ticks is None else "follows another fabric's clock already"
            )
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"this controller {what}")
            return
        self._followed = True
        last = False
        try:
            async for tick in request_iterator:
                await self._pause()
                work = asyncio.ensure_future(self._ticks.tick(tick))
                try:
                    while not (await asyncio.wait({work}, timeout=ALIVE_S))[0]:
                        # No tick has the sequence number 0: this says only that the controller lives.
                        yield wire.Settled(sequence=0)
                finally:
                    work.cancel()
                last = tick.last
                await self._pause()
                yield work.result()
        finally:
            self._followed = False
            if not last:
                self._ticks.time_lost()

    async def _read(self, session: _Session, messages: AsyncIterator[wire.AgentMessage]) -> None:
        try:
            async for message in messages:
                await self._pause()
                if session.ended:
                    return
                rate = session.rates.get(message.host, session.rates[session.host])
                if self._ticks is None and (delay_s := rate.delay_s(1 + len(message.earlier))):
                    # What the agent has sent meanwhile waits in its connection.
                    await asyncio.sleep(delay_s)
                try:
                    self._take(session, message, await self._job_of(message))
                except MessageError as error:
                    host = message.host or session.host
                    log.warning("host %.300s: a message of its agent is refused: %.300s", host, error)
                    self.refusals += 1
                    refusal = wire.ControllerMessage()
                    refusal.refusal.what = str(error)[:_LONGEST_REFUSAL]
                    self._put(session, refusal)
                    if message.HasField("hello") and message.hello.host not in session.rates:
                        # An agent that serves some of its NICs only would seem healthy. It tries again.
                        return
                self._channels.arrived(session.channel, message.sequence)
        except grpc.aio.AioRpcError as error:
            log.info("host %s: the session of its agent broke off: %s", session.host, error.code().name)
        except DecodeError:
            log.warning(
                "host %s: the session of its agent ends: the agent sent no message of the agent protocol",
                session.host,
            )
        finally:
            session.outbox.put_nowait(None)

    def _take(
        self, session: _Session, message: wire.AgentMessage, job_of: Callable[[wire.JobJoin], Job]
    ) -> None:
        """Pass the inputs of a message on. Raises MessageError for an illegal one."""
        if message.HasField("hello"):
            self._check(message.hello, session)
            self._serve(message.hello, session)
            return
        host = message.host or session.host
        if self._sessions.get(host) is not session:
            raise MessageError(
                f"host: {host[:100]!r} is not served in this session; legal: {', '.join(session.rates)}"
            )
        if message.HasField("flow_request"):
            self.asked_s = time.monotonic()
            self.answers.asked(host, message.flow_request.flow)
        for item in from_agent(host, message, job_of):
            self._inbox.put(session.host, session.channel, item)

    async def _job_of(self, message: wire.AgentMessage) -> Callable[[wire.JobJoin], Job]:
        """What translates the description of a job in this message."""
        descriptions = self._descriptions
        if len(message.job_join.flows) + len(message.job_join.hosts) > LONG:
            ready = await asyncio.to_thread(descriptions.job, message.job_join)
            return lambda _: accepted(ready)
        return lambda join: accepted(descriptions.job(join))

    def _put(self, session: _Session, message: wire.ControllerMessage) -> None:
        channel = session.channel
        self.sent[channel] = self.sent.get(channel, 0) + 1
        message.sequence = self.sent[channel]
        if session.ended:
            return
        if session.outbox.qsize() >= MAX_UNSENT_MESSAGES * len(session.rates):
            log.error("host %s: its agent does not read; its session ends", session.host)
            session.end()
            return
        session.outbox.put_nowait(message)

    async def _pause(self) -> None:
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
