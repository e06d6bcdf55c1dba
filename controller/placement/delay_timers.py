# SPDX-License-Identifier: Apache-2.0
"""Delay timers: how long a job waits for GPUs that are closer together (Dally, IV-B2 and IV-B3).

All times are in leases, the time for which GPUs are given to a job.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from controller.placement.machines import NetworkTier

FLOORS = {NetworkTier.MACHINE: 6.0, NetworkTier.RACK: 12.0}
"""The shortest tuned timers in leases. The authors' code."""
_MACHINE_CAP = 0.8
"""The longest tuned timer for a machine, as a part of the history limit. The authors' code."""
_SIGMAS = 2.0
"""Algorithm 2: the timer is the mean wait plus two sample standard deviations."""
_RECORDED = 1.0
"""Waits below one lease are not recorded. The authors' code, not the paper."""


class DelayTimers(Protocol):
    """Says how long to wait for a tier, and learns from waits."""

    def timer(self, tier: NetworkTier, demand: int, now: float) -> float:
        """How long a job of `demand` GPUs waits for GPUs of one machine or one rack before it takes others;
        in leases from the start of its wait."""

    def accepted(self, tier: NetworkTier, demand: int, now: float, wait: float) -> None:
        """A job took an offer at this tier after `wait` leases."""


@dataclass(frozen=True)
class FixedTimers:
    """Timers that an operator has set, both from the start of the wait. Infinite: wait as long as needed."""

    machine: float
    rack: float

    def timer(self, tier: NetworkTier, demand: int, now: float) -> float:
        """The timer of the tier, whatever the demand."""
        return self.machine if tier == NetworkTier.MACHINE else self.rack

    def accepted(self, tier: NetworkTier, demand: int, now: float, wait: float) -> None:
        """Nothing is learnt."""


@dataclass
class TunedTimers:
    """The auto-tuner (Algorithm 2): waits of the last `history` leases, by tier and demand."""

    history: float
    _waits: dict[tuple[NetworkTier, int], deque[tuple[float, float]]] = field(default_factory=dict)

    def timer(self, tier: NetworkTier, demand: int, now: float) -> float:
        """Mean plus two standard deviations of the recorded waits, within the authors' bounds."""
        waits = [wait for _, wait in self._recent(tier, demand, now)]
        wanted = mean = sum(waits) / len(waits) if waits else 0.0
        if len(waits) > 1:
            wanted += _SIGMAS * math.sqrt(sum((w - mean) ** 2 for w in waits) / (len(waits) - 1))
        most = math.ceil(_MACHINE_CAP * self.history) if tier == NetworkTier.MACHINE else self.history
        return min(most, max(FLOORS[tier], wanted))

    def accepted(self, tier: NetworkTier, demand: int, now: float, wait: float) -> None:
        """Record the wait; nothing is recorded for the network tier, for which no job waits."""
        if tier != NetworkTier.NETWORK and wait >= _RECORDED:
            self._waits.setdefault((tier, demand), deque()).append((now, wait))

    def _recent(self, tier: NetworkTier, demand: int, now: float) -> deque[tuple[float, float]]:
        waits = self._waits.get((tier, demand), deque())
        while waits and waits[0][0] < now - self.history:
            waits.popleft()
        return waits
