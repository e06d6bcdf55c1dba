# SPDX-License-Identifier: Apache-2.0
"""The planner: composes a policy's mechanisms into a plan, and puts plans into words."""

from controller.planner.compose import POLICIES, PlanInput, plan
from controller.planner.words import diff, explain

__all__ = ["POLICIES", "PlanInput", "diff", "explain", "plan"]
