# SPDX-License-Identifier: Apache-2.0
"""The REST API's operations on a core without switches, agents and processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fake_source import TOPOLOGY

from controller.agents.translate import WelcomeTerms
from controller.live.core import Core
from controller.live.plan_reasons import PlanReasons
from controller.live.recorder import Recorder
from controller.live.settings import CoreSettings
from controller.model.traffic import TRAFFIC_CLASSES
from controller.northbound.operations import Operations
from controller.planner import POLICIES, Policy
from controller.process.cable_orders import CableOrders
from controller.process.circles import RunningCircles
from controller.process.cutting import RunningCuts
from controller.process.draining import RunningDrains
from controller.process.measured_past import RunningHistory
from controller.process.placing import RunningPlacements
from controller.process.policy_choice import RunningPolicy
from controller.process.requested_jobs import RunningJobs
from controller.process.switch_tables import RunningTables
from controller.process.what_if import PresentFabric, RunningWhatIf, SimulatedUnder
from controller.southbound.artefacts import artefacts_dir
from controller.southbound.desired import EcnProfile
from controller.southbound.raw_calls import SessionError
from controller.southbound.table_writes import set_fabric


class Here:
    """A worker in this process."""

    async def run(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    async def run_timed(self, limit_s: float, function: Any, *arguments: Any) -> tuple[Any, float]:
        return function(*arguments), 0.0

    def close(self) -> None:
        pass


def alone(present: PresentFabric, policy: Policy) -> SimulatedUnder:
    """A simulator in which no job disturbs another."""
    periods = ((job.name, job.profile.period_ns / 1e6) for job in present.jobs)
    return SimulatedUnder(0.5, tuple((name, ms, ms, ms) for name, ms in periods))


@dataclass
class Agents:
    """The terms that new sessions are told."""

    terms: WelcomeTerms


class SilentSwitches:
    """Switches of which none answers."""

    clients = dict.fromkeys(TOPOLOGY.switch)

    async def read_tables(self, name: str) -> tuple[bytes, ...]:
        raise SessionError("no session")


class Obeyed(CableOrders):
    """Orders that leave at once."""

    async def ask(self, orders: Any, patience_s: float) -> None:
        pass


def operated_core() -> tuple[Core, Operations]:
    """A core on the fabric of fake_source, and the operations on it. They take effect at once."""
    core = Core(CoreSettings(TOPOLOGY, POLICIES["polyrhythm"], 1, verify=False, elephant_bytes=0))
    agents = Agents(WelcomeTerms("polyrhythm", TRAFFIC_CLASSES, 0))
    set_fabric(TOPOLOGY, EcnProfile(5, 50, 0.1), artefacts_dir())
    return core, Operations(
        placements=RunningPlacements(core, Here),
        drains=RunningDrains(core, core.handle, Here()),
        policy=RunningPolicy(core, core.handle, agents),
        jobs=RunningJobs(core, core.handle),
        circles=RunningCircles(core, Here()),
        tables=RunningTables(core, SilentSwitches(), Here()),
        history=RunningHistory(core, Recorder(TOPOLOGY), PlanReasons(core)),
        cuts=RunningCuts(TOPOLOGY, Obeyed()),
        what_if=RunningWhatIf(core, Recorder(TOPOLOGY), alone, Here),
    )
