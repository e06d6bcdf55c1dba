# SPDX-License-Identifier: Apache-2.0
"""A worker on this host as the agent keeps it, with its flows."""

from __future__ import annotations

from collections.abc import Mapping

from hostagent.nic.driver import ReceiveQueue, SendQueue
from hostagent.worker import Worker


class WorkerState:
    """A worker of `host` and its flows.

    `sizes`: bytes of each flow of the job in an iteration. `waiting`: flow name -> destination of the flows
    not yet open. `asked`: the flows that the controller was asked about. `accepted`: the controller has
    stored the worker.
    """

    __slots__ = ("accepted", "asked", "joined", "out", "receive", "sizes", "waiting", "worker")

    def __init__(self, worker: Worker, host: str) -> None:
        self.worker = worker
        self.joined = False
        self.accepted = False
        self.sizes: Mapping[str, int] = worker.spec.flow_bytes()
        self.waiting = {name: dst for name, src, dst in worker.spec.flows() if src == host}
        self.asked: set[str] = set()
        self.out: dict[str, SendQueue] = {}
        self.receive: list[ReceiveQueue] = []

    def read(self) -> Mapping[str, int]:
        """Bytes that each flow of the worker has put on the wire so far."""
        return {flow: qp.wire_bytes for flow, qp in self.out.items()}

    def close_receiving_ends(self) -> None:
        """Close the receiving ends of the worker's flows."""
        for queue in self.receive:
            queue.close()
