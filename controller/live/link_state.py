# SPDX-License-Identifier: Apache-2.0
"""Which links and switches are down: by port states where the target reports them, else by link probes."""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from controller.live.drained import Drained
from controller.live.messages import SendFrame
from controller.southbound.table_writes import FabricCondition
from topo.graph import Topology

# IEEE's local experimental EtherType 1.
ETHERTYPE = 0x88B5
# The time between two rounds of link probes, and how many in a row a link may lose. Chosen: a cut link is
# noticed after 3 to 4 rounds.
PROBE_INTERVAL_NS = 100_000_000
MAX_LOST_PROBES = 3
# How long a switch may have no session before it counts as lost. Chosen: a restart of the controller's
# session takes less.
GRACE_NS = 1_000_000_000

log = logging.getLogger(__name__)

_MAGIC = b"PLYR"
# Ethernet header; magic, device id, port, sequence; padded to Ethernet's smallest payload.
_PROBE = struct.Struct("!6s6sH4sIHI32x")
# The nearest-bridge group address (IEEE 802.1Q): a bridge between the two switches does not forward it.
_GROUP_MAC = bytes.fromhex("0180c200000e")

End = tuple[str, int]


def build_link_probe(device_id: int, port: int, sequence: int, src_mac: str) -> bytes:
    """The link probe that leaves `port` of the switch `device_id`."""
    mac = bytes.fromhex(src_mac.replace(":", ""))
    return _PROBE.pack(_GROUP_MAC, mac, ETHERTYPE, _MAGIC, device_id, port, sequence & 0xFFFFFFFF)


def parse_link_probe(frame: bytes) -> tuple[int, int, int] | None:
    """(device id, port, sequence) of a link probe; None if the frame is not a link probe."""
    if len(frame) < _PROBE.size:
        return None
    _, _, kind, magic, device_id, port, sequence = _PROBE.unpack_from(frame)
    return (device_id, port, sequence) if kind == ETHERTYPE and magic == _MAGIC else None


@dataclass(frozen=True, slots=True)
class PortTransition:
    """A port that went up or down. `peer` is the node it is wired to; empty for an unwired port."""

    switch: str
    port: int
    peer: str
    up: bool


