# SPDX-License-Identifier: Apache-2.0
"""A worker of a training job as the agent uses it, emulated or real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hostagent.job import JobSpec
from hostagent.nic.driver import ReceiveQueue, SendQueue
from polyrhythm_job.schedule import Schedule

ReadFabricTime = Callable[[], tuple[int, int]]
"""Gives the present fabric time as the host knows it, and the bound of its error, both in ns."""


class Worker(Protocol):
    """One worker: an emulated training loop, or a process that joined over the agent's socket.

    `running`: its flows are open; `done`: it has ended; `flops`: done by its GPUs so far, 0: unknown.
    """

    spec: JobSpec
    rank: int
    running: bool
    done: bool
    flops: float

    def open(self, out: Sequence[SendQueue], receive: Sequence[ReceiveQueue]) -> None:
        """Start: the worker's flows are open."""

    def keep_time(self, fabric_time: ReadFabricTime) -> None:
        """Use this fabric time for the job's slots."""

    def set_schedule(self, schedule: Schedule) -> None:
        """Use these slots from now on."""

    def set_level(self, level: int) -> None:
        """The job's level in the plan, 0 the highest; NO_LEVEL: it has none."""

    def on_bytes(self, queue: ReceiveQueue, size: int) -> None:
        """`size` bytes of an incoming flow have arrived."""
