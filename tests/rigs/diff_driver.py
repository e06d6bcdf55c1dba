# SPDX-License-Identifier: Apache-2.0
"""A switch process driven over P4Runtime and BMv2's data-plane service: simple_switch_grpc or ours, alike."""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
from diff_workload import CPU_PORT, CPU_SENTINEL, SENTINEL_PORTS, sentinel_frame
from finsy.proto import p4r, p4r_grpc

from bmv2.program import load_program
from bmv2.server.injection import SERVICE, messages
from bmv2.server.packets import decode_packet_in
from bmv2.server.schema import CounterInfo, PacketHeader, Schema

ROOT = Path(__file__).parents[2]
DEVICE = 1
PATIENCE_S = 120.0
_WRITE_CHUNK = 200
# The sentinels' own counts are taken off: these ports' cells, and theirs of the CPU's in the control queue.
_SENTINEL_CELLS = range(SENTINEL_PORTS[0] * 8, SENTINEL_PORTS[-1] * 8 + 8)
_CPU_CELL = CPU_PORT * 8 + 7
_PER_PORT_AND_QUEUE = ("ingress_packets", "egress_packets")

Answer = tuple[int, bytes]
Counts = dict[str, dict[int, tuple[int, int]]]


def free_port() -> int:
    """A TCP port that was free a moment ago, and that no outgoing connection takes until the switch listens."""
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_server(
                ("127.0.0.1", random.randrange(10_000, max(first_outgoing, 10_001)))
            ) as taken,
        ):
            return taken.getsockname()[1]


@contextmanager
def switch_process(program: str | None) -> Iterator[tuple[str, str]]:
    """Run a switch (`program` is simple_switch_grpc's path, None ours); gives its two addresses."""
    control, data = (f"127.0.0.1:{free_port()}" for _ in range(2))
    argv = [program] if program else [sys.executable, "-m", "polyrhythm", "switch"]
    argv += ["--no-p4", "--device-id", str(DEVICE), "-L", "off", "--", "--grpc-server-addr", control]
    argv += ["--dp-grpc-server-addr", data, "--cpu-port", str(CPU_PORT), "--priority-queues", "8"]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield control, data
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def not_ready(packets: grpc.Call) -> bool:
    """Whether the data plane has ended this stream as not ready: BMv2 starts it after it has answered the push
    of a program. One that stays open for a second is taken.
    """
    ended = threading.Event()
    if packets.add_callback(ended.set) and not ended.wait(1.0):
        return False
    return packets.code() == grpc.StatusCode.UNAVAILABLE


