# SPDX-License-Identifier: Apache-2.0
"""Routings that leave the choice of ports to the switches: packet by packet, or flowlet by flowlet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from controller.model.plan import Spreading
from controller.routing.protocol import LEFT_TO_HASH, LeftToHash, Routing, RoutingProblem

SPRAY_ORDERS: Mapping[str, str] = MappingProxyType({"turn": "spray_in_turn", "random": "spray_random"})
"""The orders of spraying, and the action of the table `spread` for each."""
MOVE_FLOWLETS = "move_flowlets"
"""The action of the table `spread` under which flows that have paused move."""
GAP_PACKETS = 128
"""A flow that paused for the time of so many packets on the slowest cable is taken for a new flowlet. Chosen:
paths differ by two queues of the ECN profile's Kmax, 60 packets each, and a gap must be longer than the
difference of the delays (Kandula et al. 2007, "Dynamic load balancing without packet reordering", 3)."""
PACKET_BITS = 8 * 1082
HALF_LIFE_OF_GAP = 80 / 500
"""CONGA's estimator halves its bytes every 80 us (tau = 160 us, alpha = 1/2) where its gap between flowlets
is 500 us (Alizadeh et al. 2014, 3.6)."""
_MOST_GAP_US = (1 << 32) - 1


class SpreadRouting(Routing):
    """A routing under which switches spread the packets of elephants over their ECMP groups."""

    @property
    def chooses_paths(self) -> bool:
        """No flow gets a path."""
        return False

    def route(self, problem: RoutingProblem) -> LeftToHash:
        """Left to the switches."""
        return LEFT_TO_HASH

    def spreading(self, slowest_bps: int) -> Spreading:
        """What switches do; `slowest_bps` is the rate of the slowest cable between switches."""
        raise NotImplementedError


@dataclass(frozen=True)
class Spray(SpreadRouting):
    """Every packet goes to another port: to the next one in turn, or to a random one.

    For NICs that take packets in any order. Others take every packet that overtakes for a loss.
    """

    order: str = "turn"

    def __post_init__(self) -> None:
        if self.order not in SPRAY_ORDERS:
            raise ValueError(f"order is {self.order!r}; legal: {', '.join(SPRAY_ORDERS)}")

    def spreading(self, slowest_bps: int) -> Spreading:
        """The same on every fabric."""
        return Spreading(SPRAY_ORDERS[self.order])


@dataclass(frozen=True)
class Flowlets(SpreadRouting):
    """A flow that has paused moves to the port that has sent the least: dynamic load balancing (DLB).

    `gap_us` is the shortest pause in microseconds, None: GAP_PACKETS on the slowest cable. The bytes of a
    port are halved every `half_life_us`, rounded to a power of two; None: HALF_LIFE_OF_GAP of the gap.
    """

    gap_us: int | None = None
    half_life_us: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("gap_us", self.gap_us), ("half_life_us", self.half_life_us)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and 1 <= value <= _MOST_GAP_US):
                raise ValueError(
                    f"{name} is {value!r}; legal: None, or a whole number from 1 to {_MOST_GAP_US}"
                )

    def spreading(self, slowest_bps: int) -> Spreading:
        """Gap and half-life for this rate."""
        gap = self.gap_us or min(_MOST_GAP_US, math.ceil(GAP_PACKETS * PACKET_BITS * 1e6 / slowest_bps))
        half_life = self.half_life_us or gap * HALF_LIFE_OF_GAP
        return Spreading(MOVE_FLOWLETS, gap, max(0, round(math.log2(half_life))))
