# SPDX-License-Identifier: Apache-2.0
"""Port states by gNMI, from the address of the switch's P4Runtime server: P4Runtime itself has none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from finsy.gnmipath import GNMIPath
from finsy.proto import gnmi, gnmi_grpc

_IFINDEX = GNMIPath("interfaces/interface[name=*]/state/ifindex")
_OPER_STATUS = GNMIPath("interfaces/interface[name=*]/state/oper-status")

# Host time that a target may take to answer; a slower one counts as a target without gNMI. Chosen.
SYNC_TIMEOUT_S = 5.0


class NoPortStatesError(Exception):
    """The target reports no port states, so link probes must watch its links."""


@dataclass(slots=True)
class PortStates:
    """A subscription to the oper-status of every interface of one switch.

    `initial` maps each port to whether it was up at the time of the subscription.
    """

    initial: dict[int, bool] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _stream: Any = None

    @classmethod
    async def open(cls, channel: grpc.aio.Channel, timeout_s: float | None = SYNC_TIMEOUT_S) -> PortStates:
        """Read the list of interfaces and subscribe to their states.

        A target that takes longer than `timeout_s` of host time counts as one without gNMI; None: no limit.

        Raises:
            NoPortStatesError: the target serves no gNMI, or lists no interface (as BMv2's dummy does).
        """
        stub = gnmi_grpc.gNMIStub(channel)
        states = cls()
        try:
            reply = await stub.Get(
                gnmi.GetRequest(path=[_IFINDEX.path], encoding=gnmi.Encoding.PROTO), timeout=timeout_s
            )
        except grpc.aio.AioRpcError as error:
            raise NoPortStatesError(error.code().name) from None
        for notification in reply.notification:
            for update in notification.update:
                path = GNMIPath(update.path)
                if path.last == _IFINDEX.last:
                    states._names[path["name"]] = _number(update.val)
        if not states._names:
            raise NoPortStatesError("no interfaces")
        subscription = gnmi.SubscriptionList(mode=gnmi.SubscriptionList.Mode.STREAM)
        for name in sorted(states._names):
            path = _OPER_STATUS.set(name=name)
            subscription.subscription.add(path=path.path, mode=gnmi.SubscriptionMode.ON_CHANGE)
        states._stream = stub.Subscribe()
        try:
            await states._stream.write(gnmi.SubscribeRequest(subscribe=subscription))
            while True:
                message = await states._stream.read()
                if message is grpc.aio.EOF:
                    raise NoPortStatesError("the subscription ended at once")
                if message.WhichOneof("response") == "sync_response":
                    break
                states.initial.update(states._read(message.update))
        except grpc.aio.AioRpcError as error:
            raise NoPortStatesError(error.code().name) from None
        if not states.initial:
            raise NoPortStatesError("no oper-status")
        return states

    async def updates(self) -> AsyncIterator[Mapping[int, bool]]:
        """One mapping of port -> up for each notification after the initial ones, until the stream ends."""
        while True:
            try:
                message = await self._stream.read()
            except grpc.aio.AioRpcError:
                return
            if message is grpc.aio.EOF:
                return
            if message.WhichOneof("response") == "update":
                yield self._read(message.update)

    def close(self) -> None:
        """End the subscription."""
        if self._stream is not None:
            self._stream.cancel()

    def _read(self, notification: gnmi.Notification) -> dict[int, bool]:
        states = {}
        for update in notification.update:
            path = GNMIPath(update.path)
            port = self._names.get(path["name"])
            if path.last == _OPER_STATUS.last and port is not None:
                states[port] = update.val.string_val == "UP"
        return states


def _number(value: gnmi.TypedValue) -> int:
    return int(value.uint_val if value.WhichOneof("value") == "uint_val" else value.int_val)