class Session:
    """A primary controller and the one client of the data plane."""

    def __init__(self, control: str, data: str) -> None:
        options = [("grpc.max_metadata_size", 1 << 20), ("grpc.max_receive_message_length", 64 << 20)]
        self._channels = [grpc.insecure_channel(address, options=options) for address in (control, data)]
        self._p4rt = p4r_grpc.P4RuntimeStub(self._channels[0])
        self._election = p4r.Uint128(low=1)
        self._to_switch: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        self._frames: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._out: queue.SimpleQueue[Answer | grpc.RpcError] = queue.SimpleQueue()
        self._to_cpu: queue.SimpleQueue[p4r.StreamMessageResponse | grpc.RpcError] = queue.SimpleQueue()
        self._packet_in: PacketHeader | None = None
        self._packet_out: PacketHeader | None = None
        self._cpu_sentinels = 0
        self._counters: list[CounterInfo] = []

    def open(self, config: p4r.ForwardingPipelineConfig) -> None:
        """Become the primary, push the program, and open the data plane."""
        self._p4rt.Capabilities(p4r.CapabilitiesRequest(), timeout=PATIENCE_S, wait_for_ready=True)
        stream = self._p4rt.StreamChannel(iter(self._to_switch.get, None))
        threading.Thread(target=self._receive_stream, args=(stream,), daemon=True).start()
        update = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=self._election)
        self._to_switch.put(p4r.StreamMessageRequest(arbitration=update))
        assert self._next(self._to_cpu).arbitration.status.code == 0
        request = p4r.SetForwardingPipelineConfigRequest
        self._p4rt.SetForwardingPipelineConfig(
            request(
                device_id=DEVICE, election_id=self._election, action=request.VERIFY_AND_COMMIT, config=config
            ),
            timeout=PATIENCE_S,
        )
        schema = Schema.parse(config.p4info, load_program(config.p4_device_config).ir)
        self._counters = list(schema.counters.values())
        self._packet_in, self._packet_out = schema.packet_in, schema.packet_out
        packets = self._open_data_plane()
        while not_ready(packets):
            packets = self._open_data_plane()
        threading.Thread(target=self._receive_frames, args=(packets,), daemon=True).start()

    def _open_data_plane(self) -> grpc.Call:
        self._frames.put(None)
        self._frames = queue.SimpleQueue()
        return self._channels[1].stream_stream(
            f"/{SERVICE}/PacketStream",
            request_serializer=messages.PacketStreamRequest.SerializeToString,
            response_deserializer=messages.PacketStreamResponse.FromString,
        )(iter(self._frames.get, None), wait_for_ready=True)

    def close(self) -> None:
        """End both streams."""
        self._to_switch.put(None)
        self._frames.put(None)
        for channel in self._channels:
            channel.close()

    def _receive_stream(self, stream: Iterator[p4r.StreamMessageResponse]) -> None:
        try:
            for message in stream:
                self._to_cpu.put(message)
        except grpc.RpcError as error:
            self._to_cpu.put(error)

    def _receive_frames(self, stream: Iterator[object]) -> None:
        try:
            for message in stream:
                self._out.put((message.port, message.packet))  # type: ignore[attr-defined]
        except grpc.RpcError as error:
            self._out.put(error)

    @staticmethod
    def _next(source: queue.SimpleQueue) -> object:
        item = source.get(timeout=PATIENCE_S)
        if isinstance(item, grpc.RpcError):
            raise item
        return item

    def write(self, updates: Sequence[p4r.Update]) -> None:
        """Write updates that must all succeed."""
        for start in range(0, len(updates), _WRITE_CHUNK):
            request = p4r.WriteRequest(device_id=DEVICE, election_id=self._election)
            request.updates.extend(updates[start : start + _WRITE_CHUNK])
            self._p4rt.Write(request, timeout=PATIENCE_S)

    def exchange(self, port: int, frame: bytes) -> list[Answer]:
        """Put a frame in, and give all that comes out because of it, the CPU's with the packet_in header."""
        return self.burst([(port, frame)])

    def burst(self, frames: Sequence[Answer]) -> list[Answer]:
        """Put frames in back to back, all from the CPU or none, and give all that comes out."""
        port, _ = frames[0]
        for source, frame in frames:
            if source == CPU_PORT:
                self._send_packet_out(frame)
            else:
                self._inject(source, frame)
        for worker in range(len(SENTINEL_PORTS)):
            if port == CPU_PORT:
                # By the controller's own way, submitted to ingress: they cannot overtake the packet.
                self._send_packet_out(b"\x00\x40" + sentinel_frame(worker))
            else:
                self._inject(SENTINEL_PORTS[0], sentinel_frame(worker))
        out = self._until_sentinels()
        # Only now, or a packet for the CPU could find it behind itself in the queue.
        self._inject(SENTINEL_PORTS[0], CPU_SENTINEL)
        return out + self._until_cpu_sentinel()

    def _inject(self, port: int, frame: bytes) -> None:
        self._frames.put(messages.PacketStreamRequest(device_id=DEVICE, port=port, packet=frame))

    def _send_packet_out(self, frame: bytes) -> None:
        split = decode_packet_in(self._packet_out, frame)
        packet = p4r.PacketOut(payload=split.payload, metadata=split.metadata)
        self._to_switch.put(p4r.StreamMessageRequest(packet=packet))

    def _until_sentinels(self) -> list[Answer]:
        waiting, out = set(SENTINEL_PORTS), []
        while waiting:
            answer = self._next(self._out)
            assert isinstance(answer, tuple)
            if answer[0] in waiting:
                waiting.remove(answer[0])
            else:
                out.append(answer)
        return out

    def _until_cpu_sentinel(self) -> list[Answer]:
        out: list[Answer] = []
        self._cpu_sentinels += 1
        while True:
            message = self._next(self._to_cpu)
            assert isinstance(message, p4r.StreamMessageResponse)
            assert message.WhichOneof("update") == "packet", message
            assert self._packet_in is not None
            if message.packet.payload == CPU_SENTINEL:
                return out
            out.append((CPU_PORT, _joined(self._packet_in, message.packet)))

    def counters(self) -> Counts:
        """Every counter's cells that are not 0, without what the sentinels counted."""
        counts: Counts = {}
        for counter in self._counters:
            name = counter.name
            counts[name] = {}
            entry = p4r.CounterEntry(counter_id=counter.id)
            request = p4r.ReadRequest(device_id=DEVICE, entities=[p4r.Entity(counter_entry=entry)])
            for answer in self._p4rt.Read(request, timeout=PATIENCE_S):
                for entity in answer.entities:
                    cell = entity.counter_entry
                    # BMv2 gives bytes of a counter of packets too.
                    size = cell.data.byte_count * counter.counts_bytes
                    counts[name][cell.index.index] = (cell.data.packet_count * counter.counts_packets, size)
        for name in _PER_PORT_AND_QUEUE:
            for index in _SENTINEL_CELLS:
                counts[name].pop(index, None)
            packets, size = counts[name][_CPU_CELL]
            sent = self._cpu_sentinels
            counts[name][_CPU_CELL] = (packets - sent, size - sent * len(CPU_SENTINEL))
        return without_zeros(counts)


def without_zeros(counts: Counts) -> Counts:
    """Leave out the cells that hold nothing."""
    return {
        name: {index: cell for index, cell in sorted(cells.items()) if any(cell)}
        for name, cells in counts.items()
    }


def _joined(header: PacketHeader, packet: p4r.PacketIn) -> bytes:
    values = {item.metadata_id: int.from_bytes(item.value, "big") for item in packet.metadata}
    packed = 0
    for field in header.fields:
        packed = packed << field.width | values.get(field.id, 0)
    return packed.to_bytes(header.bits // 8, "big") + packet.payload
