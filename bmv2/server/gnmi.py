# SPDX-License-Identifier: Apache-2.0
"""The gNMI service of one switch: ifindex and oper-status of its ports, by Get and Subscribe, as in Stratum.

A port's interface is named by its number ("1"), and its ifindex is that number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import grpc
from finsy.proto import gnmi, gnmi_grpc

from bmv2.boundary import Boundary
from bmv2.server.errors import NOT_FOUND, RESOURCE_EXHAUSTED, UNIMPLEMENTED, StatusError, abort, invalid
from bmv2.server.seats import Seats
from bmv2.server.stream import ClientStream
from bmv2.switch import EmbeddedSwitch

GNMI_VERSION = "0.7.0"

_Stream: TypeAlias = ClientStream[gnmi.SubscribeRequest, gnmi.SubscribeResponse]
_LEAVES = ("ifindex", "oper-status")
_LEGAL = "/interfaces/interface[name=PORT]/state/{ifindex,oper-status}"
_List = gnmi.SubscriptionList
# Each path is answered on the data-plane thread, and holds a copy of the prefix. Chosen: more than a path for
# each port of a switch, and than any legal prefix needs.
_MAX_PATHS = 1024
_MAX_PREFIX_BYTES = 4096
# Chosen: the longest that covers something has 4, each with "..." before and behind it.
_MAX_ELEMENTS = 16
# No port has a number of more digits, and Python converts none of thousands.
_PORT_DIGITS = 9


@dataclass(frozen=True, slots=True)
class _Leaf:
    port: int
    name: str

    def path(self) -> gnmi.Path:
        return gnmi.Path(
            elem=[
                gnmi.PathElem(name="interfaces"),
                gnmi.PathElem(name="interface", key={"name": str(self.port)}),
                gnmi.PathElem(name="state"),
                gnmi.PathElem(name=self.name),
            ]
        )

    def update(self, up: bool) -> gnmi.Update:
        if self.name == "ifindex":
            value = gnmi.TypedValue(uint_val=self.port)
        else:
            value = gnmi.TypedValue(string_val="UP" if up else "DOWN")
        return gnmi.Update(path=self.path(), val=value)


class _Subscription:
    """One client's subscription: which leaves, and the stream to it."""

    def __init__(self, stream: _Stream, paths: Sequence[gnmi.Path]) -> None:
        self.stream = stream
        self.paths = paths

    def wants(self, leaf: _Leaf) -> bool:
        return any(_matches(path, leaf) for path in self.paths)


