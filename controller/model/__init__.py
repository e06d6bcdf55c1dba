# SPDX-License-Identifier: Apache-2.0
"""Frozen values that all parts of the controller use: jobs, traffic classes, plans and views."""

from controller.model.job import Confidence, Flow, Job, Measurement, Phase, Profile
from controller.model.plan import (
    REALIGN,
    REALIGN_PCT,
    FlowPin,
    FlowPlan,
    FlowRemark,
    JobPlan,
    LinkPlan,
    Plan,
    PolicyReference,
    QueuePair,
)
from controller.model.traffic import TRAFFIC_CLASSES, TrafficClasses

__all__ = [
    "REALIGN",
    "REALIGN_PCT",
    "TRAFFIC_CLASSES",
    "Confidence",
    "Flow",
    "FlowPin",
    "FlowPlan",
    "FlowRemark",
    "Job",
    "JobPlan",
    "LinkPlan",
    "Measurement",
    "Phase",
    "Plan",
    "PolicyReference",
    "Profile",
    "QueuePair",
    "TrafficClasses",
]
