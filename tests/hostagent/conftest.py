# SPDX-License-Identifier: Apache-2.0
"""Agents as real processes, a controller's end of their sessions, and the compiled verbs shim."""

from agent_rig import addresses, hub, patient_library, short_deadline, start_agent
from shim_rig import built

__all__ = ["addresses", "built", "hub", "patient_library", "short_deadline", "start_agent"]
