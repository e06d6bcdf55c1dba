# SPDX-License-Identifier: Apache-2.0
"""What the agent needs of a worker of a training job, emulated or real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hostagent.job import JobSpec, Schedule
from hostagent.nic.driver import QueuePair, ReceiveQueue


class Worker(Protocol):
    """One worker: the emulated training loop, or a process that has joined through the agent's socket."""

    spec: JobSpec
    rank: int
    running: bool
    done: bool

    def open(self, out: Sequence[QueuePair], receive: Sequence[ReceiveQueue]) -> None:
        """The worker's flows are open."""

    def set_schedule(self, schedule: Schedule) -> None:
        """When the job talks from now on."""

    def on_bytes(self, queue: ReceiveQueue, size: int) -> None:
        """Bytes of an incoming flow arrived."""
