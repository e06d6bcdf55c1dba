# SPDX-License-Identifier: Apache-2.0
"""A worker on this host as the agent keeps it, with its flows."""

from __future__ import annotations

from collections.abc import Mapping

from controller.wire.limits import MAX_AGENT_MESSAGE_BYTES
from hostagent.messages import job_join
from hostagent.nic.driver import ReceiveQueue, SendQueue
from hostagent.worker import Worker

_ENVELOPE_BYTES = 1024
"""What a message takes beside the description of a job: sequence number, time and tags. Chosen: far more."""


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


def check_worker(
    worker: Worker,
    host: str,
    addresses: Mapping[str, str],
    present: Mapping[tuple[str, int], WorkerState],
) -> None:
    """Check a new worker of `host`, of which the workers `present` run, by job and rank. `addresses`: of the
    fabric's hosts.

    Raises:
        ValueError: it belongs to another host, it runs already, one of its flows is another worker's or leads
            to a host without an address, or its job's description is longer than a message may be.
    """
    spec = worker.spec
    if spec.hosts[worker.rank] != host:
        raise ValueError(f"job {spec.name}: rank {worker.rank} belongs to {spec.hosts[worker.rank]}")
    if (spec.name, worker.rank) in present:
        raise ValueError(f"job {spec.name}: rank {worker.rank} runs already on {host}")
    for other in {host for pair in spec.ring for host in pair} - addresses.keys():
        raise ValueError(f"job {spec.name}: host {other} has no address")
    own = {flow for flow, src, dst in spec.flows() if host in (src, dst)}
    for (job, rank), state in present.items():
        # Flows of jobs with different names have different names.
        if job == spec.name and (shared := own & state.sizes.keys()):
            raise ValueError(
                f"job {job}: flow {min(shared)} is open on {host} for its rank {rank}; legal: one rank a host"
            )
    size = job_join(spec, worker.rank).ByteSize()
    if size >= MAX_AGENT_MESSAGE_BYTES - _ENVELOPE_BYTES:
        raise ValueError(
            f"job {spec.name}: its description, with {len(spec.ring):,} flows, takes {size:,} bytes; legal: "
            f"less than {MAX_AGENT_MESSAGE_BYTES - _ENVELOPE_BYTES:,}"
        )
