# SPDX-License-Identifier: Apache-2.0
"""One P4Runtime session with one switch: arbitration, pipeline, tables, packets, port states.

Built on finsy's client and message classes. finsy's own `Switch` is not used: it neither chunks
writes nor reports port changes, and the embedded fabric needs every packet-in counted where it is read.
Everything here runs on one asyncio loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc
from finsy.grpcutil import GRPCCredentialsTLS, GRPCStatusCode
from finsy.p4client import P4Client, P4ClientError
from finsy.proto import U128, p4r

from controller.southbound.artefacts import Artefacts
from controller.southbound.codec import Codec, CounterValue, PacketIn
from controller.southbound.gnmi import NoPortStatesError, PortStates

log = logging.getLogger(__name__)

# finsy and P4Runtime's shell bid low; a controller that owns the fabric bids above them.
ELECTION_ID = 1000
WRITES_IN_FLIGHT = 4
BACK_OFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
# Host time for the other side to answer a session's first message.
ANSWER_TIMEOUT_S = 5.0


class SessionError(Exception):
    """The session cannot go on; the message says why. The client reconnects."""


@dataclass(frozen=True, slots=True)
class RefusedUpdate:
    """One update that a switch refused."""

    switch: str
    what: str
    why: str


class Listener(Protocol):
    """Who hears of a switch. Called on the loop; must return at once."""

    async def switch_connected(self, name: str, fresh: bool) -> None:
        """The pipeline is there (`fresh`: just pushed, so all tables are empty): write the tables."""

    def switch_ready(self, name: str, ports: Mapping[int, bool] | None) -> None:
        """The switch is in service. `ports`: port -> up; None where the target tells no port states."""

    def switch_lost(self, name: str, why: str) -> None:
        """The session is gone."""

    def packet_in(self, name: str, packet: PacketIn) -> None:
        """A frame for the controller."""

    def port_states(self, name: str, states: Mapping[int, bool]) -> None:
        """One gNMI notification: port -> up."""


class SwitchClient:
    """Keeps a session with one switch for as long as `run` runs."""

    def __init__(
        self,
        name: str,
        address: str,
        device_id: int,
        *,
        tls: GRPCCredentialsTLS | None = None,
        codec: Codec,
        artefacts: Artefacts,
        listener: Listener,
    ) -> None:
        self.name = name
        self.address = address
        self.state = "connecting"
        self._device_id = device_id
        self._tls = tls
        self._codec = codec
        self._artefacts = artefacts
        self._listener = listener
        self._client: P4Client | None = None
        self._election_id = ELECTION_ID
        self._write_lock = asyncio.Lock()
        self._in_flight = asyncio.Semaphore(WRITES_IN_FLIGHT)

    async def run(self) -> None:
        """Connect, serve, and connect again with growing pauses, until cancelled."""
        failures = 0
        while True:
            try:
                await self._session()
            except (SessionError, P4ClientError, grpc.aio.AioRpcError, OSError) as error:
                why = _reason(error)
            finally:
                was_ready, self.state = self.state == "ready", "down"
                await self._close()
            if was_ready:
                failures = 0
                self._listener.switch_lost(self.name, why)
            elif failures == 0:
                log.warning("%s at %s: %s; trying again", self.name, self.address, why)
            await asyncio.sleep(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
            failures += 1
            self.state = "connecting"

    async def write(self, stages: Sequence[Sequence[bytes]]) -> tuple[RefusedUpdate, ...]:
        """Write serialised requests: stage after stage, the requests of a stage side by side.

        Returns one error per refused update. A lost session raises SessionError.
        """
        errors: list[RefusedUpdate] = []
        async with self._write_lock:
            for stage in stages:
                for result in await asyncio.gather(*(self._write_chunk(data) for data in stage)):
                    errors.extend(result)
        return tuple(errors)

    async def read_entries(self) -> tuple[bytes, ...]:
        """Every table entry the switch holds, as serialised entities."""
        found: list[bytes] = []
        try:
            async for reply in self._connected().request_iter(self._codec.read_tables(self._device_id)):
                found.extend(entity.SerializeToString() for entity in reply.entities)
        except P4ClientError as error:
            raise SessionError(_reason(error)) from None
        return tuple(found)

    async def read_counters(self, counters: Mapping[str, Sequence[int]]) -> tuple[CounterValue, ...]:
        """The present values of counters for all queues of the ports that each is asked of."""
        request = self._codec.read_counters(self._device_id, counters)
        found: list[CounterValue] = []
        try:
            async for reply in self._connected().request_iter(request):
                found.extend(self._codec.counter_value(e.counter_entry) for e in reply.entities)
        except P4ClientError as error:
            raise SessionError(_reason(error)) from None
        return tuple(found)

    async def packet_out(self, payload: bytes, egress_port: int, submit_to_ingress: bool) -> None:
        """Send a frame out of a port, or through the ingress pipeline."""
        try:
            await self._connected().send(self._codec.packet_out(payload, egress_port, submit_to_ingress))
        except P4ClientError as error:
            raise SessionError(_reason(error)) from None

    async def _session(self) -> None:
        self._client = P4Client(self.address, self._tls, wait_for_ready=False)
        await self._client.open(complete_request=self._complete)
        await asyncio.wait_for(self._win(), ANSWER_TIMEOUT_S)
        fresh = await self._push_pipeline()
        await self._listener.switch_connected(self.name, fresh)
        ports: PortStates | None = None
        if self._client.channel is not None:
            try:
                ports = await asyncio.wait_for(PortStates.open(self._client.channel), ANSWER_TIMEOUT_S)
            except (NoPortStatesError, TimeoutError) as error:
                log.info("%s tells no port states (%s): link probes watch its links", self.name, error)
        self.state = "ready"
        self._listener.switch_ready(self.name, dict(ports.initial) if ports is not None else None)
        watcher = asyncio.create_task(self._watch_ports(ports)) if ports is not None else None
        try:
            while True:
                self._take(await self._receive())
        finally:
            if ports is not None:
                ports.close()
            if watcher is not None:
                watcher.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watcher

    async def _win(self) -> None:
        """Bid for the switch and wait until it is ours."""
        await self._bid()
        warned = False
        while True:
            try:
                message = await self._receive()
            except P4ClientError as error:
                if error.is_election_id_used:
                    # A stale session of ours still holds the number.
                    self._election_id += 1
                raise
            if message.WhichOneof("update") != "arbitration":
                continue
            code = message.arbitration.status.code
            if code == GRPCStatusCode.OK:
                return
            highest = U128.decode(message.arbitration.election_id)
            if code == GRPCStatusCode.NOT_FOUND:
                self._election_id = max(self._election_id, highest)
                await self._bid()
            elif not warned:
                warned = True
                log.warning("%s: another controller holds it with election id %d", self.name, highest)

    async def _bid(self) -> None:
        await self._connected().send(
            p4r.StreamMessageRequest(
                arbitration=p4r.MasterArbitrationUpdate(
                    device_id=self._device_id, election_id=U128.encode(self._election_id)
                )
            )
        )

    async def _push_pipeline(self) -> bool:
        """Push the P4 program unless the switch runs this very build; True if it was pushed."""
        cookie = self._artefacts.cookie
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY,
        )
        try:
            reply = await self._connected().request(request)
        except P4ClientError as error:
            if not error.is_pipeline_missing:
                raise
        else:
            if reply.config.HasField("cookie") and reply.config.cookie.cookie == cookie:
                return False
        await self._connected().request(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=self._device_id,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=p4r.ForwardingPipelineConfig(
                    p4info=self._codec.p4info,
                    p4_device_config=self._artefacts.device_config,
                    cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=cookie),
                ),
            )
        )
        return True

    async def _write_chunk(self, data: bytes) -> tuple[RefusedUpdate, ...]:
        request = p4r.WriteRequest.FromString(data)
        async with self._in_flight:
            try:
                await self._connected().request(request)
            except P4ClientError as error:
                if error.code in (GRPCStatusCode.UNAVAILABLE, GRPCStatusCode.CANCELLED):
                    raise SessionError(_reason(error)) from None
                return self._refused(request, error)
        return ()

    def _refused(self, request: p4r.WriteRequest, error: P4ClientError) -> tuple[RefusedUpdate, ...]:
        details = error.details
        if not details:
            return tuple(
                RefusedUpdate(self.name, self._codec.describe(update), f"{error.code.name}: {error.message}")
                for update in request.updates
            )
        return tuple(
            RefusedUpdate(
                self.name,
                self._codec.describe(request.updates[i]),
                f"{detail.canonical_code.name}: {detail.message}",
            )
            for i, detail in sorted(details.items())
        )

    def _take(self, message: p4r.StreamMessageResponse) -> None:
        kind = message.WhichOneof("update")
        if kind == "packet":
            self._listener.packet_in(self.name, self._codec.packet_in(message.packet))
        elif kind == "arbitration" and message.arbitration.status.code != GRPCStatusCode.OK:
            raise SessionError("another controller took it over")
        elif kind == "error":
            log.warning("%s refused a packet: %s", self.name, message.error.message)

    async def _watch_ports(self, ports: PortStates) -> None:
        async for states in ports.updates():
            self._listener.port_states(self.name, states)
        # With the session itself at its end this task is cancelled here; otherwise it is worth a word.
        await asyncio.sleep(1.0)
        log.warning("%s ended its port states; they are known again after a new session", self.name)

    async def _receive(self) -> p4r.StreamMessageResponse:
        try:
            return await self._connected().receive()
        except RuntimeError:
            # finsy's word for a stream that the switch closed.
            raise SessionError("the switch closed the session") from None

    def _complete(self, message: object) -> None:
        if isinstance(message, p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest):
            message.election_id.CopyFrom(U128.encode(self._election_id))

    def _connected(self) -> P4Client:
        if self._client is None:
            raise SessionError("there is no session")
        return self._client

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_TIMEOUT_S:g} s"
    if isinstance(error, P4ClientError):
        return f"{error.code.name}: {error.message}"
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
