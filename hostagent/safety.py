# SPDX-License-Identifier: Apache-2.0
"""Safety on the host (routing paper, 3.5.5): a pinned flow with bad latency or loss falls back to ECMP.

The flow is pinned again after a time that doubles with each fall-back, so that it does not swing between
paths. After a long good time the first, short time applies again. A new pin to another port is another path,
and takes effect at once. The agent decides this alone: it works while the controller is slow, and without
one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hostagent.agent import Agent
from hostagent.config import SafetySettings
from hostagent.loop import AgentLoop

log = logging.getLogger(__name__)

_LEAST_PACKETS = 16
"""A window with fewer packets is checked for loss only if all of them were sent again, as on a dead path.
Chosen: one of 16 would already be 6 %."""
RESENT = ("local_ack_timeout_err", "packet_seq_err", "roce_adp_retrans", "roce_slow_restart")
"""Counters of mlx5 that grow when queue pairs of this port retransmit."""


@dataclass(frozen=True, slots=True)
class FlowCounters:
    """The counters of a flow so far, and its last measured round trip (0: unknown)."""

    packets: int
    retransmits: int
    latency_ns: int


class FlowHealth:
    """Evaluates one flow at the end of each window. `fallen`: the flow goes by ECMP, because of `why`."""

    def __init__(self, settings: SafetySettings) -> None:
        self._settings = settings
        self._last = FlowCounters(0, 0, 0)
        self._least_ns = 0
        self._bad = 0
        self._hold_ns = int(settings.hold_s * 1e9)
        self._since = 0
        self.fallen = False
        self.why = ""

    def judge(self, now: int, sample: FlowCounters) -> bool:
        """Evaluate the window that ends at `now` (ns) with these counters. Returns whether `fallen` has
        changed."""
        quiet = sample.packets == self._last.packets
        why = self._badness(sample)
        self._last = sample
        settings = self._settings
        if self.fallen:
            if now - self._since < self._hold_ns:
                return False
            self.fallen, self._since, self._bad = False, now, 0
            return True
        if quiet:
            # Nothing was sent: on a dead path too, because the time-outs of a NIC become longer.
            return False
        if why:
            self._bad += 1
            if self._bad < settings.windows:
                return False
            self.fallen, self.why = True, why
            if self._since and now - self._since < settings.good_s * 1e9:
                self._hold_ns = min(2 * self._hold_ns, int(settings.longest_hold_s * 1e9))
            else:
                self._hold_ns = int(settings.hold_s * 1e9)
            self._since = now
            return True
        self._bad = 0
        return False

    def _badness(self, sample: FlowCounters) -> str:
        """What is bad about the window, in words; empty if nothing is."""
        settings, last = self._settings, self._last
        sent, retransmitted = sample.packets - last.packets, sample.retransmits - last.retransmits
        enough = sent >= _LEAST_PACKETS or retransmitted == sent
        if enough and 100 * retransmitted > settings.loss_percent * sent:
            return f"{100 * retransmitted / sent:.1f} % of packets retransmitted"
        latency = sample.latency_ns
        if not latency or not sent:
            return ""
        self._least_ns = min(self._least_ns or latency, latency)
        if settings.latency_ms and latency > settings.latency_ms * 1e6:
            return f"round trip {latency / 1e6:.2f} ms"
        if settings.latency_factor and latency > settings.latency_factor * self._least_ns:
            return f"round trip {latency / 1e6:.2f} ms, {latency / self._least_ns:.0f} times the shortest"
        return ""


class SafetyMonitor:
    """Monitors every pinned flow of an agent.

    If the NIC does not see single flows, `port_counters` gives (packets sent, packets retransmitted) of the
    whole port. When the port is bad, all pinned flows of the host fall back together, because it is unknown
    which of them is the cause.
    """

    def __init__(
        self,
        settings: SafetySettings,
        agent: Agent,
        loop: AgentLoop,
        *,
        sees_flows: bool,
        port_counters: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self._settings = settings
        self._agent = agent
        self._loop = loop
        self._port_counters = port_counters
        self._port_guard: FlowHealth | None = None
        self._guards: dict[str, tuple[int, FlowHealth]] = {}
        window_ns = int(settings.window_ms * 1e6)
        if settings.enabled and sees_flows:
            loop.every(window_ns, self.look)
        elif settings.enabled and port_counters is not None:
            loop.every(window_ns, self.look_at_port)

    def look(self) -> None:
        """End a window: evaluate each pinned flow."""
        agent = self._agent
        queue_pairs = agent.queue_pairs()
        for flow in self._guards.keys() - queue_pairs.keys():
            del self._guards[flow]
        for flow, qp in queue_pairs.items():
            pin = agent.pins.get(flow)
            if pin is None or not pin.source_port:
                continue
            port, guard = self._guards.get(flow, (0, None))
            if guard is None or port != pin.source_port:
                guard = FlowHealth(self._settings)
                guard.judge(self._loop.now, FlowCounters(qp.packets, qp.retransmits, 0))
                self._guards[flow] = (pin.source_port, guard)
            elif guard.judge(self._loop.now, FlowCounters(qp.packets, qp.retransmits, qp.latency_ns)):
                self._apply(flow, guard)

    def look_at_port(self) -> None:
        """End a window: evaluate the port, and with it all pinned flows."""
        if self._port_counters is None:
            return
        try:
            packets, retransmitted = self._port_counters()
        except (OSError, ValueError) as error:
            log.debug("the counters of the port cannot be read: %s", error)
            return
        sample = FlowCounters(packets, retransmitted, 0)
        if self._port_guard is None:
            self._port_guard = FlowHealth(self._settings)
            self._port_guard.judge(self._loop.now, sample)
        elif self._port_guard.judge(self._loop.now, sample):
            for flow, pin in list(self._agent.pins.items()):
                if pin.source_port:
                    self._apply(flow, self._port_guard)

    def _apply(self, flow: str, guard: FlowHealth) -> None:
        if guard.fallen:
            log.warning("%s falls back to ECMP: %s", flow, guard.why)
        else:
            log.info("%s is pinned again", flow)
        self._agent.fall_back(flow, guard.why if guard.fallen else "")


def port_counters(port: Path) -> Callable[[], tuple[int, int]]:
    """(packets sent, packets retransmitted) of an RDMA port, read from its folder in sysfs.

    Retransmissions are the sum of time-outs and sequence errors in `hw_counters/`; a counter that the device
    does not have counts as 0. Reading raises OSError if the port is gone.
    """
    sent = port / "counters" / "port_xmit_packets"
    again = [port / "hw_counters" / name for name in RESENT]

    def read() -> tuple[int, int]:
        return int(sent.read_text()), sum(int(c.read_text()) for c in again if c.exists())

    return read
