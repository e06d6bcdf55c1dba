# SPDX-License-Identifier: Apache-2.0
"""Queue pairs that other processes own: the agent says where they go, and somebody else makes them.

With the shim the saying is the port map; with verbs it is the answer to the training process, which moves its
own queue pairs; with none it is nothing, and all flows go by ECMP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from hostagent.clock import EventClock
from hostagent.nic.driver import NicCounters, ReceiveQueue
from hostagent.nic.port_map import write_port_map
from hostagent.nic.requester import check_pin

log = logging.getLogger(__name__)

_GATHER_NS = 1_000_000
"""Changes of the map are gathered for so long: a plan moves many flows at once."""


class ExternalSendQueue:
    """One flow's queue pairs in another process. What they send is not seen from here."""

    def __init__(self, nic: ExternalNic, flow: str, dst_ip: str, source_port: int, dscp: int) -> None:
        self.flow = flow
        self.dst_ip = dst_ip
        self.source_port = source_port
        self.dscp = dscp
        self.rate_cap_bps = 0
        self.packets = self.wire_bytes = self.bytes_acked = self.retransmits = self.latency_ns = 0
        self._nic = nic

    def post(self, size: int, on_complete: Callable[[], None], rate_bps: int = 0) -> None:
        """Not possible: raises ValueError."""
        raise ValueError(f"flow {self.flow}: its process sends, not the agent (driver {self._nic.pinning})")

    def repin(self, source_port: int, dscp: int) -> None:
        """Say where the flow goes from now on. A queue pair's DSCP is fixed when it is made."""
        check_pin(self.flow, source_port, dscp)
        if source_port != self.source_port:
            self.source_port = source_port
            self._nic.changed()
            if self._nic.on_move is not None:
                self._nic.on_move(self)

    def set_rate_cap(self, rate_bps: int) -> None:
        """Kept for who asks; no verb caps the rate of a reliable queue pair of another process."""
        self.rate_cap_bps = rate_bps

    def close(self) -> None:
        """The flow is over."""
        self._nic.forget(self)


class ExternalReceiveQueue:
    """The far end of a flow, in another process."""

    packets = bytes = ecn_marks = cnps_sent = 0

    def __init__(self, flow: str) -> None:
        self.flow = flow

    def close(self) -> None:
        """Nothing is held."""


class ExternalNic:
    """The driver of a host whose training processes own their queue pairs.

    `pinning` says how they are pinned: shim (by `port_map`), verbs (by their owners, who hear of each move
    by `on_move`) or none.
    """

    dscp = "fixed"
    sees_flows = False
    mltcp = False

    def __init__(self, pinning: str, ip: str, clock: EventClock, port_map: Path | None = None) -> None:
        self.pinning = pinning
        self._ip = ip
        self._clock = clock
        self._port_map = port_map
        self.on_move: Callable[[ExternalSendQueue], None] | None = None
        self._queue_pairs: dict[str, ExternalSendQueue] = {}
        self._due = False
        self.changed()

    def open_qp(self, flow: str, dst_ip: str, source_port: int, dscp: int) -> ExternalSendQueue:
        """A flow begins; see NicDriver."""
        check_pin(flow, source_port, dscp)
        if flow in self._queue_pairs:
            raise ValueError(f"flow {flow} is open already; flows need names of their own")
        made = self._queue_pairs[flow] = ExternalSendQueue(self, flow, dst_ip, source_port, dscp)
        self.changed()
        return made

    def listen(
        self, flow: str, src_ip: str, on_receive: Callable[[ReceiveQueue, int], None]
    ) -> ExternalReceiveQueue:
        """A flow towards this host begins; nothing is seen of it."""
        return ExternalReceiveQueue(flow)

    def set_control_dscp(self, cnp_dscp: int, ack_dscp: int) -> None:
        """The NIC's own settings hold (mlnx_qos, cma_roce_tos and the like)."""

    def set_sender(self, job: str, sender: str) -> None:
        """The NIC's own congestion control holds."""

    def counters(self, job: str = "") -> NicCounters:
        """Nothing is seen from here."""
        return NicCounters()

    def forget(self, queue_pair: ExternalSendQueue) -> None:
        """A flow is over."""
        if self._queue_pairs.get(queue_pair.flow) is queue_pair:
            del self._queue_pairs[queue_pair.flow]
            self.changed()

    def changed(self) -> None:
        """Write the map soon."""
        if self._port_map is not None and not self._due:
            self._due = True
            self._clock.call_at(self._clock.now + _GATHER_NS, self.write)

    def write(self) -> None:
        """Write the map now: the ports of each pair of addresses, in the order of their flows' names."""
        self._due = False
        if self._port_map is None:
            return
        entries: dict[tuple[str, str], tuple[int, ...]] = {}
        for _, queue_pair in sorted(self._queue_pairs.items()):
            pair = (self._ip, queue_pair.dst_ip)
            entries[pair] = (*entries.get(pair, ()), queue_pair.source_port)
        try:
            write_port_map(self._port_map, entries)
        except OSError as error:
            log.error("port map %s cannot be written: %s", self._port_map, error.strerror)

    def close(self) -> None:
        """The agent ends: the map stays, for the flows go on."""
