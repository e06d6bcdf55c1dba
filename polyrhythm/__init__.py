# SPDX-License-Identifier: Apache-2.0
"""Polyrhythm: where each flow of a training job goes, who goes first, and when each job talks.

The public import: `polyrhythm_job` for training code, the job API (`Job`, `Profile`, `Phase`, `Flow`), the
values of a plan and the planner (`plan`, `PlanInput`, `POLICIES`). Names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.model import Flow, FlowPlan, Job, JobPlan, LinkPlan, Phase, Plan, Policy, Profile
    from controller.planner import POLICIES, PlanInput, plan
    from hostagent.library import polyrhythm_job
    from topo.generate import explicit, leaf_spine
    from topo.graph import Topology

_HOMES = {
    **dict.fromkeys(
        ("Flow", "FlowPlan", "Job", "JobPlan", "LinkPlan", "Phase", "Plan", "Policy", "Profile"),
        "controller.model",
    ),
    **dict.fromkeys(("POLICIES", "PlanInput", "plan"), "controller.planner"),
    **dict.fromkeys(("explicit", "leaf_spine"), "topo.generate"),
    "Topology": "topo.graph",
    "polyrhythm_job": "hostagent.library",
}

__all__ = [
    "POLICIES",
    "Flow",
    "FlowPlan",
    "Job",
    "JobPlan",
    "LinkPlan",
    "Phase",
    "Plan",
    "PlanInput",
    "Policy",
    "Profile",
    "Topology",
    "explicit",
    "leaf_spine",
    "plan",
    "polyrhythm_job",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'polyrhythm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
