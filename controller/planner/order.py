# SPDX-License-Identifier: Apache-2.0
"""Who first: the priority level of every job, from CRUX's order and who still meets whom."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from controller.model import TRAFFIC_CLASSES
from controller.planner.demand import Demands
from controller.planner.rhythm import Rhythms
from controller.priority.compress import Compression, compress
from controller.priority.crux import Ranked, contention


@dataclass(frozen=True)
class Order:
    """The levels of one planning run; `ranked` is CRUX's order, the most urgent job first."""

    demands: Demands
    ranked: tuple[Ranked, ...]
    rhythms: Rhythms

    @cached_property
    def compression(self) -> Compression:
        """The order pressed into the switches' queues."""
        edges = contention(self.ranked, self.rhythms.contending)
        levels = min(self.demands.inputs.policy.levels, len(TRAFFIC_CLASSES.levels))
        names = [r.name for r in self.ranked]
        return compress(names, edges, levels, seed=self.demands.inputs.seed)

    def level(self, ranked: Ranked) -> int:
        """The level of a job; jobs that send nothing get the lowest."""
        if self.demands.inputs.policy.priority == "equal":
            return TRAFFIC_CLASSES.levels.index(TRAFFIC_CLASSES.equal)
        if ranked.intensity is None:
            return min(self.demands.inputs.policy.levels, len(TRAFFIC_CLASSES.levels)) - 1
        return self.compression.level[ranked.name]
