# SPDX-License-Identifier: Apache-2.0
"""Messages and collectives as flows with barriers. Each method takes the tasks to wait for and returns its
last barrier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from controller.wire.collectives import Collective, rounds
from controller.wire.traffic import flow_name
from sim.task_graph import TaskGraphBuilder, TaskGraphError

Message = tuple[str, str, float]
"""Sender, receiver, and bytes of payload."""


@dataclass(frozen=True, slots=True)
class Transport:
    """How a collective's messages travel: `qps` queue pairs per pair of endpoints share the bits evenly,
    `limit` bit/s caps each pair of endpoints, `overhead` is bits on the wire per bit of payload."""

    qps: int = 1
    limit: float = np.inf
    overhead: float = 1.0


class Collectives:
    """Adds a job's collectives to its program; `job` prefixes the names of flows ("job/src>dst")."""

    def __init__(self, builder: TaskGraphBuilder, job: str, transport: Transport | None = None) -> None:
        self._builder = builder
        self._job = job
        self._transport = transport or Transport()

    def collective(
        self,
        after: Iterable[int],
        what: Collective,
        members: Sequence[str],
        size: float,
        *,
        fused: bool = False,
    ) -> int:
        """A collective of `size` bytes over these hosts, round by round, and all wait after each.

        `fused` makes one step of all rounds, with the same bytes (long traces).
        """
        if size < 0:
            raise TaskGraphError(f"job {self._job}: a message of {size} bytes")
        steps: list[list[Message]] = []
        for r in rounds(what, range(len(members)), size, members):
            carried = r.size * r.times / r.parts if fused else r.message_bytes
            step = [(members[a], members[b], carried) for a, b in r.pairs]
            steps += [step] if fused else [step] * r.times
        return self.steps(after, [[m for step in steps for m in step]] if fused else steps)

    def steps(self, after: Iterable[int], steps: Sequence[Sequence[Message]]) -> int:
        """One step after another, with a barrier behind each."""
        transport, builder = self._transport, self._builder
        if transport.qps < 1:
            raise TaskGraphError(f"job {self._job}: {transport.qps} QPs; it takes at least one")
        # A pair that occurs twice in a step (two GPUs of a host) has two sets of queue pairs.
        channels: dict[tuple[str, str, int], list[int]] = {}
        last = builder.barrier(after)
        for step in steps:
            flows: list[int] = []
            seen: Counter[tuple[str, str]] = Counter()
            for src, dst, size in step:
                pair = src, dst
                key = (*pair, seen[pair])
                seen[pair] += 1
                if key not in channels:
                    first = key[2] * transport.qps
                    channels[key] = [
                        builder.channel(*pair, flow_name(self._job, *pair, first + qp))
                        for qp in range(transport.qps)
                    ]
                bits = size * 8 * transport.overhead / transport.qps
                flows += [
                    builder.flow([last], channel, bits, transport.limit / transport.qps)
                    for channel in channels[key]
                ]
            if flows:
                last = builder.barrier(flows)
        return last
