# SPDX-License-Identifier: Apache-2.0
"""The cables of an embedded fabric with priority flow control: their delay, and the pauses at both ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bmv2 import PortTable
from bmv2.ingress_buffer import Held, IngressBuffer, LosslessProfile
from bmv2.lossless import LosslessSwitch
from polyrhythm.fabric.heap import EventHeap
from polyrhythm.fabric.pfc import (
    PRIORITIES,
    PauseSender,
    PauseTimers,
    is_mac_control,
    least_headroom_bytes,
)

_DSCPS = 64
_NIC = 0
"""The port of a host in the counters."""
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class PfcProfile:
    """Priority flow control of a whole fabric.

    `priorities` are lossless. Thresholds are those of `LosslessProfile`, in bytes; `headroom_bytes` None:
    what the fastest cable of a switch and frames of `frame_bytes` need. A pause names `quanta` of 512 bit
    times. A cable takes `cable_ns`.
    """

    priorities: frozenset[int]
    xoff_bytes: int
    xon_bytes: int
    headroom_bytes: int | None
    frame_bytes: int
    quanta: int
    cable_ns: int


class PfcCables:
    """Joins switches and NICs by cables on which pause frames travel.

    `queues` maps a DSCP to its queue, which is its priority; any other DSCP has queue 0. So a NIC knows which
    flows a pause means.
    """

    def __init__(self, heap: EventHeap, profile: PfcProfile, queues: Mapping[int, int]) -> None:
        self._heap = heap
        self._profile = profile
        self._queues = queues
        self._switches: dict[str, LosslessSwitch] = {}
        self._senders: dict[str, PauseSender] = {}
        self._timers: dict[tuple[str, int], PauseTimers] = {}

    def switch(
        self,
        name: str,
        mac: bytes,
        rates: Mapping[int, int],
        *,
        seed: int = 0,
        port_table: PortTable | None = None,
    ) -> LosslessSwitch:
        """A new switch without ports. `rates` has the rate of each of its ports in bit/s."""
        profile = self._profile
        sender = PauseSender(self._heap, mac, profile.quanta, rates, self._sends(name))
        self._senders[name] = sender
        headroom = profile.headroom_bytes
        if headroom is None:
            fastest = max(rates.values(), default=0)
            headroom = least_headroom_bytes(fastest, profile.cable_ns, profile.frame_bytes)
        lossless = LosslessProfile(profile.priorities, profile.xoff_bytes, profile.xon_bytes, headroom)
        buffer = IngressBuffer(lossless, sender.changed)
        made = LosslessSwitch(name, self._heap, buffer=buffer, seed=seed, port_table=port_table)
        self._switches[name] = made
        return made

    def to_switch(self, switch: str, port: int, rate_bps: int) -> Callable[[bytes], None]:
        """The cable's end at a port of a switch: takes the frames whose last bit has left the other end."""
        ends = self._switches[switch]

        def apply(mask: int) -> None:
            ends.lossless_ports[port].set_paused(mask)

        return self._end(switch, port, rate_bps, apply, lambda frame: ends.receive(port, frame))

    def to_nic(
        self,
        host: str,
        rate_bps: int,
        hold: Callable[[frozenset[int]], None],
        receive: Callable[[bytes], None],
    ) -> Callable[[bytes], None]:
        """The cable's end at a host's NIC. `hold` is called with the DSCPs that the NIC may not send now."""
        return self._end(host, _NIC, rate_bps, lambda mask: hold(self._dscps(mask)), receive)

    def port_changed(self, switch: str, port: int, up: bool) -> None:
        """A port of a switch with a cable went down or came up."""
        sender = self._senders[switch]
        if up:
            sender.link_up(port, self._switches[switch].buffer.paused(port))
        else:
            sender.link_down(port)
            self._timers[switch, port].link_down()

    def nic_down(self, host: str) -> None:
        """The cable of a host's NIC is cut."""
        self._timers[host, _NIC].link_down()

    def report(self) -> dict[str, Any]:
        """What has happened so far, as JSON values (docs/run.md)."""
        own = {(name, port) for name, s in self._switches.items() for port, _ in s.buffer.held}
        rows = [
            {"node": node, "port": port, "priority": priority, **counts}
            for node, port in sorted(own | self._timers.keys())
            for priority in range(PRIORITIES)
            if any((counts := self._counts(node, port, priority)).values())
        ]
        queues = [q for s in self._switches.values() for port in s.ports.values() for q in port.queues]
        return {
            "pause_frames": sum(row["pauses_sent"] for row in rows),
            "paused_ms": sum(row["paused_ms"] for row in rows),
            "headroom_drops": sum(row["headroom_drops"] for row in rows),
            "packets_lost": sum(queue.drops for queue in queues),
            "ports": rows,
        }

    def _counts(self, node: str, port: int, priority: int) -> dict[str, Any]:
        held, sent = Held(), (0, 0)
        if node in self._switches:
            held = self._switches[node].buffer.held.get((port, priority), held)
            sender = self._senders[node]
            sent = sender.pauses[port, priority], sender.resumes[port, priority]
        timers = self._timers.get((node, port))
        return {
            "pauses_sent": sent[0],
            "resumes_sent": sent[1],
            "pauses_received": 0 if timers is None else timers.pauses[priority],
            "resumes_received": 0 if timers is None else timers.resumes[priority],
            "paused_ms": 0.0 if timers is None else timers.paused_ns(priority) / _NS_PER_MS,
            "peak_bytes": held.peak,
            "headroom_drops": held.drops,
        }

    def _sends(self, switch: str) -> Callable[[int, bytes], None]:
        def send(port: int, frame: bytes) -> None:
            self._switches[switch].lossless_ports[port].send_control(frame)

        return send

    def _dscps(self, priorities: int) -> frozenset[int]:
        """The DSCPs of the priorities whose bits are set."""
        return frozenset(dscp for dscp in range(_DSCPS) if priorities >> self._queues.get(dscp, 0) & 1)

    def _end(
        self,
        node: str,
        port: int,
        rate_bps: int,
        apply: Callable[[int], None],
        receive: Callable[[bytes], None],
    ) -> Callable[[bytes], None]:
        timers = self._timers[node, port] = PauseTimers(self._heap, rate_bps, self._profile.priorities, apply)
        heap, delay = self._heap, self._profile.cable_ns

        def arrive(frame: bytes) -> None:
            if is_mac_control(frame):
                timers.take(frame)
            else:
                receive(frame)

        return lambda frame: heap.call_at(heap.now + delay, arrive, frame)
