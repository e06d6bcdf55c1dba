# SPDX-License-Identifier: Apache-2.0
"""What the queue pairs need of the NIC they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hostagent.clock import EventClock
from hostagent.nic.dcqcn import DcqcnProfile

if TYPE_CHECKING:
    from hostagent.nic.requester import Requester
    from hostagent.nic.responder import Responder


class NicPort(Protocol):
    """What a queue pair needs of the NIC it belongs to."""

    clock: EventClock
    rate_bps: int
    macs: bytes
    ip: bytes
    mtu: int
    payload: bytes
    profile: DcqcnProfile
    cnp_dscp: int
    ack_dscp: int

    def grant(self, qp: Requester, source_port: int, dscp: int) -> tuple[int, int]:
        """What an open `qp` takes of a new source port and DSCP."""

    def settle(self) -> None:
        """Build the packet whose serialisation has begun, before anything changes what comes next."""

    def activate(self, qp: Requester) -> None:
        """`qp` has something to send."""

    def kick(self) -> None:
        """Choose again what goes next, if no frame is on the wire."""

    def send_control(self, frame: bytes) -> None:
        """Send `frame` before all data."""

    def forget(self, qp: Requester | Responder) -> None:
        """`qp` is closed."""
