# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime service of one switch (P4Runtime 1.5): arbitration, pipeline, write, read and packet I/O."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TypeAlias

import grpc
from finsy.proto import p4r, p4r_grpc
from google.protobuf import any_pb2

from bmv2.boundary import Boundary
from bmv2.server.arbitration import Arbiter, ControllerStream, given_election_id
from bmv2.server.dataplane import DataPlane
from bmv2.server.dataplane_reader import DataPlaneReader
from bmv2.server.deliveries import Deliveries
from bmv2.server.errors import (
    FAILED_PRECONDITION,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    StatusError,
    abort,
    abort_batch,
    invalid,
)
from bmv2.server.packets import decode_packet_in, encode_packet_out
from bmv2.server.pipelines import Pipelines, build_pipeline
from bmv2.server.reads import read_batch
from bmv2.server.seats import Seats
from bmv2.server.stream import ClientStream
from bmv2.switch import EmbeddedSwitch

API_VERSION = "1.5.0"

_READ_CHUNK = 1000
# Answers of reads under way at a time, and the entities that they hold together. Chosen: more than the
# clients of a fabric read at once, and twice what one read may ask for.
_READS = 64
_READ_ENTITIES = 2_000_000
# Chosen: a client that reads takes something more often than that, however loaded its host is.
_READ_PATIENCE_S = 10.0
# Chosen: more than a controller has under way, and some tens of megabytes of frames.
_MAX_PACKET_OUTS = 65_536
# What an error repeats of the message that it is about. gRPC's clients take 4 MiB unless told otherwise, and
# a longer message would end their stream.
_MAX_ECHO_BYTES = 1 << 20
_Stream: TypeAlias = ClientStream[p4r.StreamMessageRequest, p4r.StreamMessageResponse]
_SetConfig = p4r.SetForwardingPipelineConfigRequest
_GetConfig = p4r.GetForwardingPipelineConfigRequest
_CONFIG_ACTIONS = {
    _SetConfig.VERIFY,
    _SetConfig.VERIFY_AND_SAVE,
    _SetConfig.VERIFY_AND_COMMIT,
    _SetConfig.COMMIT,
    _SetConfig.RECONCILE_AND_COMMIT,
}


