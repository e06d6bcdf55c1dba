# SPDX-License-Identifier: Apache-2.0
"""Random entries and frames for our program, and what BMv2 made of them.

`python tests/p4/differential.py` asks the simple_switch_grpc on PATH and writes the recording that the tests
replay into the embedded switch. What no two switches agree on is masked: times and depths in INT.
"""

import gzip
import json
import queue
import random
import shutil
import socket
import struct
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import p4_bench as b
from finsy.proto import U128, p4r, p4r_grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bmv2.entries import Exact, Lpm, Range
from controller.southbound.artefacts import load_artefacts
from controller.southbound.codec import Codec
from controller.southbound.desired import Entry
from controller.southbound.diff import Change, Operation

BMV2 = "simple_switch_grpc"
RECORDING = Path(__file__).parents[1] / "golden/p4_program_bmv2.json.gz"
PORTS = (1, 2, 3, 4)
SOURCE_PORTS = range(0xC000, 0xC020)
DESTINATIONS = [f"10.0.{prefix}.{host}" for prefix in range(7) for host in (1, 2)]
DEEPEST = 2**19 - 1
PATIENCE_S = 10.0
QUIET_S = 0.5


@dataclass(frozen=True)
class Given:
    """A table entry: the match as one list of numbers a field."""

    table: str
    match: tuple[tuple[int, ...], ...]
    action: str
    params: tuple[int, ...]
    priority: int = 0


# --- what is given --------------------------------------------------------------------------------------


def random_entries(draw: random.Random) -> list[Given]:
    """Entries for every table; `draw` decides on hops, queues, marks (never or always) and rewrites."""
    given = []

    def put(table, match, action, *params, priority=0):
        given.append(Given(table, tuple(tuple(field) for field in match), action, params, priority))

    def hop(table, match):
        target = draw.randint(1, 7)
        if draw.random() < 0.5:
            put(table, match, "set_next_hop", target)
        else:
            backup = draw.randint(1, 7)
            put(table, match, "set_next_hop_with_backup", target, port_of(target), backup)

    for ident in range(1, 8):
        put("next_hop", [[ident]], "forward", port_of(ident), 0x020000000000 + ident, 0x020000001000 + ident)
    put("next_hop", [[8]], "forward", b.CPU, 0x02AA, 0x02BB)
    for prefix, action, ident in (
        ("10.0.0.0/16", "set_next_hop", 3),
        ("10.0.1.0/24", "set_ecmp_group_tier0", 1),
        ("10.0.2.0/24", "set_ecmp_group_tier1", 2),
        ("10.0.3.0/24", "set_ecmp_group_tier2", 3),
        ("10.0.5.0/24", "set_next_hop", 8),
    ):
        address, length = prefix.split("/")
        put("routing", [[int(b.IPv4Address(address)), int(length)]], action, ident)
    put("routing", [[int(b.IPv4Address("10.0.4.0")), 24]], "drop")
    for group in (1, 2, 3):
        for bucket in range(256):
            if draw.random() < 0.9:
                hop("ecmp", [[group], [bucket]])
    put("port_state", [[2]], "set_port_down")
    for dst, sport in sorted({(draw.choice(DESTINATIONS), draw.choice(SOURCE_PORTS)) for _ in range(60)}):
        hop("pinned_flow", _flow(dst, sport))
    for dscp in range(64):
        if draw.random() < 0.7:
            put("queue", [[dscp]], "set_queue", draw.randint(0, 7))
    for qid in range(8):
        if draw.random() < 0.6:
            probability = draw.choice([0, 0xFFFF])
            put("ecn", [[qid], [0, DEEPEST]], "set_mark_probability", probability, priority=5)
    put("edge", [[3]], "mark_edge")
    put("edge_ingress", [[1]], "stop_strays")
    put("edge_ingress", [[3]], "remark_strays", 9)
    for port in (1, 2, 3):
        for dscp in range(64):
            chance = draw.random()
            if chance < 0.2:
                put("remark", [[port], [dscp]], "set_dscp", draw.randint(0, 51))
            elif chance < 0.5:
                put("remark", [[port], [dscp]], "set_dscp_by_flow", draw.randint(0, 51))
                for sport in draw.sample(SOURCE_PORTS, 6):
                    key = [[port], [dscp], *_flow(draw.choice(DESTINATIONS), sport)]
                    put("remark_flow", key, "set_dscp", draw.randint(0, 51))
    return given


