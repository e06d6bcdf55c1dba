# SPDX-License-Identifier: Apache-2.0
"""Jobs for the tests of the joint search, and the search on its own."""

from __future__ import annotations

from controller.model import Flow, Job, Phase, Profile
from controller.planner import PlanInput
from controller.planner.candidate import build
from controller.planner.demand import Demands
from controller.planner.joint_search import JointSearch

MS, RATE = 1_000_000, 25_000_000


def job(name: str, hosts: list[str], period: int, up: int, gpus: int = 2) -> Job:
    pairs = [(a, hosts[(i + 1) % len(hosts)]) for i, a in enumerate(hosts)]
    flows = tuple(Flow(f"{name}/{a}>{b}", name, a, b, RATE * up // 8000) for a, b in pairs)
    profile = Profile(period * MS, (Phase(0, up * MS, RATE),))
    return Job(name, "model", gpus, tuple(hosts), profile, 1e12 * (period - up) * gpus, flows)


def joint(inputs: PlanInput) -> JointSearch:
    return JointSearch(build(Demands(inputs)))
