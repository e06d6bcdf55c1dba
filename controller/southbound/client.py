# SPDX-License-Identifier: Apache-2.0
"""One P4Runtime session with one switch: arbitration, pipeline, tables, packets, port states.

It is built on finsy's client and message classes. finsy's own `Switch` is not used for three reasons: it does
not split writes into chunks, it does not report port changes, and the embedded fabric needs a count of every
packet-in at the place where it is read. Everything here runs on one asyncio loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc
from finsy.grpcutil import GRPCCredentialsTLS, GRPCStatusCode
from finsy.p4client import P4Client, P4ClientError
from finsy.proto import U128, p4r

from controller.southbound import raw_calls
from controller.southbound.arbitration import Arbitration
from controller.southbound.artefacts import Artefacts
from controller.southbound.codec import Codec, PacketIn
from controller.southbound.election_ids import DeposedError, ElectionIds
from controller.southbound.gnmi import NoPortStatesError, PortStates
from controller.southbound.heartbeat import Heartbeat
from controller.southbound.raw_calls import ANSWER_TIMEOUT_S, OpenCalls, SessionError, reason
from controller.southbound.switch_channel import SwitchChannel

log = logging.getLogger(__name__)

# Chosen: write requests of one switch that are in flight at the same time.
WRITES_IN_FLIGHT = 4
# Chosen: pauses before the next attempts to connect, in seconds of host time. They stay short: a switch that
# comes back without tables drops its traffic until the controller has written them.
BACK_OFF_S = (0.1, 0.2, 0.5)
# Host time for one Write or Read call. finsy's client has the same limit.
CALL_TIMEOUT_S = 10.0
_NO_ANSWER = (GRPCStatusCode.UNAVAILABLE, GRPCStatusCode.CANCELLED, GRPCStatusCode.DEADLINE_EXCEEDED)
# Chosen: frames that wait to be sent to one switch. A round of probes on a large fabric has a few hundred.
FRAMES_WAITING = 2_000


@dataclass(frozen=True, slots=True)
class RefusedUpdate:
    """One update that a switch refused: `what` is the update in words, `why` the switch's error."""

    switch: str
    what: str
    why: str


class SwitchListener(Protocol):
    """Receives what a switch reports. The methods run on the asyncio loop; they must not block."""

    async def switch_connected(self, name: str, fresh: bool) -> None:
        """The pipeline is loaded: write the tables. `fresh`: it was just pushed, so all tables are empty."""

    def switch_ready(self, name: str, ports: Mapping[int, bool] | None) -> None:
        """The switch is in service. `ports`: port -> up; None where the target reports no port states."""

    def switch_lost(self, name: str, why: str) -> None:
        """The session is lost."""

    def packet_in(self, name: str, packet: PacketIn) -> None:
        """The switch has sent a packet to the controller."""

    def port_states(self, name: str, states: Mapping[int, bool]) -> None:
        """A gNMI notification: port -> up."""


