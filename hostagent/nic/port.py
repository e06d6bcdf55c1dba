# SPDX-License-Identifier: Apache-2.0
"""The part of a NIC that its queue pairs use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hostagent.clock import EventClock
from hostagent.nic.dcqcn import DcqcnProfile

if TYPE_CHECKING:
    from hostagent.nic.requester import Requester
    from hostagent.nic.responder import Responder


class NicPort(Protocol):
    """The part of a NIC that its queue pairs use."""

    clock: EventClock
    rate_bps: int
    macs: bytes
    ip: bytes
    overhead: int
    mtu: int
    payload: bytes
    profile: DcqcnProfile
    cnp_dscp: int
    ack_dscp: int
    any_order: bool

    def grant(self, qp: Requester, source_port: int, dscp: int) -> tuple[int, int]:
        """The source port and DSCP that an open `qp` gets when it asks for these."""

    def settle(self) -> None:
        """Build the packet whose transmission has begun by now, before its queue pair changes."""

    def activate(self, qp: Requester) -> None:
        """`qp` has packets to send."""

    def new_level(self, qp: Requester) -> None:
        """The DSCP of `qp` has changed, and its level perhaps too."""

    def kick(self) -> None:
        """Choose again what is sent next, unless a frame is being sent."""

    def send_control(self, frame: bytes) -> None:
        """Send `frame` before all data."""

    def forget(self, qp: Requester | Responder) -> None:
        """`qp` is closed."""
