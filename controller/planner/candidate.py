# SPDX-License-Identifier: Apache-2.0
"""A candidate is one complete decision for all jobs. The planner builds and evaluates candidates, and makes
the best one the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.planner.demand import Demands
from controller.planner.priority_stage import JobOrder, PriorityStage, assign_levels, rank_jobs
from controller.planner.routing_stage import RoutingStage, route_flows
from controller.planner.time_shifts import TimeShifts, shift_jobs


@dataclass(frozen=True, slots=True)
class Expected:
    """The mean iterations of a job in ns that the evaluator expects: under the candidate, and under plain
    ECMP. `floor_ns` is the longest one that the policy allows; None: any."""

    expected_ns: float
    ecmp_ns: float
    floor_ns: float | None


@dataclass(frozen=True)
class Candidate:
    """Paths, time-shifts, levels and senders that belong together.

    `senders` holds the congestion control of the jobs for which the search chose one. `reason` says how the
    search came to the candidate; "" where no search has looked at it. `expected` is by job; empty where the
    evaluator has not computed the candidate.
    """

    routing: RoutingStage
    shifts: TimeShifts
    priorities: PriorityStage
    senders: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    expected: Mapping[str, Expected] = field(default_factory=dict)

    @property
    def demands(self) -> Demands:
        """The inputs that the candidate was built for."""
        return self.routing.demands


@dataclass(frozen=True)
class PathsAndShifts:
    """A candidate that still lacks levels: paths, the order of the jobs, and slots."""

    routing: RoutingStage
    order: JobOrder
    shifts: TimeShifts

    def with_levels(self) -> Candidate:
        """The candidate with the levels that the policy's priority assigns.

        Raises:
            PolicyError: the priority failed, or its answer is not legal.
        """
        priorities = assign_levels(self.routing.demands, self.order, self.shifts)
        return Candidate(self.routing, self.shifts, priorities)


def build(demands: Demands, *, time_sharing: bool = True) -> PathsAndShifts:
    """Ask the policy's three objects one after another: paths, order, slots. `with_levels` completes it.

    `time_sharing`: see `route_flows`.

    Raises:
        PolicyError: one of the objects failed, or its answer is not legal.
    """
    routing = route_flows(demands, time_sharing=time_sharing)
    order = rank_jobs(demands, routing)
    return PathsAndShifts(routing, order, shift_jobs(demands, routing.shared, order.names))
