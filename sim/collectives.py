# SPDX-License-Identifier: Apache-2.0
"""Collectives as flows with barriers. Each method takes the tasks to wait for, returns its last barrier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sim.task_graph import TaskGraphBuilder, TaskGraphError


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

    def ring(self, after: Iterable[int], members: Sequence[str], size: float, *, fused: bool = False) -> int:
        """Ring all-reduce of `size` bytes: 2 (N - 1) steps, in each every member sends size / N to the
        next and all wait. `fused` makes one step of all, with the same bytes (long traces)."""
        n = len(members)
        pairs = [(members[i], members[(i + 1) % n]) for i in range(n)] if n > 1 else []
        steps = 2 * (n - 1)
        if fused:
            return self.steps(after, [pairs], size * steps / max(n, 1))
        return self.steps(after, [pairs] * steps, size / max(n, 1))

    def tree(self, after: Iterable[int], members: Sequence[str], size: float) -> int:
        """Binary-tree all-reduce: reduce level by level to members[0], then broadcast back down."""
        levels: list[list[tuple[str, str]]] = []
        first = 0
        while 2 * first + 1 < len(members):
            children = range(2 * first + 1, min(len(members), 4 * first + 3))
            levels.append([(members[c], members[(c - 1) // 2]) for c in children])
            first = 2 * first + 1
        down = [[(parent, child) for child, parent in level] for level in levels]
        return self.steps(after, [*reversed(levels), *down], size)

    def all_to_all(self, after: Iterable[int], members: Sequence[str], size: float) -> int:
        """Every member sends size / N bytes to every other: N - 1 rounds of a rotation, all at once."""
        n = len(members)
        pairs = [(members[i], members[(i + k) % n]) for k in range(1, n) for i in range(n)]
        return self.steps(after, [pairs], size / max(n, 1))

    def steps(self, after: Iterable[int], steps: Sequence[Sequence[tuple[str, str]]], size: float) -> int:
        """One step after another, with a barrier behind each: `size` bytes for each pair of a step."""
        if size < 0:
            raise TaskGraphError(f"job {self._job}: a message of {size} bytes")
        transport, builder = self._transport, self._builder
        if transport.qps < 1:
            raise TaskGraphError(f"job {self._job}: {transport.qps} QPs; it takes at least one")
        # A pair that occurs twice in a step (two GPUs of a host) has two sets of queue pairs.
        channels: dict[tuple[str, str, int], list[int]] = {}
        last = builder.barrier(after)
        bits = size * 8 * transport.overhead / transport.qps
        for step in steps:
            flows: list[int] = []
            seen: Counter[tuple[str, str]] = Counter()
            for pair in step:
                key = (*pair, seen[pair])
                seen[pair] += 1
                if key not in channels:
                    first = key[2] * transport.qps
                    channels[key] = [
                        builder.channel(*pair, self.flow_name(*pair, first + qp))
                        for qp in range(transport.qps)
                    ]
                flows += [
                    builder.flow([last], channel, bits, transport.limit / transport.qps)
                    for channel in channels[key]
                ]
            if flows:
                last = builder.barrier(flows)
        return last

    def flow_name(self, src: str, dst: str, qp: int) -> str:
        """The planner's name of a queue pair."""
        return f"{self._job}/{src}>{dst}" + (f"#{qp}" if qp else "")