def port_of(next_hop: int) -> int:
    return 1 + next_hop % 4


def _flow(dst, sport):
    return [[field.value] for field in b.flow_key(dst=dst, sport=sport)]


def random_frame(draw: random.Random) -> bytes:
    """RoCE, a CNP true or false, a probe, TCP, ICMP, a fragment, no IPv4; now and then cut or spoilt."""
    dst, ecn, dscp = draw.choice(DESTINATIONS), draw.randint(0, 3), draw.randint(0, 63)
    head = {"dst": dst, "ecn": ecn, "dscp": dscp, "ttl": draw.choice([64, 64, 64, 64, 2, 1, 0])}
    kind = draw.random()
    if kind < 0.1:
        head |= {"dscp": b.PROBE}
        instructions = draw.choice([0xFC00, 0xFC00, 0xFC00, 0xFF00])
        version = draw.choice([0x20, 0x20, 0x10])
        md = struct.pack("!BBBBHHHH", version, 0, 8, draw.randint(0, 3), instructions, 0, 0, 0)
        frame = b.ipv4(b.UDP, b.udp(b"\x10\x03\0\0" + md + b"id42", sport=draw.choice(SOURCE_PORTS)), **head)
    elif kind < 0.6:
        head["dscp"] = draw.choice([48, dscp])
        payload = bytes([draw.choice([0x81, 0x0A, 0x11])]) + b.BTH[1:] + bytes(draw.randint(0, 40))
        frame = b.ipv4(b.UDP, b.udp(payload, sport=draw.choice(SOURCE_PORTS)), **head)
    elif kind < 0.7:
        frame = b.ipv4(b.TCP, struct.pack("!HH", draw.randint(1, 9), 80) + bytes(16), **head)
    elif kind < 0.8:
        frame = b.ipv4(b.UDP, b.udp(b"x" * draw.randint(0, 30), dport=53), **head)
    elif kind < 0.85:
        frame = b.ipv4(b.UDP, b.udp(b.BTH), fragment=draw.choice([0x2000, 0x10]), **head)
    elif kind < 0.9:
        frame = b.ethernet(draw.choice([0x88B5, 0x0806, 0x86DD]), bytes(draw.randint(0, 46)))
    else:
        frame = b.ipv4(b.ICMP, b"\x08\0ping", **head)
    if draw.random() < 0.1:
        frame = frame[: draw.randint(1, len(frame))]
    if draw.random() < 0.05:
        frame = b.spoilt(frame, draw.randrange(len(frame)))
    return frame


# --- what is answered -----------------------------------------------------------------------------------