class SwitchClient:
    """Keeps a session with one switch while `run` runs.

    `heartbeat` None: the session is lost only when the connection breaks. The embedded fabric needs that,
    because there a slow computer must change no result.
    """

    def __init__(
        self,
        name: str,
        address: str,
        device_id: int,
        *,
        tls: GRPCCredentialsTLS | None = None,
        codec: Codec,
        artefacts: Artefacts,
        listener: SwitchListener,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self.name = name
        self.address = address
        self.state = "connecting"
        self.why = ""
        """Why there is no session; empty while there is one, and before the first attempt has ended."""
        self._device_id = device_id
        self._tls = tls
        self._codec = codec
        self._artefacts = artefacts
        self._listener = listener
        self._heartbeat = heartbeat
        self._patience_s = ANSWER_TIMEOUT_S if heartbeat is not None else None
        self._call_timeout_s = CALL_TIMEOUT_S if heartbeat is not None else None
        self._frames: asyncio.Queue[p4r.StreamMessageRequest] = asyncio.Queue(FRAMES_WAITING)
        self._client: P4Client | None = None
        self._arbitration = Arbitration(name, device_id)
        self._leads: Callable[[], bool] = _always
        self._write_lock = asyncio.Lock()
        self._open_calls: OpenCalls = set()
        self._hurry = asyncio.Event()
        self._in_flight = asyncio.Semaphore(WRITES_IN_FLIGHT)
        # A write whose fate is unknown, until a session with a higher election id has begun.
        self._unanswered = False
        self._ends = asyncio.Event()
        self._ends_why = ""

    def bid_with(self, ids: ElectionIds, leads: Callable[[], bool]) -> None:
        """Bid with these election ids, and send nothing once `leads()` is false. Call it before `run`."""
        self._arbitration.bid_with(ids)
        self._leads = leads

    def suspect(self) -> None:
        """Something speaks for a failure of the switch: ask for a sign of life at once."""
        self._hurry.set()

    async def run(self) -> None:
        """Connect and serve; after a lost session connect again, with growing pauses.

        Runs until cancelled.
        """
        failures = 0
        while True:
            try:
                await self._session()
            except (SessionError, DeposedError, P4ClientError, grpc.aio.AioRpcError, OSError) as error:
                why = self.why = reason(error)
            finally:
                was_ready, self.state = self.state == "ready", "down"
                await self._close()
            if was_ready:
                failures = 0
                self._listener.switch_lost(self.name, why)
            elif failures == 0:
                log.warning(
                    "switch %s at %s: no session: %s; the controller tries again",
                    self.name,
                    self.address,
                    why,
                )
            await asyncio.sleep(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
            failures += 1
            self.state = "connecting"

    async def write(self, stages: Sequence[Sequence[bytes]]) -> tuple[RefusedUpdate, ...]:
        """Write serialised requests: the stages one after another, the requests of a stage in parallel.

        Returns one error per refused update.

        Raises:
            SessionError: the session is lost.
        """
        errors: list[RefusedUpdate] = []
        async with self._write_lock:
            for stage in stages:
                for result in await asyncio.gather(*(self._write_chunk(data) for data in stage)):
                    errors.extend(result)
        return tuple(errors)

    async def read_tables(self) -> tuple[bytes, ...]:
        """Every table entry of the switch, as serialised ReadResponses. Raises SessionError."""
        return await self._read(self._codec.read_tables(self._device_id), self._call_timeout_s)

    async def read_counters(self, request: p4r.ReadRequest) -> tuple[bytes, ...]:
        """The counters that a request asks for, as serialised ReadResponses. Raises SessionError."""
        limit_s = self._heartbeat.deadline_s if self._heartbeat is not None else None
        return await self._read(request, limit_s)

    async def packet_out(self, payload: bytes, egress_port: int, submit_to_ingress: bool) -> None:
        """Send a frame out of a port, or through the ingress pipeline. Raises SessionError."""
        try:
            await self._connected().send(self._codec.packet_out(payload, egress_port, submit_to_ingress))
        except P4ClientError as error:
            raise SessionError(reason(error)) from None

    def post_frame(self, payload: bytes, egress_port: int, submit_to_ingress: bool) -> bool:
        """Send a frame as `packet_out` does, but without waiting for the switch: the frames are sent in
        order. False if there is no session, or if FRAMES_WAITING frames wait already.
        """
        if self.state != "ready":
            return False
        try:
            self._frames.put_nowait(self._codec.packet_out(payload, egress_port, submit_to_ingress))
        except asyncio.QueueFull:
            return False
        return True

    async def _read(self, request: p4r.ReadRequest, timeout_s: float | None) -> tuple[bytes, ...]:
        try:
            return await raw_calls.read(self._connected(), self._open_calls, request, timeout_s)
        except P4ClientError as error:
            self._look_at(error)
            raise SessionError(reason(error)) from None

    async def _session(self) -> None:
        self._client = SwitchChannel(self.address, self._tls, wait_for_ready=False)
        await self._client.open(complete_request=self._complete)
        if self._unanswered:
            self._arbitration.outdate_writes()
        await self._arbitration.win(self._connected().send, self._receive, self._patience_s, self._waits)
        self._unanswered = False
        self._ends.clear()
        fresh = await self._push_pipeline()
        await self._listener.switch_connected(self.name, fresh)
        ports: PortStates | None = None
        if self._client.channel is not None:
            try:
                async with asyncio.timeout(self._patience_s):
                    ports = await PortStates.open(self._client.channel, self._patience_s)
            except (NoPortStatesError, TimeoutError) as error:
                log.info(
                    "switch %s reports no port states by gNMI (%s), so link probes watch its links",
                    self.name,
                    error,
                )
        self._frames = asyncio.Queue(FRAMES_WAITING)
        self.state, self.why = "ready", ""
        self._listener.switch_ready(self.name, dict(ports.initial) if ports is not None else None)
        watcher = asyncio.create_task(self._watch_ports(ports)) if ports is not None else None
        serving = [
            asyncio.create_task(self._take_all()),
            asyncio.create_task(self._send_frames()),
            asyncio.create_task(self._watch_calls()),
        ]
        if self._heartbeat is not None:
            serving.append(asyncio.create_task(self._watch(self._heartbeat)))
        try:
            # The first of them that ends, ends the session; its error says why.
            done, _ = await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            if ports is not None:
                ports.close()
            ending = [*serving, watcher] if watcher is not None else serving
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def _take_all(self) -> None:
        """Take what the switch sends until the session is lost."""
        while True:
            self._take(await self._receive())

    async def _send_frames(self) -> None:
        """Send the posted frames in order."""
        while True:
            await self._connected().send(await self._frames.get())

    async def _watch(self, heartbeat: Heartbeat) -> None:
        """Raises SessionError once the switch is silent."""

        async def ask() -> None:
            try:
                await self._connected().request(p4r.CapabilitiesRequest())
            except P4ClientError as error:
                # A server from before P4Runtime 1.1 knows no capabilities. It has answered, so it lives.
                if error.code != GRPCStatusCode.UNIMPLEMENTED:
                    raise

        raise SessionError(await heartbeat.silence(ask, self._hurry))

    async def _watch_calls(self) -> None:
        """Raises SessionError once a call has shown that the session is of no more use."""
        await self._ends.wait()
        raise SessionError(self._ends_why)

    def _end(self, why: str) -> None:
        self._ends_why = why
        self._ends.set()

    def _look_at(self, error: P4ClientError) -> None:
        """A switch that restarts may answer the first questions of a session before it is empty, and it may
        lose the session's stream alone. The next session pushes the pipeline, and bids again.
        """
        if error.is_pipeline_missing:
            self._end("the switch has lost its pipeline")
        elif error.code == GRPCStatusCode.PERMISSION_DENIED and not error.details:
            # P4Runtime 1.5, 5.3: the answer to a write of a client that is not the primary.
            self._end("this controller is not its primary any more")
        else:
            return
        raise SessionError(reason(error)) from None

    def _waits(self, why: str) -> None:
        self.state, self.why = "waiting", why
        log.warning("switch %s: %s", self.name, why)

    async def _push_pipeline(self) -> bool:
        """Push the P4 program unless the switch runs the same build already; True if it was pushed."""
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
        async with self._in_flight:
            try:
                await raw_calls.write(
                    self._connected(),
                    self._open_calls,
                    data,
                    self._arbitration.election_id,
                    self._call_timeout_s,
                )
            except SessionError:
                self._unanswered = True
                raise
            except P4ClientError as error:
                self._look_at(error)
                if error.code in _NO_ANSWER:
                    # The switch may write the entries later: only a new election id keeps it from that.
                    self._unanswered = True
                    self._end("a write was not answered")
                    raise SessionError(reason(error)) from None
                return self._refused(p4r.WriteRequest.FromString(data), error)
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
            raise SessionError("another controller became its primary")
        elif kind == "error":
            log.warning("switch %s refused a packet-out: %s", self.name, message.error.message)

    async def _watch_ports(self, ports: PortStates) -> None:
        async for states in ports.updates():
            self._listener.port_states(self.name, states)
        # If the whole session ends, this task is cancelled during the sleep, and there is nothing to log.
        await asyncio.sleep(1.0)
        log.warning(
            "switch %s has stopped to report port states; they stay unknown until its next session", self.name
        )

    async def _receive(self) -> p4r.StreamMessageResponse:
        try:
            return await self._connected().receive()
        except RuntimeError:
            # finsy reports a stream that the switch has closed in this way.
            raise SessionError("the switch closed the session") from None

    def _complete(self, message: object) -> None:
        if isinstance(message, p4r.SetForwardingPipelineConfigRequest):
            message.election_id.CopyFrom(U128.encode(self._arbitration.election_id))

    def _connected(self) -> P4Client:
        if not self._leads():
            raise SessionError("this controller does not lead any more")
        if self._client is None:
            raise SessionError("there is no session")
        return self._client

    async def _close(self) -> None:
        client, self._client = self._client, None
        for call in tuple(self._open_calls):
            call.cancel()
        if client is not None:
            await client.close()


def _always() -> bool:
    return True
