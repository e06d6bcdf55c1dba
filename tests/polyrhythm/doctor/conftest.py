# SPDX-License-Identifier: Apache-2.0
"""The fixtures of agent_rig: an agent as a real process, and a controller's stand-in."""

from agent_rig import hub, start_agent

__all__ = ["hub", "start_agent"]
