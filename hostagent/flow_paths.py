# SPDX-License-Identifier: Apache-2.0
"""What the controller has told an agent of the ports of its NIC's TCP and UDP connections."""

from __future__ import annotations

from collections.abc import Callable

from controller.wire import agent_pb2 as pb
from hostagent.nic.roce import ip_bytes
from hostagent.socket_map import FlowPath


class FlowPathTable:
    """The paths of flows by name and protocol. `protocols`: those of which the shim steers connections.

    `on_change(anew)` is called after each change; with `anew` a session has begun.
    """

    def __init__(self, protocols: tuple[int, ...]) -> None:
        self.protocols = protocols
        self.known: dict[tuple[str, int], FlowPath] = {}
        self.on_change: Callable[[bool], None] | None = None

    def take(self, told: pb.ConnectionPath) -> None:
        """The controller has told the path of a flow. Raises ValueError if it is not legal."""
        conditions = tuple((c.source_mask, c.dest_mask, c.odd) for c in told.conditions)
        masks = [mask for source, dest, _ in conditions for mask in (source, dest)]
        if told.protocol not in self.protocols or told.dscp >= 1 << 6 or any(m >= 1 << 16 for m in masks):
            raise ValueError(f"flow {told.flow:.200}: protocol, DSCP or masks of its ports are out of range")
        if told.ended:
            self.known.pop((told.flow, told.protocol), None)
            self.changed()
            return
        for address in (told.src_ip, told.dst_ip):
            ip_bytes(address)
        self.known[told.flow, told.protocol] = FlowPath(
            told.flow, told.job, told.src_ip, told.dst_ip, told.index, told.protocol, told.dscp,
            conditions if told.known else None,
        )  # fmt: skip
        self.changed()

    def forget(self, job: str) -> None:
        """A job has ended on this host."""
        for key in [key for key, path in self.known.items() if path.job == job]:
            del self.known[key]
        self.changed()

    def changed(self, *, anew: bool = False) -> None:
        """Say so. `anew`: a session has begun, and the controller knows no connection of this host."""
        if self.on_change is not None:
            self.on_change(anew)
