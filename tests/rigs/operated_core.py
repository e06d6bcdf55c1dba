# SPDX-License-Identifier: Apache-2.0
"""The REST API's operations on a core without switches, agents and processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fake_source import TOPOLOGY

from controller.agents.translate import WelcomeTerms
from controller.live.core import Core
from controller.live.settings import CoreSettings
from controller.model.traffic import TRAFFIC_CLASSES
from controller.northbound.operations import Operations
from controller.planner import POLICIES
from controller.process.draining import RunningDrains
from controller.process.policy_choice import RunningPolicy
from controller.process.requested_jobs import RunningJobs


class Here:
    """A worker in this process."""

    async def run(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)


@dataclass
class Agents:
    """The terms that new sessions are told."""

    terms: WelcomeTerms


def operated_core() -> tuple[Core, Operations]:
    """A core on the fabric of fake_source, and the operations on it. They take effect at once."""
    core = Core(CoreSettings(TOPOLOGY, POLICIES["polyrhythm"], 1, verify=False, elephant_bytes=0))
    agents = Agents(WelcomeTerms("polyrhythm", TRAFFIC_CLASSES, 0))
    return core, Operations(
        drains=RunningDrains(core, core.handle, Here()),
        policy=RunningPolicy(core, core.handle, agents),
        jobs=RunningJobs(core, core.handle),
    )
