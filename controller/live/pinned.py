# SPDX-License-Identifier: Apache-2.0
"""Which of the plan's pinned paths are known to be taken, and who asked to know."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from controller.live.messages import Effect, ProbeAsked, SendProbeResult
from controller.live.verify import ProbeOutcome, Verifier
from controller.model.plan import Plan
from topo.graph import Topology

log = logging.getLogger(__name__)


class PinnedPaths:
    """The verification of one plan after another. Every method gives what is to be sent.

    `verified` and `unverified` hold the names of flows whose verification is over, `strayed` those of the
    unverified whose probe came back by another path; without `probing` all pinned flows count as unverified.
    """

    def __init__(self, topology: Topology, timeout_ns: int, *, probing: bool) -> None:
        self.verified: set[str] = set()
        self.unverified: set[str] = set()
        self.strayed: set[str] = set()
        self._probing = probing
        self._verifier = Verifier(topology, timeout_ns)
        self._probes_asked: dict[str, str] = {}
        self._plan: Plan | None = None

    @property
    def next_timer_ns(self) -> int | None:
        """When the first probe is overdue; None if none is under way."""
        return self._verifier.next_timer_ns

    @property
    def settled(self) -> bool:
        """Whether no verification is under way."""
        return not self._verifier.pending

    def adopt(self, now_ns: int, plan: Plan) -> tuple[Effect, ...]:
        """Probe every pinned flow of a new plan."""
        pinned = [
            (f.flow, f.path, f.source_port)
            for _, f in sorted(plan.flows.items())
            if f.path is not None and f.source_port is not None
        ]
        for flow in self._plan.flows if self._plan is not None else ():
            self._verifier.forget(flow)
        self._plan = plan
        for flows in (self.verified, self.unverified, self.strayed):
            flows.clear()
        if self._probing:
            return self._verifier.begin(now_ns, pinned)
        self.unverified.update(flow for flow, _, _ in pinned)
        return ()

    def moved(self, now_ns: int, plan: Plan, flows: Iterable[str]) -> tuple[Effect, ...]:
        """Some flows of the plan in force have another path: probe these."""
        self._plan = plan
        again = []
        for name in flows:
            f = plan.flows[name]
            self._verifier.forget(name)
            self.verified.discard(name)
            self.unverified.discard(name)
            if f.path is None or f.source_port is None:
                continue
            if self._probing:
                again.append((name, f.path, f.source_port))
            else:
                self.unverified.add(name)
        return self._verifier.begin(now_ns, again)

    def asked(self, now_ns: int, item: ProbeAsked) -> tuple[Effect, ...]:
        """An agent wants a flow's path probed."""
        planned = self._plan.flows.get(item.flow) if self._plan is not None else None
        if planned is None or planned.path is None or planned.source_port is None:
            return (SendProbeResult(item.host, item.flow, (), False),)
        self._probes_asked[item.flow] = item.host
        return self._verifier.begin(now_ns, [(item.flow, planned.path, planned.source_port)])

    def received(self, frame: bytes) -> tuple[Effect, ...] | None:
        """A probe came back; None if the frame is none of ours."""
        outcomes = self._verifier.received(frame)
        return None if outcomes is None else self._concluded(outcomes)

    def expire(self, now_ns: int) -> tuple[Effect, ...]:
        """Send overdue probes again, and give up those that were tried often enough."""
        frames, outcomes = self._verifier.expire(now_ns)
        return (*frames, *self._concluded(outcomes))

    def forget(self, flows: Iterable[str]) -> None:
        """Flows that are no more."""
        for flow in flows:
            self._verifier.forget(flow)
            for flows_known in (self.verified, self.unverified, self.strayed):
                flows_known.discard(flow)

    def _concluded(self, outcomes: Iterable[ProbeOutcome]) -> tuple[Effect, ...]:
        answers = []
        for outcome in outcomes:
            for flows in (self.verified, self.unverified, self.strayed):
                flows.discard(outcome.flow)
            if outcome.seen and not outcome.verified:
                self.strayed.add(outcome.flow)
            (self.verified if outcome.verified else self.unverified).add(outcome.flow)
            if not outcome.verified:
                log.warning(
                    "%s is planned along %s but its probe %s",
                    outcome.flow,
                    " ".join(outcome.planned),
                    f"took {' '.join(outcome.seen)}" if outcome.seen else "did not come back",
                )
            host = self._probes_asked.pop(outcome.flow, None)
            if host is not None:
                answers.append(SendProbeResult(host, outcome.flow, outcome.seen, outcome.verified))
        return tuple(answers)
