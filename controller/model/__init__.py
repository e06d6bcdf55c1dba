# SPDX-License-Identifier: Apache-2.0
"""The domain's frozen values: what the controller knows, decides and shows."""

from controller.model.job import Flow, Job, Measurement, Phase, Profile
from controller.model.plan import FlowPlan, JobPlan, LinkPlan, Plan, Policy
from controller.model.traffic import TRAFFIC_CLASSES, TrafficClasses

__all__ = [
    "TRAFFIC_CLASSES",
    "Flow",
    "FlowPlan",
    "Job",
    "JobPlan",
    "LinkPlan",
    "Measurement",
    "Phase",
    "Plan",
    "Policy",
    "Profile",
    "TrafficClasses",
]
