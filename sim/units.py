# SPDX-License-Identifier: Apache-2.0
"""The clock of the simulator: whole picoseconds in 64 bits. It lasts 106 days and never drifts."""

from __future__ import annotations

PS_PER_NS = 1_000
PS_PER_US = 1_000_000
PS_PER_MS = 1_000_000_000
PS_PER_S = 1_000_000_000_000
NEVER = (1 << 63) - 1
"""Later than every time that the clock can show, in ps."""

CLASSES = 8
"""Strict priority classes, 0 served first: 7 minus the queue id of the switches."""


def seconds(ps: int) -> float:
    """A time in seconds."""
    return ps / PS_PER_S
