# SPDX-License-Identifier: Apache-2.0
"""CRUX's pre-emption of two jobs in seconds: the reference for the fluid model and the correction factor."""

from __future__ import annotations

from dataclasses import dataclass

from controller.priority import crux
from controller.priority.crux import NS, Contender, IterationTimes


@dataclass(frozen=True, slots=True)
class Use:
    """Seconds of a window in which a job sends, and in which it computes."""

    traffic_s: float
    compute_s: float


def preempt(high: Contender, low: Contender, horizon_s: float) -> tuple[Use, Use]:
    """The use of `horizon_s` seconds by each of two jobs on one link, `high` before `low`."""
    both = crux.preempt(IterationTimes.of(high), IterationTimes.of(low), round(horizon_s * NS))
    high_use, low_use = (Use(traffic / NS, compute / NS) for traffic, compute in both)
    return high_use, low_use
