# SPDX-License-Identifier: Apache-2.0
"""What the agent asks of a NIC, whatever drives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

SENDERS = ("dcqcn", "mltcp")
"""The congestion controls that a plan or a job can choose for its senders."""


@dataclass(frozen=True, slots=True)
class NicCounters:
    """Sums over queue pairs. `bytes_acked` is goodput sent, `bytes_received` goodput arrived in order,
    `wire_bytes` whole frames sent; `ecn_marks` are packets that arrived with CE set."""

    packets: int = 0
    wire_bytes: int = 0
    bytes_acked: int = 0
    retransmits: int = 0
    timeouts: int = 0
    cnps_received: int = 0
    packets_received: int = 0
    bytes_received: int = 0
    ecn_marks: int = 0
    cnps_sent: int = 0


class SendQueue(Protocol):
    """The sending end of a reliable connection."""

    flow: str
    source_port: int
    dscp: int
    packets: int
    wire_bytes: int
    bytes_acked: int
    retransmits: int
    latency_ns: int
    """The round trip last measured; 0: not known."""

    def post(self, size: int, on_complete: Callable[[], None], rate_bps: int = 0) -> None:
        """Send a message of `size` bytes (> 0), at most at `rate_bps` on the wire (0: no cap).

        `on_complete` is called when the whole message is acknowledged. Messages go in order.
        """

    def repin(self, source_port: int, dscp: int) -> None:
        """Take another source port and DSCP at the next packet at which nothing is in flight.

        What the NIC cannot change stays as it is.
        """

    def set_rate_cap(self, rate_bps: int) -> None:
        """Never send faster than `rate_bps` on the wire, whatever a message allows (0: no cap)."""

    def close(self) -> None:
        """Forget the connection; messages not yet complete are dropped without a call."""


class ReceiveQueue(Protocol):
    """The receiving end of a reliable connection."""

    flow: str
    packets: int
    bytes: int
    ecn_marks: int
    cnps_sent: int

    def close(self) -> None:
        """Forget the connection; what still arrives for it is dropped."""


class NicDriver(Protocol):
    """A NIC that can pin flows. `pinning` and `dscp` are what Hello reports: verbs | shim | udp | emulated |
    none (it chooses source ports itself), and qp | fixed (an open QP keeps its first DSCP); `sees_flows` says
    whether its queue pairs' counters, round trips and own choice of ports are known, `mltcp` whether it does
    as `set_sender` says."""

    pinning: str
    dscp: str
    sees_flows: bool
    mltcp: bool

    def open_qp(self, flow: str, dst_ip: str, source_port: int, dscp: int) -> SendQueue:
        """Connect a sending queue pair for `flow`, whose far end has called `listen` or soon will.

        The queue pair tells which port it has, which is another one where `pinning` is none.

        Raises ValueError for a flow that is open already, or a port or DSCP out of range.
        """

    def listen(self, flow: str, src_ip: str, on_receive: Callable[[ReceiveQueue, int], None]) -> ReceiveQueue:
        """Accept `flow` from `src_ip`; `on_receive(queue, n)` is called as n bytes arrive in order.

        Replaces an earlier receiving end of the same flow.
        """

    def set_control_dscp(self, cnp_dscp: int, ack_dscp: int) -> None:
        """The DSCP of the congestion notifications and acknowledgements sent from now on."""

    def set_sender(self, job: str, sender: str) -> None:
        """The congestion control of a job's queue pairs, now and later: "dcqcn" or "mltcp".

        A driver whose NIC has one congestion control for all leaves it at that.
        """

    def counters(self, job: str = "") -> NicCounters:
        """Sums over the queue pairs of one job (flows named "job/..."), or over all; closed ones count."""
