# SPDX-License-Identifier: Apache-2.0
"""Jobs for the tests of the loop of time and space, and the loop on its own."""

from __future__ import annotations

from controller.model import Flow, Job, Phase, Profile
from controller.planner import PlanInput
from controller.planner.demand import Demands
from controller.planner.joint import Joint
from controller.planner.priority_stage import PriorityStage, method_of
from controller.planner.routing_stage import RoutingStage
from controller.planner.time_shifts import TimeShifts
from controller.priority.methods import Setting

MS, RATE = 1_000_000, 25_000_000


def job(name: str, hosts: list[str], period: int, up: int, gpus: int = 2) -> Job:
    pairs = [(a, hosts[(i + 1) % len(hosts)]) for i, a in enumerate(hosts)]
    flows = tuple(Flow(f"{name}/{a}>{b}", name, a, b, RATE * up // 8000) for a, b in pairs)
    profile = Profile(period * MS, (Phase(0, up * MS, RATE),))
    return Job(name, "model", gpus, tuple(hosts), profile, 1e12 * (period - up) * gpus, flows)


def joint(inputs: PlanInput) -> Joint:
    demands = Demands(inputs)
    space = RoutingStage(demands)
    ranked = method_of(inputs.policy).rank(
        demands.link_jobs(space.links_of), demands.rates, Setting(seed=inputs.seed)
    )
    rhythms = TimeShifts(demands, space.shared, tuple(r.name for r in ranked))
    return Joint(space, rhythms, PriorityStage(demands, ranked, rhythms))