def masked(frame: bytes, start: int = 0) -> bytes:
    """The frame without latency, occupancy and timestamps of its INT hops; `start` is Ethernet's offset."""
    out = bytearray(frame)
    head = frame[start : start + 58]
    is_probe = (
        len(head) == 58
        and head[12:14] == b"\x08\0"
        and head[23] == b.UDP
        and head[15] >> 2 == b.PROBE
        and head[36:38] == b.ROCE.to_bytes(2)
    )
    for hop in range((head[43] - 3) // 8 if is_probe else 0):
        at = start + 58 + 32 * hop
        out[at + 8 : at + 12] = bytes(4)
        out[at + 13 : at + 32] = bytes(19)
    return bytes(out)


class Embedded:
    """The embedded switch; an answer is (what left by ports, what went to the CPU), both in order."""

    def __init__(self, entries):
        self.bench = b.make_bench(ports=PORTS)
        kinds = {"routing": [Lpm], "ecn": [Exact, Range]}
        for e in entries:
            fields = [
                kind(*numbers)
                for kind, numbers in zip(kinds.get(e.table, [Exact] * len(e.match)), e.match, strict=True)
            ]
            self.bench.insert(e.table, fields, e.action, *e.params, priority=e.priority)

    def answer(self, port, frame):
        self.bench.sent.clear()
        self.bench.cpu.clear()
        self.bench.push(port, frame)
        sent = [[port, masked(frame).hex()] for port, frame in self.bench.sent]
        return [sent, [masked(frame, 4).hex() for frame in self.bench.cpu]]

    def counters(self):
        """Counter -> the cells that are not 0: index -> [packets, bytes]; bytes where P4Info has them."""
        found = {}
        for name in COUNTERS:
            cells = enumerate(self.bench.switch.read_counter(name))
            found[name] = {str(i): list(cell[: COUNTERS[name]]) for i, cell in cells if cell[0]}
        return found


# Counter: how many of (packets, bytes) are compared.
COUNTERS = {"ingress_packets": 2, "egress_packets": 2, "ecn_marks": 1, "stray_packets": 1}


class Bmv2:
    """A running simple_switch_grpc with our program, fed by its data-plane service."""

    def __init__(self, control: str, data_plane: str, entries):
        artefacts = load_artefacts()
        self._codec = Codec(artefacts)
        channel = grpc.insecure_channel(control)
        grpc.channel_ready_future(channel).result(timeout=PATIENCE_S)
        self._stub = p4r_grpc.P4RuntimeStub(channel)
        self._requests = queue.SimpleQueue()
        self._cpu = queue.SimpleQueue()
        self._sent = queue.SimpleQueue()
        self._frames = queue.SimpleQueue()
        bid = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(1))
        self._requests.put(p4r.StreamMessageRequest(arbitration=bid))
        self._listen(self._stub.StreamChannel(iter(self._requests.get, None)), self._cpu)
        assert self._cpu.get(timeout=PATIENCE_S).arbitration.status.code == 0
        self._stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=1,
                election_id=U128.encode(1),
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=p4r.ForwardingPipelineConfig(
                    p4info=self._codec.p4info, p4_device_config=artefacts.device_config
                ),
            )
        )
        self._write(entries)
        self._request, response = _packet_messages()
        stream = grpc.insecure_channel(data_plane).stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream",
            request_serializer=self._request.SerializeToString,
            response_deserializer=response.FromString,
        )
        self._listen(stream(iter(self._frames.get, None)), self._sent)
        # The stream has no answer of its own to wait for.
        time.sleep(QUIET_S)

    def answer(self, port, frame, wanted):
        """The answer, in the form of Embedded's; `wanted` is how long an answer is waited for."""
        self._frames.put(self._request(device_id=1, port=port, packet=frame))
        sent = [self._next(self._sent) for _ in wanted[0]]
        cpu = [self._next(self._cpu) for _ in wanted[1]]
        return [
            [message and [message.port, masked(message.packet).hex()] for message in sent],
            [message and masked(_packet_in(message.packet), 4).hex() for message in cpu],
        ]

    def rest(self):
        """How many packets came that no answer accounts for."""
        time.sleep(QUIET_S)
        return self._sent.qsize() + self._cpu.qsize()

    def counters(self):
        found = {}
        names = {counter.preamble.name: counter.preamble.id for counter in self._codec.p4info.counters}
        for name, ident in names.items():
            entity = p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=ident))
            replies = self._stub.Read(p4r.ReadRequest(device_id=1, entities=[entity]))
            entries = [entity.counter_entry for reply in replies for entity in reply.entities]
            found[name] = {
                str(entry.index.index): [entry.data.packet_count, entry.data.byte_count][: COUNTERS[name]]
                for entry in entries
                if entry.data.packet_count
            }
        return found

    def _write(self, entries):
        fields = {table.preamble.name: table.match_fields for table in self._codec.p4info.tables}
        updates = []
        for e in entries:
            match = tuple(
                (field.name, numbers[0] if len(numbers) == 1 else numbers)
                for field, numbers in zip(fields[e.table], e.match, strict=True)
            )
            entry = Entry(e.table, match, e.action, e.params, e.priority)
            updates.append(self._codec.update(Change(Operation.INSERT, entry)))
        self._stub.Write(p4r.WriteRequest(device_id=1, election_id=U128.encode(1), updates=updates))

    @staticmethod
    def _listen(stream, inbox):
        def run():
            try:
                for message in stream:
                    inbox.put(message)
            except grpc.RpcError:
                # The switch has ended; whoever waits notices by the time-out.
                return

        threading.Thread(target=run, daemon=True).start()

    @staticmethod
    def _next(inbox):
        try:
            return inbox.get(timeout=PATIENCE_S)
        except queue.Empty:
            return None


