# SPDX-License-Identifier: Apache-2.0
"""Policies for the simulator: MLTCP for all jobs with the thesis' other shapes of F (CASSINI thesis, 1.2).

A live plan can only select "mltcp", for which the NICs have one shape. So these run in the simulator only.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.interleave.timing import OwnPace
from controller.planner.policy import Policy
from sim.mltcp import LINEAR, SENDER, SHAPES


@dataclass(frozen=True)
class ShapedMltcp(OwnPace):
    """Shifts no job; all senders send by MLTCP with the F called `shape` (`sim.mltcp.SHAPES`)."""

    sender: str = SENDER
    shape: str = LINEAR

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape not in SHAPES:
            raise ValueError(f"{self.shape!r} is no shape of MLTCP; legal: {', '.join(SHAPES)}")


def _policy(name: str, shape: str) -> Policy:
    return Policy(name, timing=ShapedMltcp(shape=shape), simulator_only=True)


SQUARE = _policy("mltcp-square", "1.75r^2+0.25")
INVERSE = _policy("mltcp-inverse", "1/(4-3.5r)")
CONCAVE = _policy("mltcp-concave", "-1.75r^2+3.5r+0.25")
FALLING = _policy("mltcp-falling", "2-1.75r")
FALLING_SQUARE = _policy("mltcp-falling-square", "2-1.75r^2")
