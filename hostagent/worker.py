# SPDX-License-Identifier: Apache-2.0
"""What the agent needs of a worker of a training job, emulated or real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hostagent.job import JobSpec, Schedule
from hostagent.nic.driver import ReceiveQueue, SendQueue

ReadFabricTime = Callable[[], tuple[int, int]]
"""The present fabric time as the host knows it, and how far off that may be, both in ns."""


class Worker(Protocol):
    """One worker: the emulated training loop, or a process that has joined through the agent's socket."""

    spec: JobSpec
    rank: int
    running: bool
    done: bool
    flops: float
    """Done by this worker's GPUs so far; 0: not known."""

    def open(self, out: Sequence[SendQueue], receive: Sequence[ReceiveQueue]) -> None:
        """The worker's flows are open."""

    def keep_time(self, fabric_time: ReadFabricTime) -> None:
        """Hold schedules by this idea of fabric time."""

    def set_schedule(self, schedule: Schedule) -> None:
        """When the job talks from now on."""

    def set_level(self, level: int) -> None:
        """The job's level in the plan, 0 the highest; hostagent.job.UNPLANNED: it has none."""

    def on_bytes(self, queue: ReceiveQueue, size: int) -> None:
        """Bytes of an incoming flow arrived."""
