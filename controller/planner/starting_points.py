# SPDX-License-Identifier: Apache-2.0
"""Plans of baseline policies for the same jobs. The search starts from them, so its result is never worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from controller.planner.candidate import build
from controller.planner.demand import Demands
from controller.planner.inputs import PlanInput
from controller.planner.policy import Policy
from controller.priority.priorities import Crux, Sincronia, Taccl, Varys
from controller.routing.cable_links import Way
from controller.routing.routings import LeastCongested


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """What a baseline policy decides: the links by flow where it chooses a path, and the level by job."""

    policy: str
    ways: Mapping[str, Way]
    levels: Mapping[str, int]


def baselines(policy: Policy) -> Iterator[Policy]:
    """Policies that choose paths or levels in another way than the search, and shift no job. They keep the
    number of levels and of moves that `policy` keeps."""
    levels, moves = policy.priority.levels, policy.routing.max_moves
    yield Policy("routing", LeastCongested(balance=True, max_moves=moves))
    yield Policy("crux", LeastCongested(order="intensity", max_moves=moves), Crux(levels=levels))
    yield Policy("taccl", LeastCongested(order="distance", max_moves=moves), Taccl(levels=levels))
    yield Policy("sincronia", priority=Sincronia(levels=levels))
    yield Policy("varys", priority=Varys(levels=levels))


def starting_points(inputs: PlanInput) -> Iterator[StartingPoint]:
    """The decision of each baseline for these inputs."""
    for policy in baselines(inputs.policy):
        candidate = build(Demands(replace(inputs, policy=policy))).with_levels()
        yield StartingPoint(policy.name, candidate.routing.ways, candidate.priorities.level)
