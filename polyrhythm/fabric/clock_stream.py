# SPDX-License-Identifier: Apache-2.0
"""The fabric's end of the clock stream: it sends ticks to the controller and receives settlements."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping

import grpc

from controller.wire import agent_pb2, agent_pb2_grpc
from polyrhythm.fabric.boundary import SILENCE_S, CableOrder, FabricBoundary, Settlement


class ClockStream:
    """Opens the controller's `FabricTime.Follow` stream and attaches the boundary to it.

    `rpc_delay_s` delays each message by host time.

    Raises:
        ConnectionError: no controller answers at `address`.
    """

    def __init__(self, address: str, boundary: FabricBoundary, rpc_delay_s: float = 0.0) -> None:
        self._boundary = boundary
        self._delay = rpc_delay_s
        self._ticks: queue.SimpleQueue[agent_pb2.Tick | None] = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(address)
        try:
            grpc.channel_ready_future(self._channel).result(timeout=SILENCE_S)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise ConnectionError(f"no controller answered at {address} within {SILENCE_S:g} s") from None
        stub = agent_pb2_grpc.FabricTimeStub(self._channel)  # type: ignore[no-untyped-call]
        self._stream = stub.Follow(self._outgoing())
        boundary.attach(self.tick)
        threading.Thread(target=self._read, name="clock", daemon=True).start()

    def tick(self, sequence: int, time_ns: int, sent: Mapping[str, int], timer: bool, last: bool) -> None:
        """Tell the controller that the heap has stopped."""
        self._ticks.put(
            agent_pb2.Tick(sequence=sequence, time_ns=time_ns, sent=dict(sent), timer=timer, last=last)
        )

    def close(self) -> None:
        """End the stream."""
        self._ticks.put(None)
        self._channel.close()

    def _outgoing(self) -> Iterator[agent_pb2.Tick]:
        while (tick := self._ticks.get()) is not None:
            if self._delay:
                time.sleep(self._delay)
            yield tick

    def _read(self) -> None:
        try:
            for message in self._stream:
                if self._delay:
                    time.sleep(self._delay)
                self._boundary.settled(
                    Settlement(
                        message.sequence,
                        dict(message.sent),
                        message.next_timer_ns,
                        tuple(CableOrder(o.switch, o.port, o.cut) for o in message.orders),
                    )
                )
        except grpc.RpcError:
            pass  # whatever the reason, the boundary hears of the end below
        self._boundary.controller_lost()
