# SPDX-License-Identifier: Apache-2.0
"""What other policies would decide for the same jobs: plans that the loop must not be worse than."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from controller.planner.demand import Demands
from controller.planner.inputs import POLICIES, PlanInput
from controller.planner.priority_stage import PriorityStage, method_of
from controller.planner.routing_stage import RoutingStage
from controller.planner.time_shifts import TimeShifts
from controller.priority.methods import Setting
from controller.routing.paths import Path

RIVALS = ("routing", "crux", "taccl", "sincronia", "varys")
"""Those that choose paths or levels in another way than the loop's own stages; none holds jobs to rhythms."""


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """A policy's decision: the path by flow where it has one, and the level by job."""

    policy: str
    paths: Mapping[str, Path]
    levels: Mapping[str, int]


def starting_points(inputs: PlanInput) -> Iterator[StartingPoint]:
    """Each rival's decision, within the levels, moves and seed of the policy that asks."""
    own = inputs.policy
    for name in RIVALS:
        policy = replace(POLICIES[name], levels=own.levels, max_moves=own.max_moves)
        demands = Demands(replace(inputs, policy=policy))
        space = RoutingStage(demands)
        ranked = method_of(policy).rank(
            demands.link_jobs(space.links_of), demands.rates, Setting(seed=inputs.seed)
        )
        order = PriorityStage(
            demands, ranked, TimeShifts(demands, space.shared, tuple(r.name for r in ranked))
        )
        paths = {flow: a.path for flow, a in space.assignments.items() if a.path}
        yield StartingPoint(name, paths, order.levels)
