# SPDX-License-Identifier: Apache-2.0
"""Who first: the priority level of every job, from the policy's order and who still meets whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from controller.model import TRAFFIC_CLASSES, Policy
from controller.planner.demand import Demands
from controller.planner.rhythm import Rhythms
from controller.priority.crux import Ranked
from controller.priority.methods import METHODS, Method, Setting


def method_of(policy: Policy) -> Method:
    """How a policy orders jobs; CRUX's order where all have the same level, for whoever goes by order."""
    return METHODS[policy.priority if policy.priority != "equal" else "crux"]


@dataclass(frozen=True)
class Order:
    """The levels of one planning run; `ranked` is the order, the most urgent job first.

    `given` levels are taken as they are; `why` says why they are.
    """

    demands: Demands
    ranked: tuple[Ranked, ...]
    rhythms: Rhythms
    given: Mapping[str, int] = field(default_factory=dict)
    why: str = ""

    @cached_property
    def levels(self) -> Mapping[str, int]:
        """The level of every job, 0 the highest; jobs that send nothing get the lowest."""
        x = self.demands.inputs
        if x.policy.priority == "equal":
            return dict.fromkeys(self.demands.jobs, TRAFFIC_CLASSES.levels.index(TRAFFIC_CLASSES.equal))
        count = min(x.policy.levels, len(TRAFFIC_CLASSES.levels))
        if not x.policy.compress:
            count = max(1, len(self.ranked))
        setting = Setting(levels=count, seed=x.seed, previous=self._previous)
        placed = method_of(x.policy).place(self.ranked, self.rhythms.contending, setting).level
        return {**placed, **self.given}

    @cached_property
    def _previous(self) -> Mapping[str, int] | None:
        """The levels in force, which hysteresis keeps where a change gains little; None where there are
        none, or another policy made them."""
        x = self.demands.inputs
        if x.previous is None or x.previous.policy != x.policy:
            return None
        return {j.job: j.level for j in x.previous.jobs.values() if j.intensity is not None}
