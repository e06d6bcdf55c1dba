# SPDX-License-Identifier: Apache-2.0
"""Who first: the priority level of every job, from the policy's order and who still meets whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from controller.model import TRAFFIC_CLASSES, Policy
from controller.planner.demand import Demands
from controller.planner.time_shifts import TimeShifts
from controller.priority.crux import RankedJob
from controller.priority.fairness import FairAssignment, fair_assignment
from controller.priority.jobs import LinkJob
from controller.priority.methods import METHODS, Method, Setting

MOST_FAIR = 32
"""Jobs that contend, up to which a cap on losses is kept: every assignment tried is played in time."""


def method_of(policy: Policy) -> Method:
    """How a policy orders jobs; CRUX's order where all have the same level, for whoever goes by order."""
    return METHODS[policy.priority if policy.priority != "equal" else "crux"]


@dataclass(frozen=True)
class PriorityStage:
    """The levels of one planning run; `ranked` is the order, the most urgent job first.

    `given` levels are taken as they are, and so are the congestion controls of `senders`; `why` says why they
    are. `link_jobs` are the jobs on their links.
    """

    demands: Demands
    ranked: tuple[RankedJob, ...]
    rhythms: TimeShifts
    link_jobs: tuple[LinkJob, ...] = ()
    given: Mapping[str, int] = field(default_factory=dict)
    why: str = ""
    senders: Mapping[str, str] = field(default_factory=dict)

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
        return {**placed, **self.decided}

    @property
    def decided(self) -> Mapping[str, int]:
        """The levels that do not follow from the order alone."""
        return {**(self.fairly.assignment.level if self.fairly is not None else {}), **self.given}

    @cached_property
    def fairly(self) -> FairAssignment | None:
        """Those who contend, with the policy's cap on what each may lose; None without one, where nobody
        contends, and where more do than can be played through in a moment."""
        x = self.demands.inputs
        contending = {name for pair in self.rhythms.contending for name in pair}
        capped = x.policy.loss_cap is not None and x.policy.priority == "crux" and x.policy.compress
        if x.policy.loss_cap is None or not capped or not contending or len(contending) > MOST_FAIR:
            return None
        jobs = [j for j in self.link_jobs if j.name in contending]
        levels = min(x.policy.levels, len(TRAFFIC_CLASSES.levels))
        setting = Setting(levels=levels, seed=x.seed, previous=self._previous)
        return fair_assignment(jobs, self.demands.rates, x.policy.loss_cap, setting)

    @cached_property
    def reason(self) -> str:
        """What has decided the levels besides the order."""
        x, fairly = self.demands.inputs, self.fairly
        if x.policy.loss_cap is None or x.policy.priority != "crux" or not self.rhythms.contending:
            return self.why
        if fairly is None:
            return f"no cap on losses: more than {MOST_FAIR} jobs contend"
        return (
            f"cap on losses {x.policy.loss_cap:.0%} {'met' if fairly.met else 'not met'}: "
            f"the worst is expected to be {fairly.outcome.worst:.0%}"
        )

    @cached_property
    def _previous(self) -> Mapping[str, int] | None:
        """The levels in force, which hysteresis keeps where a change gains little; None where there are
        none, or another policy made them."""
        x = self.demands.inputs
        if x.previous is None or x.previous.policy != x.policy:
            return None
        return {j.job: j.level for j in x.previous.jobs.values() if j.intensity is not None}
