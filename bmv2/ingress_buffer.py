# SPDX-License-Identifier: Apache-2.0
"""The buffer of a switch for lossless priorities: what each port received on holds, and when it is full.

It decides when the neighbour at a port has to pause a priority. How the neighbour learns of it (priority flow
control, IEEE 802.1Qbb) is not its subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LosslessProfile:
    """The lossless priorities (numbers of queues), and the thresholds of each port received on and priority,
    in bytes of frames as received.

    Above `xoff_bytes` the neighbour has to pause; at `xon_bytes` or less it may go on. `headroom_bytes` take
    what still arrives after that decision. What exceeds both is lost.
    """

    priorities: frozenset[int]
    xoff_bytes: int
    xon_bytes: int
    headroom_bytes: int


class Held:
    """What one port received on holds of one priority. `peak` is the most that it held, `drops` the packets
    that did not fit, `paused` whether its neighbour has to pause.
    """

    __slots__ = ("bytes", "drops", "paused", "peak")

    def __init__(self) -> None:
        self.bytes = self.peak = self.drops = 0
        self.paused = False


class IngressBuffer:
    """Counts the bytes that wait in a switch by the port that they were received on and their priority.

    `changed(port, priority, paused)` is called when the neighbour at a port has to pause or may go on.
    `arriving` is the port of the frame that the pipeline processes now, None for one that came by no cable.
    """

    def __init__(self, profile: LosslessProfile, changed: Callable[[int, int, bool], None]) -> None:
        self.profile = profile
        self.arriving: int | None = None
        self._changed = changed
        self._held: dict[tuple[int, int], Held] = {}

    @property
    def held(self) -> Mapping[tuple[int, int], Held]:
        """What waits, by (port received on, priority)."""
        return self._held

    def admit(self, port: int, priority: int, size: int) -> bool:
        """Whether a packet of `size` bytes fits. If so, it counts until `release`."""
        held = self._held.get((port, priority))
        if held is None:
            held = self._held[port, priority] = Held()
        after = held.bytes + size
        if after > self.profile.xoff_bytes + self.profile.headroom_bytes:
            held.drops += 1
            return False
        held.bytes = after
        held.peak = max(held.peak, after)
        if after > self.profile.xoff_bytes and not held.paused:
            held.paused = True
            self._changed(port, priority, True)
        return True

    def release(self, port: int, priority: int, size: int) -> None:
        """A packet that `admit` took has left, or was lost."""
        held = self._held[port, priority]
        held.bytes -= size
        if held.paused and held.bytes <= self.profile.xon_bytes:
            held.paused = False
            self._changed(port, priority, False)

    def paused(self, port: int) -> Iterable[int]:
        """The priorities that the neighbour at a port has to pause now."""
        return sorted(priority for (own, priority), held in self._held.items() if own == port and held.paused)
