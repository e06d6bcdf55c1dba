# SPDX-License-Identifier: Apache-2.0
"""The planner: computes plans with the objects of a policy, and explains plans as text."""

from controller.planner.compose import plan
from controller.planner.first_plan import first_plan
from controller.planner.inputs import PIN_CAPACITY, PlanInput
from controller.planner.plan_text import diff, explain
from controller.planner.policy import Policy, PolicyError
from controller.planner.registry import POLICIES, policy_named

__all__ = [
    "PIN_CAPACITY",
    "POLICIES",
    "PlanInput",
    "Policy",
    "PolicyError",
    "diff",
    "explain",
    "first_plan",
    "plan",
    "policy_named",
]