class P4RuntimeService(p4r_grpc.P4RuntimeServicer):
    """P4Runtime for one switch. The entity store is here; the switch gets effects through the boundary."""

    def __init__(
        self, switch: EmbeddedSwitch, boundary: Boundary, device_id: int, rpc_delay_s: float, seats: Seats
    ) -> None:
        self._switch = switch
        self._boundary = boundary
        self._delay_s = rpc_delay_s
        self._arbiter = Arbiter(device_id, self._finish_writes)
        # Guards the pipelines and their stores, and makes the order of effects that of the store's changes.
        self._lock = threading.Lock()
        self._seats = seats
        self._deliveries = Deliveries(_READS, _READ_ENTITIES, _READ_PATIENCE_S)
        self.dropped_packet_ins = 0
        # Written on the data-plane thread.
        self.unread_messages = 0
        # Packet-outs given to the data plane, and those that it has processed: each written by one side.
        self._packet_outs_taken = 0
        self._packet_outs_done = 0
        self._plane = DataPlane(switch, self._notify)
        self._pipelines = Pipelines(self._plane, partial(boundary.deliver, switch.name))
        switch.packet_in = self._on_packet_in

    @property
    def connected(self) -> bool:
        """Whether the default role has a primary stream."""
        return self._arbiter.primary() is not None

    def Capabilities(  # noqa: N802
        self, request: p4r.CapabilitiesRequest, context: grpc.ServicerContext
    ) -> p4r.CapabilitiesResponse:
        """Tell the version of P4Runtime."""
        time.sleep(self._delay_s)
        if request.device_id:
            try:
                self._arbiter.check_device(request.device_id)
            except StatusError as error:
                abort(context, error)
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def SetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.SetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a pipeline; a commit clears entities and counters, a reconcile does not."""
        time.sleep(self._delay_s)
        try:
            self._check_writer(request)
            self._set_config(request)
        except StatusError as error:
            abort(context, error)
        return p4r.SetForwardingPipelineConfigResponse()

    def _check_writer(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> None:
        self._arbiter.check_device(request.device_id)
        self._arbiter.check_primary(request.role, given_election_id(request))

    def _finish_writes(self) -> None:
        """Wait until what has begun to change the pipelines or their entities has ended."""
        with self._lock:
            return

    def _set_config(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        if request.action not in _CONFIG_ACTIONS:
            legal = ", ".join(sorted(_SetConfig.Action.Name(action) for action in _CONFIG_ACTIONS))
            raise invalid(f"pipeline config: the action is unspecified; legal: {legal}")
        if request.action == _SetConfig.COMMIT:
            if request.HasField("config"):
                raise invalid("pipeline config: COMMIT takes no config; it commits the one saved before")
            with self._lock:
                self._check_writer(request)
                self._pipelines.commit_saved()
            return
        pipeline = build_pipeline(request.config, self._port_exists)
        with self._lock:
            # Again, for another may have become the primary while the program was compiled.
            self._check_writer(request)
            if request.action == _SetConfig.VERIFY_AND_SAVE:
                self._pipelines.save(pipeline)
            elif request.action == _SetConfig.VERIFY_AND_COMMIT:
                self._pipelines.commit(pipeline)
            elif request.action == _SetConfig.RECONCILE_AND_COMMIT:
                self._pipelines.reconcile(pipeline)

    def _port_exists(self, port: int) -> bool:
        return port in self._switch.ports or port == self._switch.cpu_port

    def GetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.GetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Give the committed pipeline, or the parts of it that are asked for."""
        time.sleep(self._delay_s)
        try:
            self._arbiter.check_device(request.device_id)
            with self._lock:
                config = self._pipelines.committed().config
                answer = p4r.ForwardingPipelineConfig()
                if config.HasField("cookie"):
                    answer.cookie.CopyFrom(config.cookie)
                if request.response_type in (_GetConfig.ALL, _GetConfig.P4INFO_AND_COOKIE):
                    answer.p4info.CopyFrom(config.p4info)
                if request.response_type in (_GetConfig.ALL, _GetConfig.DEVICE_CONFIG_AND_COOKIE):
                    answer.p4_device_config = config.p4_device_config
        except StatusError as error:
            abort(context, error)
        return p4r.GetForwardingPipelineConfigResponse(config=answer)

    def Write(self, request: p4r.WriteRequest, context: grpc.ServicerContext) -> p4r.WriteResponse:  # noqa: N802
        """Apply a batch in order; a failed update leaves the others in force (CONTINUE_ON_ERROR)."""
        time.sleep(self._delay_s)
        try:
            with self._lock:
                self._check_writer(request)
                self._pipelines.addressed()
                if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                    raise StatusError(UNIMPLEMENTED, "write: CONTINUE_ON_ERROR is the only atomicity here")
                outcomes = self._pipelines.write(request.updates)
        except StatusError as error:
            abort(context, error)
        if any(outcomes):
            abort_batch(context, outcomes, "updates")
        return p4r.WriteResponse()

    def Read(self, request: p4r.ReadRequest, context: grpc.ServicerContext) -> Iterator[p4r.ReadResponse]:  # noqa: N802
        """Answer all requests from one moment, in chunks; those that are legal, where others are not."""
        time.sleep(self._delay_s)
        try:
            self._arbiter.check_device(request.device_id)
            self._deliveries.begin(context)
        except StatusError as error:
            abort(context, error)
        try:
            answers, outcomes = self._answer(request, context)
            for start in range(0, len(answers), _READ_CHUNK):
                chunk = answers[start : start + _READ_CHUNK]
                yield p4r.ReadResponse(entities=chunk)
                self._deliveries.taken(context, len(chunk))
            if any(outcomes):
                abort_batch(context, outcomes, "requests")
        finally:
            self._deliveries.end(context)

    def _answer(
        self, request: p4r.ReadRequest, context: grpc.ServicerContext
    ) -> tuple[list[p4r.Entity], list[StatusError | None]]:
        """Collect the entities of all requests, and the error of each; that of an only one ends the call."""
        try:
            with self._lock:
                pipeline = self._pipelines.addressed()
                landed = self._pipelines.landed is pipeline
                source = DataPlaneReader(self._switch, self._boundary, landed=landed)
                answers, outcomes = read_batch(pipeline.store, request.entities, source)
                self._deliveries.hold(context, len(answers))
            if len(outcomes) == 1 and outcomes[0] is not None:
                raise outcomes[0]
        except StatusError as error:
            abort(context, error)
        return answers, outcomes

    def StreamChannel(  # noqa: N802
        self, request_iterator: Iterator[p4r.StreamMessageRequest], context: grpc.ServicerContext
    ) -> Iterator[p4r.StreamMessageResponse]:
        """Hold a client's session: arbitration, its packet-outs, and the packet-ins if it is the primary."""
        stream: _Stream = ClientStream(context, self._delay_s)
        try:
            self._seats.take(stream)
        except StatusError as error:
            abort(context, error)
        try:
            yield from stream.run(request_iterator, partial(self._on_message, stream), half_close_ends=True)
        finally:
            self._seats.leave(stream)
            self._arbiter.leave(stream)

    def _on_message(self, stream: _Stream, message: p4r.StreamMessageRequest) -> None:
        kind = message.WhichOneof("update")
        if kind == "arbitration":
            self._arbiter.update(stream, message.arbitration)
            self._seats.spoke(stream)
        elif kind is None:
            _refuse_kind(stream, None)
        elif self._arbiter.role_of(stream) is None:
            raise StatusError(FAILED_PRECONDITION, "stream: the first message must be an arbitration update")
        elif kind == "packet":
            self._on_packet_out(stream, message.packet)
        elif kind == "digest_ack":
            self._on_digest_ack(stream, message.digest_ack)
        else:
            _refuse_kind(stream, message.other if kind == "other" else None)

    def _on_packet_out(self, stream: _Stream, packet: p4r.PacketOut) -> None:
        announced = self._arbiter.is_primary(stream)
        try:
            if not announced:
                raise StatusError(PERMISSION_DENIED, "packet-out: only the primary may send packets")
            with self._lock:
                schema = self._pipelines.committed().store.schema
                try:
                    frame = encode_packet_out(schema.packet_out, packet)
                except StatusError:
                    schema.settle_strings(keep=False)
                    raise
                schema.settle_strings(keep=True)
                if self._packet_outs_taken - self._packet_outs_done >= _MAX_PACKET_OUTS:
                    raise StatusError(RESOURCE_EXHAUSTED, f"packet-out: {_MAX_PACKET_OUTS} wait already")
                self._packet_outs_taken += 1
                self._boundary.deliver(self._switch.name, partial(self._send_packet_out, frame))
        except StatusError as error:
            answer = p4r.StreamError(canonical_code=error.code, message=error.message)
            answer.packet_out.SetInParent()
            if packet.ByteSize() <= _MAX_ECHO_BYTES:
                answer.packet_out.packet_out.CopyFrom(packet)
            _send_error(stream, answer)
        if announced:
            # Also for a refused one: its sender has counted it, and time must not wait for it.
            self._boundary.arrived(f"packet_out:{self._switch.name}")

    def _on_digest_ack(self, stream: _Stream, ack: p4r.DigestListAck) -> None:
        try:
            if not self._arbiter.is_primary(stream):
                raise StatusError(PERMISSION_DENIED, "digest-ack: only the primary may acknowledge")
            with self._lock:
                if ack.digest_id not in self._pipelines.committed().store.schema.digests:
                    raise invalid(f"digest-ack: digest id {ack.digest_id:#x} is unknown")
                effect = partial(self._plane.digests.acknowledge, ack.digest_id, ack.list_id)
                self._boundary.deliver(self._switch.name, effect)
        except StatusError as error:
            answer = p4r.StreamError(canonical_code=error.code, message=error.message)
            answer.digest_list_ack.digest_list_ack.CopyFrom(ack)
            _send_error(stream, answer)

    def port_changed(self) -> None:
        """Hear that a port has gone up or down (data-plane thread)."""
        self._plane.groups.port_changed()

    def _notify(self, kind: str, message: p4r.StreamMessageResponse) -> None:
        """Send a message to the default role's primary, if there is one (data-plane thread)."""
        primary = self._arbiter.primary()
        if primary is not None:
            self._send_lossy(kind, primary, message)

    def _send_lossy(self, kind: str, primary: ControllerStream, message: p4r.StreamMessageResponse) -> None:
        name = self._switch.name
        size = message.ByteSize()

        def send() -> None:
            self.unread_messages += primary.send(message, lossy=True, size=size)

        self._boundary.depart(name, f"{kind}:{name}", send)

    def _send_packet_out(self, frame: bytes) -> None:
        self._packet_outs_done += 1
        self._switch.receive(self._switch.cpu_port, frame)

    def _on_packet_in(self, frame: bytes) -> None:
        """Send a frame of the CPU port to the default role's primary (data-plane thread)."""
        primary = self._arbiter.primary()
        if primary is None or self._pipelines.landed is None:
            self.dropped_packet_ins += 1
            return
        packet = decode_packet_in(self._pipelines.landed.store.schema.packet_in, frame)
        self._send_lossy("packet_in", primary, p4r.StreamMessageResponse(packet=packet))


def _refuse_kind(stream: _Stream, other: any_pb2.Any | None) -> None:
    """Tell a client that its message is of no kind that is served here; the stream goes on."""
    said = "an empty message" if other is None else f"a message of type {other.type_url[:200] or 'unknown'}"
    error = p4r.StreamError(canonical_code=UNIMPLEMENTED, message=f"stream: {said} is not supported")
    if other is not None:
        error.other.SetInParent()
        if other.ByteSize() <= _MAX_ECHO_BYTES:
            error.other.other.CopyFrom(other)
    _send_error(stream, error)


def _send_error(stream: _Stream, error: p4r.StreamError) -> None:
    message = p4r.StreamMessageResponse(error=error)
    stream.send(message, lossy=True, size=message.ByteSize())
