# SPDX-License-Identifier: Apache-2.0
"""The tables by which switches turn a slice of the hash into a choice, and what flows need from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.routing.fabric import Ints
from controller.routing.forwarding import BUCKETS
from topo.graph import HashSpec


@dataclass(frozen=True, slots=True)
class Stages:
    """The hash decisions that the packets of each flow meet on their path.

    At hop h flow f meets the bucket table stage[f, h]; -1 means that the switch has one choice only. The
    table must give want[f, h]. `tables` (tables, 256) maps a slice of the hash to a choice; `shifts`
    (tables,) is the lowest bit of the slice. `stage` and `want` have the shape (flows, hops).
    """

    tables: Ints
    shifts: Ints
    stage: Ints
    want: Ints

    def take(self, index: NDArray[np.intp]) -> Stages:
        """Those of the flows at these indices."""
        return Stages(self.tables, self.shifts, self.stage[index], self.want[index])


class BucketTables:
    """Bucket tables by tier and members. A table gets its number when it is added first."""

    def __init__(self, spec: HashSpec) -> None:
        self._spec = spec
        self._number: dict[tuple[int, tuple[int, ...]], int] = {}

    def add(self, tier: int, members: Iterable[int]) -> int:
        """The number of the table in which bucket b leads to members[b mod n]; -1 for a single member."""
        key = tier, tuple(members)
        return -1 if len(set(key[1])) < 2 else self._number.setdefault(key, len(self._number))

    def stages(self, stage: Ints, want: Ints) -> Stages:
        """All tables, together with what each flow needs from them."""
        buckets = np.arange(BUCKETS)
        tables = [np.array(m, dtype=np.int32)[buckets % len(m)] for _, m in self._number]
        shifts = [self._spec.slices[tier] for tier, _ in self._number]
        return Stages(
            np.array(tables, dtype=np.int32).reshape(-1, BUCKETS),
            np.array(shifts, dtype=np.int32),
            stage,
            want,
        )
