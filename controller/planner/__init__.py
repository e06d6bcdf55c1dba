# SPDX-License-Identifier: Apache-2.0
"""The planner: composes a policy's mechanisms into a plan, and puts plans into words."""

from controller.planner.compose import plan
from controller.planner.inputs import PIN_CAPACITY, POLICIES, PlanInput
from controller.planner.plan_text import diff, explain

__all__ = ["PIN_CAPACITY", "POLICIES", "PlanInput", "diff", "explain", "plan"]
