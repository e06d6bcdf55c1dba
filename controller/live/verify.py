# SPDX-License-Identifier: Apache-2.0
"""Check with INT v2.1 probes that flows take the paths of the plan.

A probe has the flow's own 5-tuple. It enters the ingress of the source leaf by packet-out, so the same hash
forwards it, collects the node id of every hop, and leaves the fabric at the CPU port of the last leaf.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from controller.live.messages import SendFrame
from controller.model.traffic import TRAFFIC_CLASSES
from controller.model.view import ProbeHop
from controller.wire.rocev2 import ROCE_PORT
from topo.addresses import is_ipv6, packed, unpacked
from topo.graph import Topology

# How often a probe is sent before its flow counts as unverified. Chosen.
TRIES = 3
# Probes in flight at the same time; the others wait. Chosen: a switch takes so many packet-outs at once, and
# 20,000 flows are verified in seconds.
PROBES_IN_FLIGHT = 256


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """When a probe counts as lost, how many are made in one go, and whether a verified flow is probed again
    when a new plan leaves it on its path."""

    timeout_ns: int
    at_once: int
    again: bool


# Chosen: on the host's clock busy CPUs take longer, agents wait for answers while probes are made, and where
# plans follow fast upon one another no verification of all flows would ever end.
FABRIC_TIME_PROBES = ProbeOptions(50_000_000, PROBES_IN_FLIGHT, again=True)
HOST_CLOCK_PROBES = ProbeOptions(500_000_000, 32, again=False)

# INT v2.1: node id, port ids, hop latency, queue id and occupancy, two timestamps; 8 words of 4 bytes a
# hop. The P4 program adds just these.
INSTRUCTIONS = 0xFC00
HOP_WORDS = 8
HOP_BYTES = 4 * HOP_WORDS
# Chosen: more hops than any path of a three-tier fabric has.
MAX_HOPS = 16

_ETHERNET = struct.Struct("!6s6sH")
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_IPV6 = struct.Struct("!IHBB16s16s")
_UDP = struct.Struct("!HHHH")
_SHIM = struct.Struct("!BBBB")
_MD = struct.Struct("!BBBBHHHH")
_TOKEN = struct.Struct("!I")
_ETHERTYPE_IPV4 = 0x0800
_ETHERTYPE_IPV6 = 0x86DD
_IPV6_VERSION = 6
_UDP_PROTOCOL = 17
_TTL = 64
_MD_WORDS = _MD.size // 4


@dataclass(frozen=True, slots=True)
class FiveTuple:
    """The addresses and the source port of a RoCEv2 flow; protocol and destination port are fixed."""

    src_ip: str
    dst_ip: str
    source_port: int


@dataclass(frozen=True, slots=True)
class Hop:
    """What one switch wrote into a probe.

    `latency` is in clock ticks of the target, `occupancy` in packets.
    """

    node_id: int
    ingress_port: int
    egress_port: int
    latency: int
    queue_id: int
    occupancy: int


@dataclass(frozen=True, slots=True)
class ReturnedProbe:
    """A probe that came back: its flow, the sender's token, and the hops in the order of the path."""

    flow: FiveTuple
    token: int
    hops: tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """The result of probing one flow.

    `seen` is the path that the probe took, host to host; empty: it was lost. `hops` has its switches' notes.
    """

    flow: str
    verified: bool
    planned: tuple[str, ...]
    seen: tuple[str, ...]
    hops: tuple[ProbeHop, ...] = ()


def build_probe(flow: FiveTuple, src_mac: str, dst_mac: str, token: int) -> bytes:
    """An INT-MD probe of `flow` as an Ethernet frame, with an empty metadata stack.

    `token` (32 bits) follows the stack and comes back unchanged.
    """
    body = (
        _SHIM.pack(0x10, _MD_WORDS, 0, 0)
        + _MD.pack(0x20, 0, HOP_WORDS, MAX_HOPS, INSTRUCTIONS, 0, 0, 0)
        + _TOKEN.pack(token)
    )
    udp = _UDP.pack(flow.source_port, ROCE_PORT, _UDP.size + len(body), 0)
    tos = TRAFFIC_CLASSES.probe << 2
    size = len(udp) + len(body)
    ends = packed(flow.src_ip), packed(flow.dst_ip)
    if is_ipv6(flow.src_ip):
        ether_type = _ETHERTYPE_IPV6
        ip = _IPV6.pack(_IPV6_VERSION << 28 | tos << 20, size, _UDP_PROTOCOL, _TTL, *ends)
    else:
        ether_type = _ETHERTYPE_IPV4
        size += _IPV4.size
        ip = _IPV4.pack(0x45, tos, size, token & 0xFFFF, 0, _TTL, _UDP_PROTOCOL, 0, *ends)
        ip = ip[:10] + struct.pack("!H", _checksum(ip)) + ip[12:]
    return _ETHERNET.pack(_mac(dst_mac), _mac(src_mac), ether_type) + ip + udp + body


