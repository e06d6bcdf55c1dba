# SPDX-License-Identifier: Apache-2.0
"""The iterations that the evaluator expects under plain ECMP: what a plan's losses are measured against."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import Choice, plain
from controller.planner.demand import Demands
from controller.planner.drawn_paths import drawn_ways
from controller.planner.search_instance import instance_of
from controller.routing.cable_links import Way
from controller.routing.paths import paths

DRAWS = 8
"""How many draws of source ports and start offsets are averaged. Chosen."""
LOW = 0.5
"""`EcmpLengths.low` is so many standard deviations of a draw below the mean. Chosen: the standard error of a
mean of four draws, about as many as an operator has seen. On 50 scenarios of the battery the mean exceeds
that of three draws on packets by up to 24 % in 97.5 of 100 jobs that ECMP slows down, this value by up to
15 %."""
_FIRST_SEED = 301
"""Seed of the first draw of offsets. Chosen: the search uses none of these seeds."""


@dataclass(frozen=True, slots=True)
class EcmpLengths:
    """The iteration of each job under plain ECMP in ns: the `mean` over draws, and what a mean of a few draws
    may well be, `low`."""

    mean: Mapping[str, float]
    low: Mapping[str, float]


@dataclass(frozen=True)
class EcmpReference:
    """The iterations of the jobs under plain ECMP: all jobs on one level, no slots, no MLTCP.

    It is the evaluator's mean over DRAWS draws of source ports and start offsets, each of `iterations`
    iterations of the longest job. `flows` names the elephants that have a path.
    """

    demands: Demands
    flows: tuple[str, ...]
    iterations: int

    def lengths(self) -> EcmpLengths:
        """The iteration of each job."""
        draws = np.array(
            [self._evaluator.lengths(c, self._effort(k))[0] for k, c in enumerate(self._choices)]
        )
        mean = draws.mean(axis=0)
        low = mean - LOW * draws.std(axis=0, ddof=1)
        names = [j.name for j in self._evaluator.instance.jobs]
        return EcmpLengths(
            dict(zip(names, mean.tolist(), strict=True)), dict(zip(names, low.tolist(), strict=True))
        )

    @property
    def cost(self) -> int:
        """About how much work of the evaluator it takes, from the first draw."""
        return DRAWS * self._evaluator.cost(self._choices[0], self._effort(0))

    def _effort(self, draw: int) -> Effort:
        return Effort((_FIRST_SEED + draw,), self.iterations)

    @cached_property
    def _ways(self) -> list[dict[str, Way]]:
        """The links of each flow, by draw."""
        return [_drawn(self.demands, self.flows, k) for k in range(DRAWS)]

    @cached_property
    def _candidates(self) -> Mapping[str, tuple[Way, ...]]:
        return {name: tuple(dict.fromkeys(draw[name] for draw in self._ways)) for name in self.flows}

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(instance_of(self.demands, self._candidates))

    @cached_property
    def _choices(self) -> list[Choice]:
        instance, of = self._evaluator.instance, self._candidates
        return [plain(instance, tuple(of[f].index(draw[f]) for f in self.flows)) for draw in self._ways]


def _drawn(demands: Demands, flows: tuple[str, ...], draw: int) -> dict[str, Way]:
    """The links of flows under one draw: by their source ports, or any paths where the hash is unknown."""
    x = demands.inputs
    found = dict(drawn_ways(demands, flows, x.seed + draw))
    for name in [name for name, way in found.items() if not way]:
        flow = demands.elephant[name]
        if every := paths(x.topology, demands.forwarding, flow.src, flow.dst):
            path = random.Random(zlib.crc32(name.encode()) * DRAWS + draw).choice(every)
            found[name] = demands.cable_links.way(path, None)
    return found
