# SPDX-License-Identifier: Apache-2.0
"""Queue pairs of other processes: the agent decides their source ports, and the other process sets them.

With the shim driver the agent writes the port map. With verbs it tells the training process, which moves its
own queue pairs. With sockets the flows are connections of TCP or UDP (`hostagent/connections.py`).
With none it does nothing, and all flows go by ECMP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from controller.wire.protocol import FIXED_DSCP, NEW_DSCP
from hostagent.nic.driver import NicCounters, ReceiveQueue
from hostagent.nic.port_map import PortMap, PortMapFile
from hostagent.nic.roce import check_pin


class ExternalSendQueue:
    """The queue pairs of one flow in another process. The agent does not see what they send."""

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
        """Publish a new source port of the flow. The DSCP of a queue pair is fixed when it is made."""
        check_pin(self.flow, source_port, dscp)
        if source_port != self.source_port:
            self.source_port = source_port
            self._nic.changed()
            if self._nic.on_move is not None:
                self._nic.on_move(self)

    def set_rate_cap(self, rate_bps: int) -> None:
        """Store the cap only: no verb caps the rate of another process's reliable queue pair."""
        self.rate_cap_bps = rate_bps

    def close(self) -> None:
        """The flow has ended."""
        self._nic.forget(self)


class ExternalReceiveQueue:
    """The receiving end of a flow, in another process."""

    packets = bytes = ecn_marks = cnps_sent = 0

    def __init__(self, flow: str) -> None:
        self.flow = flow

    def close(self) -> None:
        """Nothing to release."""


class ExternalNic:
    """The driver of a NIC of which the training processes own the queue pairs.

    `pinning` says how they are pinned: shim (through the host's `port_map`), verbs (by their processes, which
    receive new ports through `on_move`), sockets or none.
    """

    sees_flows = False
    mltcp = False

    def __init__(self, pinning: str, ip: str, port_map: PortMapFile | None = None) -> None:
        self.pinning = pinning
        # The DSCPs of connections are reported with their ports.
        self.dscp = NEW_DSCP if pinning == "sockets" else FIXED_DSCP
        self._ip = ip
        self._port_map = port_map
        self.on_move: Callable[[ExternalSendQueue], None] | None = None
        self._queue_pairs: dict[str, ExternalSendQueue] = {}
        if port_map is not None:
            port_map.add(self.source_ports)

    def open_qp(self, flow: str, dst_ip: str, source_port: int, dscp: int) -> ExternalSendQueue:
        """A flow begins; see NicDriver."""
        check_pin(flow, source_port, dscp)
        if flow in self._queue_pairs:
            raise ValueError(f"flow {flow} is open already; each flow needs its own name")
        made = self._queue_pairs[flow] = ExternalSendQueue(self, flow, dst_ip, source_port, dscp)
        self.changed()
        return made

    def listen(
        self, flow: str, src_ip: str, on_receive: Callable[[ReceiveQueue, int], None]
    ) -> ExternalReceiveQueue:
        """A flow to this host begins. The agent does not see what arrives."""
        return ExternalReceiveQueue(flow)

    def set_traffic_classes(self, cnp_dscp: int, ack_dscp: int, level_dscp: Sequence[int]) -> None:
        """No effect: the NIC has its own settings (mlnx_qos, cma_roce_tos)."""

    def set_sender(self, job: str, sender: str) -> None:
        """No effect: the NIC has its own congestion control."""

    def counters(self, job: str = "") -> NicCounters:
        """All zero: the agent does not see the flows."""
        return NicCounters()

    def forget(self, queue_pair: ExternalSendQueue) -> None:
        """A flow has ended."""
        if self._queue_pairs.get(queue_pair.flow) is queue_pair:
            del self._queue_pairs[queue_pair.flow]
            self.changed()

    def changed(self) -> None:
        """A queue pair has begun, ended or moved: write the port map soon."""
        if self._port_map is not None:
            self._port_map.changed()

    def source_ports(self) -> PortMap:
        """The ports for each pair of addresses, in the order of the flows' names."""
        entries: dict[tuple[str, str], tuple[int, ...]] = {}
        for _, queue_pair in sorted(self._queue_pairs.items()):
            pair = (self._ip, queue_pair.dst_ip)
            entries[pair] = (*entries.get(pair, ()), queue_pair.source_port)
        return entries

    def close(self) -> None:
        """The agent ends. The port map stays, because the flows go on."""
