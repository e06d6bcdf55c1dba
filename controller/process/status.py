# SPDX-License-Identifier: Apache-2.0
"""The controller's own state as its health checks see it, collected from where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from controller.agents.server import AgentServer
from controller.live.alarms import SilentAgents
from controller.northbound.health import NotReady, Place, Readiness
from controller.northbound.metrics import ControllerCounts
from controller.process.control_loop import ControlLoop
from controller.southbound.fleet import SwitchFleet
from controller.wire.log_lines import lines_left_out
from topo.graph import Topology

STALLED_S = 10.0
"""A step of the control loop on the host's clock that takes longer makes no progress. Chosen: far above the
longest pause of a busy machine."""


class ControllerStatus:
    """The `MetricsSource` and `Surroundings` of a running controller. Use it on the controller's event loop
    only.

    `agents_needed`: how many hosts need a session of their agent, None: all. `store_failure` says why the
    store does not work, empty while it does or if there is none; `stored`: there is one. `place`: this
    controller's among several.
    """

    def __init__(
        self,
        topology: Topology,
        control_loop: ControlLoop,
        fleet: SwitchFleet,
        agents: AgentServer,
        *,
        agents_needed: int | None = None,
        store_failure: Callable[[], str] = str,
        stored: bool = True,
        place: Callable[[], Place] = Place,
    ) -> None:
        self._hosts = tuple(host.name for host in topology.hosts)
        self._control_loop = control_loop
        self._fleet = fleet
        self._agents = agents
        count = len(self._hosts)
        self._agents_needed = count if agents_needed is None else min(agents_needed, count)
        self._store_failure = store_failure
        self._stored = stored
        self._place = place

    def stalled(self) -> str:
        """Why the controller makes no progress; empty: it does. Fabric time may stand still."""
        step_s = self._control_loop.progress.step_s
        return f"a step of the control loop has run for {step_s:.0f} s" if step_s >= STALLED_S else ""

    def readiness(self) -> Readiness:
        """What is not ready now."""
        not_ready = tuple(self._missing())
        if not not_ready:
            # Who has this answer asks for jobs and plans, perhaps before the first view is due.
            self._control_loop.outdate_views()
        return Readiness(
            not_ready=not_ready,
            switches=len(self._fleet.clients),
            hosts=len(self._hosts),
            agents_needed=self._agents_needed,
            place=self._place(),
        )

    def silent_agents(self) -> SilentAgents | None:
        """The hosts that miss an agent; None: enough have one."""
        hosts, needed = self._without_agent(), self._agents_needed
        return SilentAgents(hosts, needed) if len(self._hosts) - len(hosts) < needed else None

    def _without_agent(self) -> list[str]:
        connected = self._agents.connected
        return [host for host in self._hosts if host not in connected]

    def history_off(self) -> str:
        """Why nothing is stored; empty: it is."""
        return self._store_failure() if self._stored else "it was started without --state"

    def plan_failure(self) -> str:
        """Why the last plan could not be made; empty: it was."""
        return self._control_loop.progress.plan_failure

    def counts(self) -> ControllerCounts:
        """What was counted since the start."""
        progress, fleet, agents = self._control_loop.progress, self._fleet, self._agents
        return ControllerCounts(
            sessions_lost=fleet.sessions_lost,
            refused_updates=fleet.refused_updates,
            corrected_updates=fleet.corrected_updates,
            agents=len(agents.connected),
            agent_sessions=agents.sessions_begun,
            agent_refusals=agents.refusals,
            flow_answers=agents.answers.durations,
            plans=progress.plans,
            writes=progress.writes,
            jobs=progress.jobs,
            pauses=progress.pauses,
            plan_failures=progress.plan_failures,
            step_s=progress.step_s,
            log_lines_left_out=lines_left_out(),
        )

    def _missing(self) -> Iterator[NotReady]:
        if failure := self._store_failure():
            yield NotReady("store", "state", failure)
        if failure := self._control_loop.progress.plan_failure:
            yield NotReady("plan", "next", failure)
        for name, why in self._fleet.not_ready().items():
            yield NotReady("switch", name, why)
        for host in self._without_agent():
            yield NotReady("agent", host, "its agent has no session")