@contextmanager
def bmv2(entries):
    """BMv2 for as long as the block lasts."""
    control, data_plane = (f"127.0.0.1:{port}" for port in _free_ports(2))
    command = [BMV2, "--device-id", "1", "--no-p4", "--", "--grpc-server-addr", control, "--cpu-port", "255"]
    command += ["--dp-grpc-server-addr", data_plane, "--priority-queues", "8"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Bmv2(control, data_plane, entries)
    finally:
        process.terminate()
        process.wait()


def _packet_in(packet):
    values = [int.from_bytes(field.value) for field in sorted(packet.metadata, key=lambda m: m.metadata_id)]
    port, reason, pad, egress_port = values
    return ((port << 7 | reason << 4 | pad) << 16 | egress_port).to_bytes(4) + packet.payload


def _packet_messages():
    """The two messages of BMv2's data-plane service (p4.bm), which are alike."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="packets.proto", package="p4.bm", syntax="proto3")
    kinds = (("id", field.TYPE_UINT64), ("device_id", field.TYPE_UINT64), ("port", field.TYPE_UINT32))
    for name in ("PacketStreamRequest", "PacketStreamResponse"):
        message = file.message_type.add(name=name)
        for number, (title, kind) in enumerate((*kinds, ("packet", field.TYPE_BYTES)), start=1):
            message.field.add(name=title, number=number, type=kind, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p4.bm.{message.name}"))
        for message in file.message_type
    ]


def _free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


# --- the recording --------------------------------------------------------------------------------------


def compare(seed: int, count: int):
    """Both switches on the same input: (entries, frames, the embedded answers, BMv2's, their counters)."""
    draw = random.Random(seed)
    entries = random_entries(draw)
    frames = [(draw.choice(PORTS), random_frame(draw)) for _ in range(count)]
    embedded = Embedded(entries)
    ours = [embedded.answer(port, frame) for port, frame in frames]
    with bmv2(entries) as switch:
        theirs = [switch.answer(*given, wanted) for given, wanted in zip(frames, ours, strict=True)]
        return entries, frames, ours, theirs, (embedded.counters(), switch.counters()), switch.rest()


def record(seed: int, count: int) -> None:
    """Write the recording; refuses to where the two disagree."""
    entries, frames, ours, theirs, counters, rest = compare(seed, count)
    assert ours == theirs
    assert (counters[0], rest) == (counters[1], 0)
    version = subprocess.run([BMV2, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    recording = {
        "bmv2": version,
        "entries": [[e.table, e.match, e.action, e.params, e.priority] for e in entries],
        "frames": [[port, frame.hex()] for port, frame in frames],
        "answers": theirs,
        "counters": counters[1],
    }
    RECORDING.parent.mkdir(exist_ok=True)
    text = json.dumps(recording, separators=(",", ":"))
    RECORDING.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{RECORDING}: {RECORDING.stat().st_size} bytes, {len(entries)} entries, {len(frames)} frames")


def read_recording():
    """(entries, frames, BMv2's answers, BMv2's counters)."""
    data = json.loads(gzip.decompress(RECORDING.read_bytes()))
    entries = [
        Given(table, tuple(map(tuple, match)), action, tuple(params), priority)
        for table, match, action, params, priority in data["entries"]
    ]
    frames = [(port, bytes.fromhex(frame)) for port, frame in data["frames"]]
    return entries, frames, data["answers"], data["counters"]


if __name__ == "__main__":
    assert shutil.which(BMV2), f"{BMV2} is not on PATH"
    record(seed=2026, count=10_000)
