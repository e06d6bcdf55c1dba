# SPDX-License-Identifier: Apache-2.0
"""The agents of a host's NICs, one on each rail, behind the host's one session with the controller."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from controller.wire import agent_pb2 as pb
from hostagent.agent import Agent

log = logging.getLogger(__name__)


class Rails:
    """The agents of one host, by the names of their NICs in the fabric's description.

    What happens to the session happens to all of them; a message of the controller goes to the agent of the
    NIC that it names, and to the first one if it names none.
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self.agents: Mapping[str, Agent] = {agent.host: agent for agent in agents}
        self._first = next(iter(self.agents.values()))

    @property
    def connected(self) -> bool:
        """Whether there is a session."""
        return self._first.connected

    @property
    def welcomed(self) -> bool:
        """Whether the controller has accepted every NIC."""
        return all(agent.welcomed for agent in self.agents.values())

    @property
    def clock_poll_ns(self) -> int:
        """How often an agent asks for the time, at the latest."""
        return max(agent.clock_poll_ns for agent in self.agents.values())

    def of_flow(self, flow: str) -> Agent:
        """The agent of the NIC that a flow leaves by: "job/SRC>DST" names it, other names leave by the
        first."""
        source = flow.partition("/")[2].partition(">")[0]
        return self.agents.get(source, self._first)

    def session_up(self, *, complete: bool = True) -> None:
        """A session is open: each agent sends its Hello. `complete`: see Agent."""
        for agent in self.agents.values():
            agent.session_up(complete=complete)

    def session_lost(self) -> None:
        """The session has ended."""
        for agent in self.agents.values():
            agent.session_lost()

    def list_workers(self) -> None:
        """Each agent tells the controller which workers its NIC has."""
        for agent in self.agents.values():
            agent.list_workers()

    def on_message(self, message: pb.ControllerMessage, arrived_ns: int | None = None) -> None:
        """Handle a message of the controller. Raises ValueError, and changes nothing, for an illegal one."""
        agent = self.agents.get(message.host, self._first)
        if message.host and agent.host != message.host:
            raise ValueError(f"a message for {message.host:.200}; legal: {', '.join(self.agents)}")
        agent.on_message(message, arrived_ns)