def parse_probe(frame: bytes) -> ReturnedProbe | None:
    """The probe that a sink switch sent to the controller; None if the frame is not such a probe."""
    found = _addresses_of(frame)
    if found is None:
        return None
    src, dst, at = found
    head = at + _UDP.size
    start = head + _SHIM.size + _MD.size
    if len(frame) < start + _TOKEN.size:
        return None
    source_port, destination_port, _, _ = _UDP.unpack_from(frame, at)
    kind, words, _, _ = _SHIM.unpack_from(frame, head)
    md = _MD.unpack_from(frame, head + _SHIM.size)
    stack_bytes = 4 * (words - _MD_WORDS)
    legal = (
        destination_port == ROCE_PORT
        and kind >> 4 == 1
        and md[0] >> 4 == 2
        and md[4] == INSTRUCTIONS
        and stack_bytes >= 0
        and stack_bytes % HOP_BYTES == 0
        and len(frame) >= start + stack_bytes + _TOKEN.size
    )
    if not legal:
        return None
    # The last hop stands first.
    hops = tuple(_hop(frame, at) for at in range(start + stack_bytes - HOP_BYTES, start - 1, -HOP_BYTES))
    (token,) = _TOKEN.unpack_from(frame, start + stack_bytes)
    return ReturnedProbe(FiveTuple(unpacked(src), unpacked(dst), source_port), token, hops)


def _addresses_of(frame: bytes) -> tuple[bytes, bytes, int] | None:
    """The addresses of a UDP packet in a frame, and where its UDP header begins; None for other frames."""
    at = _ETHERNET.size
    if len(frame) >= at + _IPV4.size and frame[at] == 0x45:
        *_, protocol, _, src, dst = _IPV4.unpack_from(frame, at)
        return (src, dst, at + _IPV4.size) if protocol == _UDP_PROTOCOL else None
    if len(frame) >= at + _IPV6.size and frame[at] >> 4 == _IPV6_VERSION:
        _, _, protocol, _, src, dst = _IPV6.unpack_from(frame, at)
        return (src, dst, at + _IPV6.size) if protocol == _UDP_PROTOCOL else None
    return None


@dataclass(slots=True)
class _ProbeInFlight:
    """A probe in flight: the flows that share its 5-tuple, with the planned path of each."""

    flows: dict[str, tuple[str, ...]]
    deadline_ns: int
    tries: int
    token: int