class GnmiService(gnmi_grpc.gNMIServicer):
    """gNMI for one switch: Capabilities, Get, and Subscribe (STREAM on change, ONCE, POLL)."""

    def __init__(self, switch: EmbeddedSwitch, boundary: Boundary, rpc_delay_s: float, seats: Seats) -> None:
        self._switch = switch
        self._boundary = boundary
        self._delay_s = rpc_delay_s
        self.seats = seats
        self._lock = threading.Lock()
        self._streams: set[_Stream] = set()
        # Used on the data-plane thread only, so that initial values and changes cannot overtake each other.
        self._subscriptions: list[_Subscription] = []

    def Capabilities(  # noqa: N802
        self, request: gnmi.CapabilityRequest, context: grpc.ServicerContext
    ) -> gnmi.CapabilityResponse:
        """Tell the model, the encodings and the version."""
        time.sleep(self._delay_s)
        model = gnmi.ModelData(name="openconfig-interfaces", organization="OpenConfig working group")
        return gnmi.CapabilityResponse(
            supported_models=[model], supported_encodings=[gnmi.PROTO], gNMI_version=GNMI_VERSION
        )

    def Get(self, request: gnmi.GetRequest, context: grpc.ServicerContext) -> gnmi.GetResponse:  # noqa: N802
        """Give the values of all paths, one notification per path; NOT_FOUND where a path has none."""
        time.sleep(self._delay_s)
        try:
            _check_encoding(request.encoding)
            if request.type == gnmi.GetRequest.CONFIG:
                raise StatusError(NOT_FOUND, f"gNMI: there is no configuration here; legal: {_LEGAL}")
            paths = _joined(request.prefix, request.path)
            notifications = self._boundary.call(self._switch.name, partial(self._values, paths))
            for path, notification in zip(paths, notifications, strict=True):
                if not notification.update:
                    raise StatusError(NOT_FOUND, f"gNMI: {_text(path)} has no value; legal: {_LEGAL}")
        except StatusError as error:
            abort(context, error)
        return gnmi.GetResponse(notification=notifications)

    def Set(self, request: gnmi.SetRequest, context: grpc.ServicerContext) -> gnmi.SetResponse:  # noqa: N802
        """Refuse: nothing can be configured."""
        abort(context, StatusError(UNIMPLEMENTED, "gNMI: Set is not supported; ports are the fabric's"))

    def Subscribe(  # noqa: N802
        self, request_iterator: Iterator[gnmi.SubscribeRequest], context: grpc.ServicerContext
    ) -> Iterator[gnmi.SubscribeResponse]:
        """Send the present values and a sync_response, then what the subscription's mode asks for."""
        stream: _Stream = ClientStream(context, self._delay_s)
        try:
            self.seats.take(stream)
        except StatusError as error:
            abort(context, error)
        with self._lock:
            self._streams.add(stream)
        handler = _Conversation(self, stream)
        try:
            yield from stream.run(request_iterator, handler.on_request, half_close_ends=False)
        finally:
            self.seats.leave(stream)
            with self._lock:
                self._streams.discard(stream)
            self._boundary.deliver(self._switch.name, partial(self._forget, stream))

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.close()

    def start(self, stream: _Stream, paths: Sequence[gnmi.Path], *, initial: bool, follow: bool) -> None:
        """Send present values (if `initial`) and the sync mark, and from then on changes (if `follow`)."""

        def begin() -> None:
            if initial:
                self._send_values(stream, paths)
            stream.send(gnmi.SubscribeResponse(sync_response=True))
            if follow:
                self._subscriptions.append(_Subscription(stream, paths))

        self._boundary.call(self._switch.name, begin)

    def _send_values(self, stream: _Stream, paths: Sequence[gnmi.Path]) -> None:
        for notification in self._values(paths):
            if notification.update:
                stream.send(gnmi.SubscribeResponse(update=notification))

    def _values(self, paths: Sequence[gnmi.Path]) -> list[gnmi.Notification]:
        now = self._switch.clock.now
        leaves = [_Leaf(port, name) for port in sorted(self._switch.ports) for name in _LEAVES]
        return [
            gnmi.Notification(
                timestamp=now,
                update=[
                    leaf.update(self._switch.port_up(leaf.port)) for leaf in leaves if _matches(path, leaf)
                ],
            )
            for path in paths
        ]

    def _forget(self, stream: _Stream) -> None:
        self._subscriptions = [item for item in self._subscriptions if item.stream is not stream]

    def port_changed(self, port: int, up: bool) -> None:
        """Tell every subscriber of a port's new state (data-plane thread): one departure each."""
        leaf = _Leaf(port, "oper-status")
        name = self._switch.name
        for subscription in self._subscriptions:
            if subscription.wants(leaf):
                notification = gnmi.Notification(timestamp=self._switch.clock.now, update=[leaf.update(up)])
                message = gnmi.SubscribeResponse(update=notification)
                self._boundary.depart(name, f"gnmi:{name}", partial(_send, subscription.stream, message))


