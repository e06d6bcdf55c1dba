# SPDX-License-Identifier: Apache-2.0
"""The gRPC server for agents: one session per host, and the embedded fabric's clock on the same port."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

import grpc
from google.protobuf.message import DecodeError

from controller.agents.answer_times import AnswerTimes
from controller.agents.channels import ChannelCounts
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
from controller.wire import agent_pb2 as wire
from controller.wire import agent_pb2_grpc as wire_grpc
from controller.wire.limits import MAX_MESSAGES_PER_S, MAX_UNSENT_MESSAGES
from controller.wire.server_tls import ServerTls
from controller.wire.token_bucket import TokenBucket

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
    """The session of a host. `instance` names the agent's process."""

    instance: str
    ended: bool = False
    outbox: asyncio.Queue[wire.ControllerMessage | None] = field(default_factory=asyncio.Queue)
    rate: TokenBucket = field(default_factory=lambda: TokenBucket(MAX_MESSAGES_PER_S, time.monotonic))

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
    only. `asked_s` is when an agent last asked for a flow, in seconds of the host's monotonic clock.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        terms: WelcomeTerms,
        *,
        inbox: Inbox,
        channels: ChannelCounts,
        ticks: TickHandler | None,
        delay_s: float,
        tls: ServerTls | None = None,
    ) -> None:
        self._tls = tls
        self._addresses = addresses
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
        self.sessions_begun = 0
        self.refusals = 0

    @property
    def connected(self) -> Set[str]:
        """The hosts whose agents have a session."""
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
        self._enqueue(effect.host, session, effect)
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
        try:
            self._check(first, context.auth_context())
        except MessageError as error:
            log.warning("agent at %s refused: %.300s", context.peer(), error)
            self.refusals += 1
            refusal = wire.ControllerMessage(sequence=1)
            refusal.refusal.what = str(error)[:_LONGEST_REFUSAL]
            yield refusal
            return
        host = first.hello.host
        channel = f"agent:{host}"
        replaced = self._sessions.get(host)
        session = self._sessions[host] = _Session(first.hello.instance)
        if replaced is not None:
            log.info("host %s: its agent has opened another session, which replaces the one before", host)
            replaced.end()
        self.sessions_begun += 1
        self._channels.opened(channel)
        self._inbox.put(host, channel, agent_up(first.hello))
        self._channels.arrived(channel, first.sequence)
        reader = asyncio.create_task(self._read(host, session, request_iterator))
        try:
            while (message := await session.outbox.get()) is not None:
                await self._pause()
                yield message
        finally:
            reader.cancel()
            if self._sessions.get(host) is session:
                del self._sessions[host]
                self._inbox.put(host, channel, AgentDown(host))
                self._channels.lost(channel)

    def _check(self, first: wire.AgentMessage, shown: Mapping[str, Iterable[bytes]]) -> None:
        """Check an agent's first message and certificate. Raises MessageError if it is refused."""
        if first.WhichOneof("body") != "hello":
            raise MessageError("the first message of a session must be Hello")
        host = first.hello.host
        check_hello(first.hello, self._addresses)
        if self._tls is not None and self._tls.client_ca is not None:
            names = certified_names(shown)
            if host not in names:
                raise MessageError(
                    f"the agent's certificate names {', '.join(sorted(names)) or 'nothing'}, not host {host}"
                )
        present = self._sessions.get(host)
        if present is not None and (not present.instance or present.instance != first.hello.instance):
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

    async def _read(self, host: str, session: _Session, messages: AsyncIterator[wire.AgentMessage]) -> None:
        channel = f"agent:{host}"
        try:
            async for message in messages:
                await self._pause()
                if session.ended:
                    return
                if self._ticks is None and (delay_s := session.rate.delay_s(1 + len(message.earlier))):
                    # What the agent has sent meanwhile waits in its connection.
                    await asyncio.sleep(delay_s)
                try:
                    for item in from_agent(host, message):
                        self._inbox.put(host, channel, item)
                    if message.WhichOneof("body") == "flow_request":
                        self.asked_s = time.monotonic()
                        self.answers.asked(host, message.flow_request.flow)
                except MessageError as error:
                    log.warning("host %s: a message of its agent is refused: %.300s", host, error)
                    self.refusals += 1
                    refusal = wire.ControllerMessage()
                    refusal.refusal.what = str(error)[:_LONGEST_REFUSAL]
                    self._put(host, session, refusal)
                self._channels.arrived(channel, message.sequence)
        except grpc.aio.AioRpcError as error:
            log.info("host %s: the session of its agent broke off: %s", host, error.code().name)
        except DecodeError:
            log.warning(
                "host %s: the session of its agent ends: the agent sent no message of the agent protocol",
                host,
            )
        finally:
            session.outbox.put_nowait(None)

    def _enqueue(self, host: str, session: _Session, effect: AgentEffect) -> None:
        self._put(host, session, to_agent(effect, self.terms))

    def _put(self, host: str, session: _Session, message: wire.ControllerMessage) -> None:
        channel = f"agent:{host}"
        self.sent[channel] = self.sent.get(channel, 0) + 1
        message.sequence = self.sent[channel]
        if session.ended:
            return
        if session.outbox.qsize() >= MAX_UNSENT_MESSAGES:
            log.error("host %s: its agent does not read; its session ends", host)
            session.end()
            return
        session.outbox.put_nowait(message)

    async def _pause(self) -> None:
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