@dataclass(slots=True)
class Verifier:
    """The probes in flight. The caller sends the frames and passes the time."""

    topology: Topology
    options: ProbeOptions = FABRIC_TIME_PROBES
    _open: dict[FiveTuple, _ProbeInFlight] = field(default_factory=dict)
    # The probes of `_open` that have not been sent yet, in order, and those in flight by their deadlines.
    _queued: dict[FiveTuple, None] = field(default_factory=dict)
    _sent: dict[FiveTuple, None] = field(default_factory=dict)
    _keys: dict[str, FiveTuple] = field(default_factory=dict)
    _tokens: int = 0
    _names: Mapping[int, str] = field(init=False)

    def __post_init__(self) -> None:
        self._names = {s.device_id: s.name for s in self.topology.switches}

    @property
    def pending(self) -> frozenset[str]:
        """The names of flows whose verification is not over."""
        return frozenset(self._keys)

    @property
    def busy(self) -> bool:
        """Whether the verification of a flow is not over."""
        return bool(self._keys)

    @property
    def next_timer_ns(self) -> int | None:
        """When `expire` must be called next: when the first probe is overdue. None: there is no probe."""
        if self._queued and len(self._sent) < PROBES_IN_FLIGHT:
            return 0
        first = next(iter(self._sent), None)
        return self._open[first].deadline_ns if first is not None else None

    def begin(self, now_ns: int, flows: Iterable[tuple[str, tuple[str, ...], int]]) -> tuple[SendFrame, ...]:
        """Start to probe flows, each given as (name, planned path host to host, source port).

        Returns the frames to send; the others follow when probes come back or are given up. A flow that is
        being probed starts again. Flows with the same 5-tuple share a probe.
        """
        fresh: dict[FiveTuple, dict[str, tuple[str, ...]]] = {}
        for name, path, source_port in flows:
            self.forget(name)
            key = FiveTuple(self.topology.host[path[0]].ip, self.topology.host[path[-1]].ip, source_port)
            fresh.setdefault(key, {})[name] = path
        for key, members in fresh.items():
            others = self._open[key].flows if key in self._open else {}
            self._open[key] = _ProbeInFlight(others | members, 0, 0, -1)
            self._keys.update(dict.fromkeys(members, key))
            self._sent.pop(key, None)
            self._queued[key] = None
        return self.next_frames(now_ns)

    def next_frames(self, now_ns: int) -> tuple[SendFrame, ...]:
        """The frames of probes that have waited for others, and may be sent now. Where there are more of them
        than may be made in one go, the next timer is due at once."""
        frames: list[SendFrame] = []
        room = min(self.options.at_once, PROBES_IN_FLIGHT - len(self._sent))
        while self._queued and len(frames) < room:
            key = next(iter(self._queued))
            del self._queued[key]
            frames.append(self._send(now_ns, key))
        return tuple(frames)

    def forget(self, flow: str) -> None:
        """End the verification of a flow without a result."""
        key = self._keys.pop(flow, None)
        if key is None:
            return
        entry = self._open[key]
        del entry.flows[flow]
        if not entry.flows:
            self._close(key)

    def received(self, frame: bytes) -> tuple[ProbeOutcome, ...] | None:
        """A probe came back: the results that it gives. None if the frame is not a probe."""
        probe = parse_probe(frame)
        if probe is None:
            return None
        entry = self._open.get(probe.flow)
        if entry is None or entry.token != probe.token:
            return ()
        self._close(probe.flow)
        hops = tuple(
            ProbeHop(
                self._names.get(hop.node_id, f"#{hop.node_id}"),
                hop.ingress_port,
                hop.egress_port,
                hop.latency,
                hop.queue_id,
                hop.occupancy,
            )
            for hop in probe.hops
        )
        nodes = tuple(hop.switch for hop in hops)
        return tuple(
            ProbeOutcome(flow, (path[0], *nodes, path[-1]) == path, path, (path[0], *nodes, path[-1]), hops)
            for flow, path in entry.flows.items()
        )

    def expire(self, now_ns: int) -> tuple[tuple[SendFrame, ...], tuple[ProbeOutcome, ...]]:
        """The probes to send again, and the results of those that were sent too often."""
        frames: list[SendFrame] = []
        outcomes: list[ProbeOutcome] = []
        late = list(takewhile(lambda key: self._open[key].deadline_ns <= now_ns, self._sent))
        late = late[: self.options.at_once]
        for key in late:
            entry = self._open[key]
            if entry.tries < TRIES:
                frames.append(self._send(now_ns, key))
            else:
                self._close(key)
                outcomes += [ProbeOutcome(flow, False, path, ()) for flow, path in entry.flows.items()]
        return (*frames, *self.next_frames(now_ns)), tuple(outcomes)

    def _close(self, key: FiveTuple) -> None:
        entry = self._open.pop(key)
        self._queued.pop(key, None)
        self._sent.pop(key, None)
        for flow in entry.flows:
            self._keys.pop(flow, None)

    def _send(self, now_ns: int, key: FiveTuple) -> SendFrame:
        entry = self._open[key]
        self._tokens = (self._tokens + 1) & 0xFFFFFFFF
        entry.token = self._tokens
        entry.tries += 1
        entry.deadline_ns = now_ns + self.options.timeout_ns
        # To the end: deadlines grow in the order of sending.
        self._sent.pop(key, None)
        self._sent[key] = None
        path = next(iter(entry.flows.values()))
        host = self.topology.host[path[0]]
        leaf = self.topology.switch[host.leaf]
        return SendFrame(host.leaf, build_probe(key, host.mac, leaf.mac, entry.token), 0, True)


def _hop(frame: bytes, at: int) -> Hop:
    node, ingress, egress, latency, queue = struct.unpack_from("!IHHII", frame, at)
    return Hop(node, ingress, egress, latency, queue >> 24, queue & 0xFFFFFF)


def _checksum(header: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
