# SPDX-License-Identifier: Apache-2.0
"""Where each flow of a GPU training job goes, which job goes first, and when each job sends.

This module is the public Python API (docs/python-api.md). A name is imported when it is first used, so
`import polyrhythm` alone loads nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.interleave.slot_schedule import JobSlot, SlotSchedule
    from controller.interleave.timing import Timing, TimingProblem
    from controller.model import (
        Flow,
        FlowPlan,
        Job,
        JobPlan,
        LinkPlan,
        Phase,
        Plan,
        PolicyReference,
        Profile,
        QueuePair,
    )
    from controller.planner import POLICIES, PlanInput, Policy, PolicyError, diff, explain, plan, policy_named
    from controller.priority.crux import RankedJob
    from controller.priority.protocol import LevelProblem, Levels, Priority, RankingProblem
    from controller.routing.protocol import LEFT_TO_HASH, LeftToHash, Routes, Routing, RoutingProblem
    from polyrhythm.api import (
        SimulatedJob,
        SimulationResult,
        load_scenario,
        plan_scenario,
        run_scenario,
        scenario_workload,
        simulate,
    )
    from polyrhythm.run.comparison import Comparison, PolicyResult, RivalResult, ScenarioResult
    from polyrhythm.run.figures import JobFigures
    from polyrhythm.run.processes import RunError
    from polyrhythm.scenario import Scenario
    from polyrhythm_files import ConfigError
    from polyrhythm_job import polyrhythm_job
    from sim.cluster import JobRequest
    from sim.shape import PhaseShape, Shape
    from sim.state import FabricFailure
    from topo.files import load_topology
    from topo.generate import explicit, leaf_spine, three_tier
    from topo.graph import Tier, Topology

_MODULE_OF = {
    "JobSlot": "controller.interleave.slot_schedule",
    "SlotSchedule": "controller.interleave.slot_schedule",
    "Timing": "controller.interleave.timing",
    "TimingProblem": "controller.interleave.timing",
    "Flow": "controller.model",
    "FlowPlan": "controller.model",
    "Job": "controller.model",
    "JobPlan": "controller.model",
    "LinkPlan": "controller.model",
    "Phase": "controller.model",
    "Plan": "controller.model",
    "PolicyReference": "controller.model",
    "Profile": "controller.model",
    "QueuePair": "controller.model",
    "POLICIES": "controller.planner",
    "PlanInput": "controller.planner",
    "Policy": "controller.planner",
    "PolicyError": "controller.planner",
    "diff": "controller.planner",
    "explain": "controller.planner",
    "plan": "controller.planner",
    "policy_named": "controller.planner",
    "RankedJob": "controller.priority.crux",
    "LevelProblem": "controller.priority.protocol",
    "Levels": "controller.priority.protocol",
    "Priority": "controller.priority.protocol",
    "RankingProblem": "controller.priority.protocol",
    "LEFT_TO_HASH": "controller.routing.protocol",
    "LeftToHash": "controller.routing.protocol",
    "Routes": "controller.routing.protocol",
    "Routing": "controller.routing.protocol",
    "RoutingProblem": "controller.routing.protocol",
    "SimulatedJob": "polyrhythm.api",
    "SimulationResult": "polyrhythm.api",
    "load_scenario": "polyrhythm.api",
    "plan_scenario": "polyrhythm.api",
    "run_scenario": "polyrhythm.api",
    "scenario_workload": "polyrhythm.api",
    "simulate": "polyrhythm.api",
    "Comparison": "polyrhythm.run.comparison",
    "PolicyResult": "polyrhythm.run.comparison",
    "RivalResult": "polyrhythm.run.comparison",
    "ScenarioResult": "polyrhythm.run.comparison",
    "JobFigures": "polyrhythm.run.figures",
    "RunError": "polyrhythm.run.processes",
    "Scenario": "polyrhythm.scenario",
    "ConfigError": "polyrhythm_files",
    "polyrhythm_job": "polyrhythm_job",
    "JobRequest": "sim.cluster",
    "PhaseShape": "sim.shape",
    "Shape": "sim.shape",
    "FabricFailure": "sim.state",
    "load_topology": "topo.files",
    "explicit": "topo.generate",
    "leaf_spine": "topo.generate",
    "three_tier": "topo.generate",
    "Tier": "topo.graph",
    "Topology": "topo.graph",
}

__all__ = [
    "LEFT_TO_HASH",
    "POLICIES",
    "Comparison",
    "ConfigError",
    "FabricFailure",
    "Flow",
    "FlowPlan",
    "Job",
    "JobFigures",
    "JobPlan",
    "JobRequest",
    "JobSlot",
    "LeftToHash",
    "LevelProblem",
    "Levels",
    "LinkPlan",
    "Phase",
    "PhaseShape",
    "Plan",
    "PlanInput",
    "Policy",
    "PolicyError",
    "PolicyReference",
    "PolicyResult",
    "Priority",
    "Profile",
    "QueuePair",
    "RankedJob",
    "RankingProblem",
    "RivalResult",
    "Routes",
    "Routing",
    "RoutingProblem",
    "RunError",
    "Scenario",
    "ScenarioResult",
    "Shape",
    "SimulatedJob",
    "SimulationResult",
    "SlotSchedule",
    "Tier",
    "Timing",
    "TimingProblem",
    "Topology",
    "diff",
    "explain",
    "explicit",
    "leaf_spine",
    "load_scenario",
    "load_topology",
    "plan",
    "plan_scenario",
    "policy_named",
    "polyrhythm_job",
    "run_scenario",
    "scenario_workload",
    "simulate",
    "three_tier",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'polyrhythm' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
