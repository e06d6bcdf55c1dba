# SPDX-License-Identifier: Apache-2.0
"""The procedure for a new flow (routing paper, 3.5.4): threshold, request, source port, send.

A flow below the controller's threshold goes by ECMP at once. For any other flow the agent asks the
controller, and the flow waits for the answer until the agent's deadline. Then it goes by ECMP, and an answer
that comes later moves it. After several late answers in a row the agent still asks, but flows no longer wait,
until an answer is in time again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from hostagent.agent import Agent
from hostagent.assignments import Pin
from hostagent.loop import AgentLoop, Timer
from polyrhythm_job.protocol import FlowPlacement

log = logging.getLogger(__name__)

_LATE_ANSWERS = 3
"""Late answers in a row after which flows no longer wait for the controller. Chosen: one may be chance."""


class NewFlows:
    """Gives each new flow of this host its placement, once. All calls are on the loop's thread.

    `counts`: how many placements were given for each reason, see FlowPlacement.by.
    """

    def __init__(self, agent: Agent, loop: AgentLoop) -> None:
        self._agent = agent
        self._loop = loop
        self._waiting: dict[str, list[tuple[Callable[[FlowPlacement], None], Timer]]] = {}
        self._pending: dict[str, int] = {}
        self._live: set[str] = set()
        self._late = 0
        self.counts: dict[str, int] = {}
        agent.on_answer = self._answered
        agent.on_session = self._session

    def ask(self, flow: str, size: int, then: Callable[[FlowPlacement], None]) -> None:
        """A new flow of `size` bytes: `then(placement)` is called once, now or within the deadline."""
        agent = self._agent
        pin = agent.pins.get(flow)
        if size < agent.settings.elephant_bytes:
            self._ecmp(flow, "mouse", then)
        elif pin is not None:
            self._pinned(flow, pin, "known", then)
        elif not agent.welcomed:
            self._ecmp(flow, "alone", then)
        else:
            self._live.add(flow)
            if flow not in self._pending:
                self._pending[flow] = self._loop.now
                agent.request(flow)
            if self._late >= _LATE_ANSWERS:
                self._ecmp(flow, "late", then)
                return
            timer = self._loop.timer(agent.deadline_ns, self._overdue, flow)
            self._waiting.setdefault(flow, []).append((then, timer))

    def end(self, flow: str) -> None:
        """A flow has ended: forget its pin, and what the controller may still say about it."""
        self._live.discard(flow)
        self._pending.pop(flow, None)
        for _, timer in self._waiting.pop(flow, ()):
            timer.cancel()
        self._forget(flow)

    def _answered(self, flow: str, pin: Pin) -> None:
        asked = self._pending.pop(flow, None)
        if asked is not None and self._loop.now - asked <= self._agent.deadline_ns:
            self._answer_in_time()
        for then, timer in self._waiting.pop(flow, ()):
            timer.cancel()
            self._pinned(flow, pin, "controller", then)
        self._forget(flow)

    def _forget(self, flow: str) -> None:
        """Drop the pin of a flow that has ended: the controller still sends the plan's port for it."""
        if flow not in self._live and flow not in self._agent.queue_pairs():
            self._agent.pins.pop(flow, None)

    def _overdue(self, flow: str) -> None:
        if flow in self._waiting:
            self._late += 1
            if self._late == _LATE_ANSWERS:
                log.warning(
                    "the controller's last %d answers were late; flows go by ECMP until one is in time",
                    _LATE_ANSWERS,
                )
        for then, timer in self._waiting.pop(flow, ()):
            timer.cancel()
            self._ecmp(flow, "deadline", then)

    def _answer_in_time(self) -> None:
        if self._late >= _LATE_ANSWERS:
            log.info("the controller answers in time again")
        self._late = 0

    def _session(self, up: bool) -> None:
        """A session has begun or ended. A new session does not answer the requests of an earlier one."""
        self._late = 0
        self._pending.clear()
        for flow in list(self._waiting):
            for then, timer in self._waiting.pop(flow):
                timer.cancel()
                if up:
                    self.ask(flow, self._agent.settings.elephant_bytes, then)
                else:
                    self._ecmp(flow, "alone", then)

    def _pinned(self, flow: str, pin: Pin, by: str, then: Callable[[FlowPlacement], None]) -> None:
        self._give(FlowPlacement(self._agent.port_of(flow, pin), pin.dscp, by), then)

    def _ecmp(self, flow: str, by: str, then: Callable[[FlowPlacement], None]) -> None:
        settings = self._agent.settings
        dscp = settings.mice_dscp if by == "mouse" else settings.equal_dscp
        self._give(FlowPlacement(self._agent.source_port(flow), dscp, by), then)

    def _give(self, placement: FlowPlacement, then: Callable[[FlowPlacement], None]) -> None:
        self.counts[placement.by] = self.counts.get(placement.by, 0) + 1
        then(placement)
