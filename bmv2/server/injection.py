# SPDX-License-Identifier: Apache-2.0
"""BMv2's data-plane service over gRPC (p4.bm.DataplaneInterface): frames in and out of ports, without root.

The messages are declared here, by their field numbers, and live in a descriptor pool of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bmv2.boundary import Boundary
from bmv2.server.errors import RESOURCE_EXHAUSTED, StatusError, abort, invalid
from bmv2.server.stream import ClientStream
from bmv2.switch import EmbeddedSwitch

SERVICE = "p4.bm.DataplaneInterface"

_PACKAGE = "p4.bm"
_PORTS = 1 << 9
_Field = descriptor_pb2.FieldDescriptorProto
_FRAME_FIELDS = (
    ("id", _Field.TYPE_UINT64),
    ("device_id", _Field.TYPE_UINT64),
    ("port", _Field.TYPE_UINT32),
    ("packet", _Field.TYPE_BYTES),
)
_MESSAGES = {
    "PacketStreamRequest": _FRAME_FIELDS,
    "PacketStreamResponse": _FRAME_FIELDS,
    "SetPortOperStatusRequest": (
        ("device_id", _Field.TYPE_UINT64),
        ("port", _Field.TYPE_UINT32),
        # An enumeration in BMv2's file, which travels as the same varint.
        ("oper_status", _Field.TYPE_INT32),
    ),
    "SetPortOperStatusResponse": (),
}
OPER_DOWN = 1
OPER_UP = 2


def _declare() -> SimpleNamespace:
    file = descriptor_pb2.FileDescriptorProto(name="dataplane.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, start=1):
            message.field.add(name=field, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }
    return SimpleNamespace(**classes)


# The message classes: PacketStreamRequest and so on.
messages: Any = _declare()

_Stream: TypeAlias = ClientStream[Any, Any]


class InjectionService:
    """The ports of one switch as one gRPC stream; as in BMv2, one client at a time."""

    def __init__(self, switch: EmbeddedSwitch, boundary: Boundary, device_id: int) -> None:
        self._switch = switch
        self._boundary = boundary
        self._device_id = device_id
        self._lock = threading.Lock()
        self._stream: _Stream | None = None
        # The id of the frame that is being processed (data-plane thread).
        self._cause = 0

    def transmit(self, port: int, frame: bytes) -> None:
        """Take a frame that leaves by a port (data-plane thread); lost where no client listens."""
        stream = self._stream
        if stream is not None:
            stream.send(
                messages.PacketStreamResponse(
                    id=self._cause, device_id=self._device_id, port=port, packet=frame
                )
            )

    def add_to(self, server: grpc.Server) -> None:
        """Register the service with a server that has not been started."""
        handlers = {
            "PacketStream": grpc.stream_stream_rpc_method_handler(
                self.packet_stream,
                request_deserializer=messages.PacketStreamRequest.FromString,
                response_serializer=messages.PacketStreamResponse.SerializeToString,
            ),
            "SetPortOperStatus": grpc.unary_unary_rpc_method_handler(
                self.set_port_oper_status,
                request_deserializer=messages.SetPortOperStatusRequest.FromString,
                response_serializer=messages.SetPortOperStatusResponse.SerializeToString,
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    def packet_stream(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Frames in, frames out. Ends, when the client has no more to say, after the last was processed.

        A frame that leaves while its cause is being processed carries the cause's id; one that had to
        wait behind a port's rate carries 0. Frames of another device and empty ones are ignored.
        """
        stream: _Stream = ClientStream(context, 0.0)
        with self._lock:
            taken = self._stream is not None
            if not taken:
                self._stream = stream
        if taken:
            abort(context, StatusError(RESOURCE_EXHAUSTED, "only one client authorized at a time"))
        try:
            yield from stream.run(self._and_settle(requests), self._on_request, half_close_ends=True)
        finally:
            self._stream = None

    def _and_settle(self, requests: Iterator[Any]) -> Iterator[Any]:
        yield from requests
        try:
            self._boundary.call(self._switch.name, lambda: None)
        except ConnectionError:
            # The data plane has stopped: there is nothing left to wait for.
            return

    def _on_request(self, request: Any) -> None:
        if request.device_id == self._device_id and request.packet and request.port < _PORTS:
            receive = partial(self._receive, request.id, request.port, request.packet)
            self._boundary.deliver(self._switch.name, receive)

    def _receive(self, cause: int, port: int, frame: bytes) -> None:
        if port in self._switch.ports:
            self._cause = cause
            self._switch.receive(port, frame)
            self._cause = 0

    def set_port_oper_status(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Bring a port up or down: while it is down, what arrives and what waits is lost."""
        try:
            if request.device_id != self._device_id:
                raise invalid(f"device {request.device_id} is not here; this is device {self._device_id}")
            if request.oper_status not in (OPER_DOWN, OPER_UP):
                raise invalid(
                    f"oper status {request.oper_status}: legal are {OPER_DOWN} (down) and {OPER_UP} (up)"
                )
            if request.port not in self._switch.ports:
                raise invalid(f"port {request.port} is none of the switch's")
        except StatusError as error:
            abort(context, error)
        up = request.oper_status == OPER_UP
        self._boundary.call(self._switch.name, lambda: self._switch.set_port_up(request.port, up))
        return messages.SetPortOperStatusResponse()