class _Conversation:
    """What a client says on a Subscribe stream: its list first, then polls."""

    def __init__(self, service: GnmiService, stream: _Stream) -> None:
        self._service = service
        self._stream = stream
        self._paths: list[gnmi.Path] | None = None
        self._polled = False

    def on_request(self, request: gnmi.SubscribeRequest) -> None:
        """Handle one request; StatusError ends the stream."""
        kind = request.WhichOneof("request")
        if kind == "poll":
            if not self._polled or self._paths is None:
                raise invalid("gNMI: a poll needs a subscription in mode POLL first")
            self._service.start(self._stream, self._paths, initial=True, follow=False)
        elif kind == "subscribe":
            if self._paths is not None:
                raise invalid("gNMI: a stream takes one subscription list; open another stream")
            self._subscribe(request.subscribe)
        else:
            raise invalid(f"gNMI: {kind or 'an empty request'} is not known; legal: subscribe, poll")

    def _subscribe(self, wanted: gnmi.SubscriptionList) -> None:
        _check_encoding(wanted.encoding)
        self._paths = _joined(wanted.prefix, [item.path for item in wanted.subscription])
        for path, item in zip(self._paths, wanted.subscription, strict=True):
            if not _possible(path):
                raise invalid(f"gNMI: {_text(path)} is not known; legal: {_LEGAL}")
            if wanted.mode == _List.STREAM and item.mode == gnmi.SAMPLE:
                raise StatusError(
                    UNIMPLEMENTED, f"gNMI: {_text(path)}: SAMPLE is not supported; use ON_CHANGE"
                )
        self._polled = wanted.mode == _List.POLL
        self._service.seats.spoke(self._stream)
        self._service.start(
            self._stream, self._paths, initial=not wanted.updates_only, follow=wanted.mode == _List.STREAM
        )
        if wanted.mode == _List.ONCE:
            self._stream.close()


def _send(stream: _Stream, message: gnmi.SubscribeResponse) -> None:
    stream.send(message)


def _check_encoding(encoding: int) -> None:
    # JSON is the number 0, what a client sends that says nothing; Stratum answers it with plain typed values.
    if encoding not in (gnmi.JSON, gnmi.PROTO):
        raise StatusError(UNIMPLEMENTED, "gNMI: PROTO is the only encoding here")


def _joined(prefix: gnmi.Path, paths: Sequence[gnmi.Path]) -> list[gnmi.Path]:
    """The paths with their prefix.

    Raises StatusError: RESOURCE_EXHAUSTED for more paths than are served, INVALID_ARGUMENT for one too long.
    """
    if len(paths) > _MAX_PATHS or prefix.ByteSize() > _MAX_PREFIX_BYTES:
        said = f"{len(paths)} paths with a prefix of {prefix.ByteSize()} bytes"
        legal = f"at most {_MAX_PATHS} and {_MAX_PREFIX_BYTES}"
        raise StatusError(RESOURCE_EXHAUSTED, f"gNMI: {said}; {legal}")
    joined = [gnmi.Path(elem=[*prefix.elem, *path.elem]) for path in paths]
    for path in joined:
        if len(path.elem) > _MAX_ELEMENTS:
            raise invalid(f"gNMI: a path of {len(path.elem)} elements; at most {_MAX_ELEMENTS}, as {_LEGAL}")
    return joined


def _text(path: gnmi.Path) -> str:
    steps = []
    for elem in path.elem:
        keys = "".join(f"[{key}={value}]" for key, value in elem.key.items())
        steps.append(f"{elem.name}{keys}")
    return "/" + "/".join(steps)


def _matches(path: gnmi.Path, leaf: _Leaf) -> bool:
    """Tell whether a path, perhaps with "*", "..." or the name of a container, covers the leaf."""
    return _covers(list(path.elem), list(leaf.path().elem))


def _covers(pattern: list[gnmi.PathElem], elems: list[gnmi.PathElem]) -> bool:
    if not pattern:
        return True
    if pattern[0].name == "...":
        return any(_covers(pattern[1:], elems[skip:]) for skip in range(len(elems) + 1))
    if not elems or pattern[0].name not in ("*", elems[0].name):
        return False
    for key, value in pattern[0].key.items():
        if value != "*" and elems[0].key.get(key) != value:
            return False
    return _covers(pattern[1:], elems[1:])


def _possible(path: gnmi.Path) -> bool:
    """Tell whether the path could have a value for some port, there or not."""
    names = {elem.key["name"] for elem in path.elem if "name" in elem.key} - {"*"}
    port = next(iter(names), "1")
    if not port.isdecimal() or len(port) > _PORT_DIGITS:
        return False
    return any(_matches(path, _Leaf(int(port), name)) for name in _LEAVES)
