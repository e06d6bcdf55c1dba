# SPDX-License-Identifier: Apache-2.0
"""The interface between the agent and a NIC, for every driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NicCounters:
    """Sums over queue pairs. `bytes_acked`: payload sent and acknowledged; `bytes_received`: payload that
    arrived in order; `wire_bytes`: whole frames sent; `ecn_marks`: packets that arrived with CE set.
    """

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
    """The sending end of a reliable connection. `latency_ns`: the last measured round trip, 0: unknown."""

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
        """Use another source port and DSCP from the next packet on that is sent with nothing in flight.

        What the NIC cannot change stays as it is.
        """

    def set_rate_cap(self, rate_bps: int) -> None:
        """Never send faster than `rate_bps` on the wire (0: no cap), whatever the cap of a message is."""

    def close(self) -> None:
        """Close the connection. Incomplete messages are dropped without a call of `on_complete`."""


class ReceiveQueue(Protocol):
    """The receiving end of a reliable connection."""

    flow: str
    packets: int
    bytes: int
    ecn_marks: int
    cnps_sent: int

    def close(self) -> None:
        """Close the connection. Packets that still arrive for it are dropped."""


class NicDriver(Protocol):
    """A NIC that can pin flows.

    `pinning` and `dscp` are reported in Hello. `pinning`: verbs, shim, udp, emulated, or none (the NIC
    chooses source ports itself). `dscp`: qp, or fixed (an open queue pair keeps its first DSCP).
    `sees_flows`: whether the counters, round trips and source ports of its queue pairs are known. `mltcp`:
    whether `set_sender` has an effect.
    """

    pinning: str
    dscp: str
    sees_flows: bool
    mltcp: bool

    def open_qp(self, flow: str, dst_ip: str, source_port: int, dscp: int) -> SendQueue:
        """Open a sending queue pair for `flow`; the far end calls `listen` for it, earlier or soon.

        The queue pair shows the source port that it got: another one than `source_port` where `pinning` is
        none. Raises ValueError for a flow that is open already, or an illegal port or DSCP.
        """

    def listen(self, flow: str, src_ip: str, on_receive: Callable[[ReceiveQueue, int], None]) -> ReceiveQueue:
        """Accept `flow` from `src_ip`. `on_receive(queue, n)` is called when n bytes have arrived in order.

        Replaces an earlier receiving end of the same flow.
        """

    def set_traffic_classes(self, cnp_dscp: int, ack_dscp: int, level_dscp: Sequence[int]) -> None:
        """Use these DSCPs for congestion notifications and acknowledgements, and send data in the strict
        order of these levels, the highest first, from now on. Other DSCPs come last.
        """

    def set_sender(self, job: str, sender: str) -> None:
        """Use this congestion control (controller.wire.senders.SENDERS) for a job's present and later queue
        pairs.

        A NIC with a single congestion control ignores it.
        """

    def counters(self, job: str = "") -> NicCounters:
        """Sums over the queue pairs of one job (flows named "job/..."), or of all jobs; closed ones are
        included.
        """
