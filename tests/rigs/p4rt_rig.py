# SPDX-License-Identifier: Apache-2.0
"""A switch with its servers on the host's clock, and raw clients that talk to them over real sockets."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc
from finsy.proto import U128, gnmi_grpc, p4r, p4r_grpc

from bmv2.hostloop import HostLoop
from bmv2.server import SwitchServer, serve
from bmv2.switch import EmbeddedSwitch

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0


class CountingLoop(HostLoop):
    """A HostLoop that counts what crosses the border, as the embedded fabric does."""

    def __init__(self) -> None:
        super().__init__()
        self.departures: Counter[str] = Counter()
        self._arrivals: Counter[str] = Counter()
        self._arrived = threading.Condition()

    def depart(self, node: str, channel: str, send: Callable[[], None]) -> None:
        self.departures[channel] += 1
        super().depart(node, channel, send)

    def arrived(self, channel: str) -> None:
        super().arrived(channel)
        with self._arrived:
            self._arrivals[channel] += 1
            self._arrived.notify_all()

    def arrivals(self, total: int) -> dict[str, int]:
        """What has arrived by channel, once it is `total` in all (an effect may show before its arrival)."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._arrivals.total() >= total, PATIENCE_S)
            return dict(self._arrivals)


@dataclass
class Rig:
    """A served switch with two ports, what left by them, and wires from a port to another."""

    switch: EmbeddedSwitch
    loop: CountingLoop
    server: SwitchServer
    sent: queue.SimpleQueue[tuple[int, bytes]] = field(default_factory=queue.SimpleQueue)
    wires: dict[int, int] = field(default_factory=dict)

    def transmit(self, port: int, frame: bytes) -> None:
        if port in self.wires:
            self.loop.call_at(self.loop.now, self.switch.receive, self.wires[port], frame)
        self.sent.put((port, frame))

    def on_data_plane(self, function: Callable[[], object]) -> object:
        """Run on the data-plane thread and wait."""
        return self.loop.call(self.switch.name, function)

    def next_frame(self) -> tuple[int, bytes]:
        """The next (port, frame) that leaves the switch."""
        return self.sent.get(timeout=PATIENCE_S)


class Client:
    """A raw P4Runtime client with one stream."""

    def __init__(
        self, address: str, device_id: int = 1, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        self.device_id = device_id
        self.election_id = 0
        # A failed batch's errors travel in metadata, which gRPC limits to 16 KiB unless told.
        options = [("grpc.max_metadata_size", 1 << 20)]
        if credentials is None:
            self.channel = grpc.insecure_channel(address, options=options)
        else:
            self.channel = grpc.secure_channel(address, credentials, options=options)
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.gnmi = gnmi_grpc.gNMIStub(self.channel)
        self._out: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        self.inbox: queue.SimpleQueue[p4r.StreamMessageResponse | grpc.RpcError | None] = queue.SimpleQueue()
        self._stream = self.stub.StreamChannel(iter(self._out.get, None))
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        try:
            for message in self._stream:
                self.inbox.put(message)
            self.inbox.put(None)
        except grpc.RpcError as error:
            self.inbox.put(error)

    def send(self, **update: object) -> None:
        self._out.put(p4r.StreamMessageRequest(**update))

    def next(self) -> p4r.StreamMessageResponse:
        """The next message of the stream; the stream's error is raised."""
        message = self.inbox.get(timeout=PATIENCE_S)
        if isinstance(message, grpc.RpcError):
            raise message
        assert message is not None, "the stream has ended"
        return message

    def arbitrate(self, election_id: int, *, role: str = "") -> p4r.MasterArbitrationUpdate:
        self.election_id = election_id
        update = p4r.MasterArbitrationUpdate(
            device_id=self.device_id, election_id=U128.encode(election_id), role=p4r.Role(name=role)
        )
        self.send(arbitration=update)
        return self.next().arbitration

    def write(self, *updates: p4r.Update, **fields: object) -> None:
        self.stub.Write(
            p4r.WriteRequest(
                device_id=self.device_id,
                election_id=U128.encode(self.election_id),
                updates=updates,
                **fields,
            ),
            timeout=PATIENCE_S,
        )

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self.device_id, entities=entities)
        answers = self.stub.Read(request, timeout=PATIENCE_S)
        return [entity for answer in answers for entity in answer.entities]

    def set_config(
        self, config: p4r.ForwardingPipelineConfig | None, action: str = "VERIFY_AND_COMMIT"
    ) -> None:
        request = p4r.SetForwardingPipelineConfigRequest
        self.stub.SetForwardingPipelineConfig(
            request(
                device_id=self.device_id,
                election_id=U128.encode(self.election_id),
                action=request.Action.Value(action),
                config=config,
            ),
            timeout=PATIENCE_S,
        )

    def hang_up(self) -> None:
        """End the stream, politely."""
        self._out.put(None)

    def close(self) -> None:
        self.hang_up()
        self.channel.close()


@contextmanager
def served_switch(**options: object) -> Iterator[Rig]:
    """A served switch with ports 1 and 2; `rpc_delay_s` and the like go to `serve`."""
    loop = CountingLoop()
    switch = EmbeddedSwitch("leaf1", loop)
    rig = Rig(switch, loop, serve(switch, loop, device_id=1, **options))
    for port in (1, 2):
        switch.add_port(port, rate_bps=None, transmit=partial(rig.transmit, port))
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        yield rig
    finally:
        rig.server.stop()
        loop.stop()
        thread.join(PATIENCE_S)
        loop.close()
