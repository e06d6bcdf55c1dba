# SPDX-License-Identifier: Apache-2.0
"""The inputs that wait for the next step of the control loop."""

from __future__ import annotations

from dataclasses import dataclass

from controller.live.messages import Input


@dataclass(frozen=True, slots=True)
class _Arrival:
    node: str
    channel: str
    order: int
    item: Input


class InputQueue:
    """Inputs of all nodes. Those of a node keep their order on each channel."""

    def __init__(self) -> None:
        self._arrivals: list[_Arrival] = []
        self._holding: set[tuple[str, str]] = set()
        self._order = 0

    def __bool__(self) -> bool:
        return bool(self._arrivals)

    def put(self, node: str, channel: str, item: Input) -> None:
        """Add an input."""
        self._order += 1
        self._holding.add((node, channel))
        self._arrivals.append(_Arrival(node, channel, self._order, item))

    def holds(self, node: str, channel: str) -> bool:
        """Whether an input of that channel of a node waits."""
        return (node, channel) in self._holding

    def take(self) -> tuple[Input, ...]:
        """All inputs, sorted by node, channel and order. Each is returned once."""
        arrivals, self._arrivals = self._arrivals, []
        self._holding.clear()
        return tuple(a.item for a in sorted(arrivals, key=lambda a: (a.node, a.channel, a.order)))