class LinkState:
    """The fabric's condition, derived from port states, link probes and the state of the sessions."""

    def __init__(self, topology: Topology, grace_ns: int = GRACE_NS, start_grace_ns: int = 0) -> None:
        """A switch whose session has been gone for `grace_ns` counts as lost, and one that has had none
        `start_grace_ns` after the start (0: never).
        """
        self._topology = topology
        self._grace_ns = grace_ns
        # None: every switch is awaited already.
        self._start_grace_ns = start_grace_ns or None
        # Switches without a session: since when, and the time when each counts as lost.
        self._absent: dict[str, tuple[int, int]] = {}
        self._names = {s.device_id: s.name for s in topology.switches}
        self._down: set[End] = set()
        self._ready: set[str] = set()
        self._lost: set[str] = set()
        self._silent: set[str] = set()
        # Probes sent from each end of a link that have not come out at its other end, in a row.
        self._missed: dict[End, int] = {}
        self._sequence = 0
        self._next_probe_ns: int | None = None
        self.drained = Drained()

    @property
    def condition(self) -> FabricCondition:
        """Cables and switches that are down or drained. A cable is down if either of its ports is."""
        # The control loop asks in every step, so only the ports that are down are looked at.
        cable_at = self._topology.cable_at
        down = {cable_at[end] for end in self._down if end in cable_at}
        return self.drained.beside(frozenset(down), frozenset(self._lost))

    def restore(self, condition: FabricCondition) -> None:
        """Take up what was down when an earlier controller ended, until the switches report.

        What the topology does not have is left out.
        """
        cables, cable_at = self._topology.cables, self._topology.cable_at
        failed, lost = condition.failed
        ends = (end for cable in failed for end in cables.get(cable, ()))
        self._down |= {end for end in ends if end in cable_at}
        self._lost = {name for name in lost if name in self._topology.switch}

    @property
    def next_timer_ns(self) -> int | None:
        """When the next round of link probes is due, or a switch without a session counts as lost."""
        if self._start_grace_ns is not None:
            return 0
        absent = (until for _, until in self._absent.values())
        return min((*absent, *([] if self._next_probe_ns is None else [self._next_probe_ns])), default=None)

    @property
    def down_ports(self) -> frozenset[End]:
        """The ports that are down, as far as the controller knows."""
        return frozenset(self._down)

    def switch_ready(
        self, now_ns: int, switch: str, ports: Mapping[int, bool] | None
    ) -> tuple[PortTransition, ...]:
        """A switch is in service. Returns the ports whose state has changed."""
        self._lost.discard(switch)
        self._absent.pop(switch, None)
        self._ready.add(switch)
        if ports is None:
            self._silent.add(switch)
            if self._next_probe_ns is None:
                self._next_probe_ns = now_ns
            return ()
        self._silent.discard(switch)
        if not self._silent:
            self._next_probe_ns = None
        return self.ports_seen(switch, ports)

    def switch_lost(self, now_ns: int, switch: str) -> None:
        """The session with a switch is lost; the switch keeps forwarding by its table entries.

        If the session is not back within the grace time, no plan uses the switch until it is.
        """
        self._absent.setdefault(switch, (now_ns, now_ns + self._grace_ns))
        self._ready.discard(switch)
        self._give_up(now_ns)

    def _give_up(self, now_ns: int) -> None:
        for switch, (since_ns, until_ns) in list(self._absent.items()):
            if until_ns > now_ns:
                continue
            del self._absent[switch]
            self._lost.add(switch)
            log.error(
                "switch %s is lost: it has had no session for %g s; plans avoid it until it has one",
                switch,
                (now_ns - since_ns) / 1e9,
            )

    def ports_seen(self, switch: str, ports: Mapping[int, bool]) -> tuple[PortTransition, ...]:
        """The switch reports port states. Returns the ports whose state has changed."""
        moves = (self._set((switch, port), up) for port, up in sorted(ports.items()))
        return tuple(move for move in moves if move is not None)

    def probe_seen(self, switch: str, frame: bytes) -> tuple[PortTransition, ...]:
        """A link probe came out at `switch`, so the link that it crossed is up."""
        probe = parse_link_probe(frame)
        if probe is None:
            return ()
        end = (self._names.get(probe[0], ""), probe[1])
        if end not in self._missed:
            return ()
        self._missed[end] = 0
        move = self._set(end, True)
        return (move,) if move is not None else ()

    def due(self, now_ns: int) -> tuple[tuple[SendFrame, ...], tuple[PortTransition, ...]]:
        """The link probes to send at `now_ns`, and the ports that count as down since too many were lost."""
        if self._start_grace_ns is not None:
            self._absent |= {
                s: (now_ns, now_ns + self._start_grace_ns)
                for s in self._topology.switch
                if s not in self._ready | self._absent.keys()
            }
            self._start_grace_ns = None
        self._give_up(now_ns)
        if self._next_probe_ns is None or now_ns < self._next_probe_ns:
            return (), ()
        self._next_probe_ns = now_ns + PROBE_INTERVAL_NS
        self._sequence += 1
        frames: list[SendFrame] = []
        moves: list[PortTransition] = []
        for end in self._watched():
            missed = self._missed.get(end, 0)
            if missed >= MAX_LOST_PROBES:
                move = self._set(end, False)
                if move is not None:
                    moves.append(move)
            self._missed[end] = missed + 1
            switch = self._topology.switch[end[0]]
            frame = build_link_probe(switch.device_id, end[1], self._sequence, switch.mac)
            frames.append(SendFrame(end[0], frame, end[1], False))
        return tuple(frames), tuple(moves)

    def _watched(self) -> list[End]:
        """The ends of links that are probed: both ends, where either switch reports no port states."""
        ends: list[End] = []
        for link in self._topology.links:
            if {link.a, link.b} <= self._ready and (link.a in self._silent or link.b in self._silent):
                ends += [(link.a, link.a_port), (link.b, link.b_port)]
        return sorted(ends)

    def _set(self, end: End, up: bool) -> PortTransition | None:
        if up == (end not in self._down):
            return None
        (self._down.discard if up else self._down.add)(end)
        peer = self._topology.ports[end[0]].get(end[1])
        node = peer.node if peer is not None else ""
        level, state = (logging.INFO, "up") if up else (logging.WARNING, "down")
        log.log(level, "switch %s: port %d (to %s) is %s", *end, node or "nothing", state)
        return PortTransition(end[0], end[1], node, up)
