# SPDX-License-Identifier: Apache-2.0
"""How the control loop runs, as the fabric's description and the command line say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How the control loop runs.

    `poll_always`: read counters also while no client watches. Every `read_back_ns` the tables of all switches
    are read back and corrected.
    """

    scenario: str
    poll_ns: int
    poll_always: bool
    read_back_ns: int
