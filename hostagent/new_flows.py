# SPDX-License-Identifier: Apache-2.0
"""The new-flow procedure (routing paper, 3.5.4): threshold, request, port, send.

A flow below the controller's threshold goes by ECMP at once. Any other is asked about, and waits for the
answer at most the agent's deadline; then it goes by ECMP, and an answer that comes later moves it. When
answer after answer is late, flows are asked about but wait no more, until the controller is quick again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from hostagent.agent import Agent
from hostagent.assignments import Pin
from hostagent.loop import AgentLoop, Timer

log = logging.getLogger(__name__)

_DEAF_AFTER = 3
"""Late answers in a row after which nobody waits for the controller."""


@dataclass(frozen=True, slots=True)
class FlowPlacement:
    """Where a flow goes. `by`: controller, known (told before), mouse (below the threshold), deadline (no
    answer in time), late (the controller is late all the time) or alone (no controller)."""

    source_port: int
    dscp: int
    by: str


class NewFlows:
    """Answers each new flow of this host once; all on the loop's thread."""

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
        """A new flow of `size` bytes: `then(answer)` is called once, now or within the deadline."""
        agent = self._agent
        pin = agent.pins.get(flow)
        if size < agent.marking.elephant_bytes:
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
            if self._late >= _DEAF_AFTER:
                self._ecmp(flow, "late", then)
                return
            timer = self._loop.timer(agent.deadline_ns, self._overdue, flow)
            self._waiting.setdefault(flow, []).append((then, timer))

    def end(self, flow: str) -> None:
        """A flow is over: what was told of it, or will be, is forgotten."""
        self._live.discard(flow)
        self._forget(flow)

    def _answered(self, flow: str, pin: Pin) -> None:
        asked = self._pending.pop(flow, None)
        if asked is not None and self._loop.now - asked <= self._agent.deadline_ns:
            self._hear()
        for then, timer in self._waiting.pop(flow, ()):
            timer.cancel()
            self._pinned(flow, pin, "controller", then)
        self._forget(flow)

    def _forget(self, flow: str) -> None:
        """Keep nothing of a flow that is over: the controller goes on to tell where its plan has it."""
        if flow not in self._live and flow not in self._agent.queue_pairs():
            self._agent.pins.pop(flow, None)

    def _overdue(self, flow: str) -> None:
        if flow in self._waiting:
            self._late += 1
            if self._late == _DEAF_AFTER:
                log.warning("the controller is late: flows go by ECMP at once until it is quick again")
        for then, timer in self._waiting.pop(flow, ()):
            timer.cancel()
            self._ecmp(flow, "deadline", then)

    def _hear(self) -> None:
        if self._late >= _DEAF_AFTER:
            log.info("the controller answers again")
        self._late = 0

    def _session(self, up: bool) -> None:
        """A new session answers nothing that the last was asked."""
        self._late = 0
        self._pending.clear()
        for flow in list(self._waiting):
            for then, timer in self._waiting.pop(flow):
                timer.cancel()
                if up:
                    self.ask(flow, self._agent.marking.elephant_bytes, then)
                else:
                    self._ecmp(flow, "alone", then)

    def _pinned(self, flow: str, pin: Pin, by: str, then: Callable[[FlowPlacement], None]) -> None:
        self._say(FlowPlacement(self._agent.port_of(flow, pin), pin.dscp, by), then)

    def _ecmp(self, flow: str, by: str, then: Callable[[FlowPlacement], None]) -> None:
        marking = self._agent.marking
        dscp = marking.mice_dscp if by == "mouse" else marking.equal_dscp
        self._say(FlowPlacement(self._agent.source_port(flow), dscp, by), then)

    def _say(self, answer: FlowPlacement, then: Callable[[FlowPlacement], None]) -> None:
        self.counts[answer.by] = self.counts.get(answer.by, 0) + 1
        then(answer)
