# SPDX-License-Identifier: Apache-2.0
"""Which paths of the plan in force INT probes have confirmed, and which agents asked for a probe."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from controller.live.messages import Effect, ProbeAsked, SendProbeResult
from controller.live.verify import PROBES_IN_FLIGHT, ProbeOptions, ProbeOutcome, Verifier
from controller.model.flow_plans import FlowPlans, Path, header_of, path_in, pinned_flows
from controller.model.job import Job
from controller.model.plan import Plan
from controller.model.view import ProbeView
from controller.southbound.table_writes import FabricCondition
from topo.graph import Topology

log = logging.getLogger(__name__)

# Chosen: how many unverified flows of one plan are logged by name. The line about the plan counts them all.
LOGGED = 20
# Chosen: where no probe comes back, each plan would have all flows probed.
RETRY_NS = 10_000_000_000


class PathVerification:
    """Verifies the paths of one plan after another. Methods that return effects return what to send.

    `verified` and `unverified` hold the names of flows whose verification is over. `misrouted` holds those
    unverified flows whose probe took another path than planned. Without `probing` every flow that has a path
    in the plan counts as unverified. `probes` has the last probe of each flow that came back, and `queues`
    what waited at each (switch, port) when a probe last passed it, as (time in ns, packets).
    """

    def __init__(self, topology: Topology, options: ProbeOptions, *, probing: bool) -> None:
        self.verified: set[str] = set()
        self.unverified: set[str] = set()
        self.misrouted: set[str] = set()
        self.probes: dict[str, ProbeView] = {}
        self.queues: dict[tuple[str, int], tuple[int, int]] = {}
        self._probing, self._again = probing, options.again
        self._verifier = Verifier(topology, options)
        self._probes_asked: dict[str, str] = {}
        self._plan: Plan | None = None
        self._condition = FabricCondition()
        self._retried_ns = 0
        # Flows of jobs that have left since the plan was made. Some may be back before the next one.
        self._forgotten: set[str] = set()
        self._complaints = 0

    @property
    def next_timer_ns(self) -> int | None:
        """When the first probe is overdue; None if no probe is in flight."""
        return self._verifier.next_timer_ns

    @property
    def settled(self) -> bool:
        """Whether the verification of every flow is over."""
        return not self._verifier.busy

    def adopt(
        self, now_ns: int, plan: Plan, jobs: Iterable[Job], condition: FabricCondition
    ) -> tuple[Effect, ...]:
        """Probe the flows that have a path in the new plan, those of very large jobs last.

        In the `condition` of the plan before, flows that stay on their path are left out, unless the options
        say `again`; but those that were not verified are tried again each RETRY_NS.
        """
        large = {f.name: len(j.flows) for j in jobs if len(j.flows) > PROBES_IN_FLIGHT for f in j.flows}
        before, self._plan = self._plan, plan
        same_condition, self._condition = condition == self._condition, condition
        if before is None or (self._probing and (self._again or not same_condition)):
            self._forget_all(before)
            self.probes = {flow: seen for flow, seen in self.probes.items() if flow in plan.flows}
            wanted = pinned_flows(plan.flows)
        else:
            wanted = self._changed(now_ns, before, plan)
        self._complaints = 0
        pinned = sorted(wanted, key=lambda f: (large.get(f[0], 0), f[0]))
        self._forgotten.clear()
        if self._probing:
            return self._verifier.begin(now_ns, pinned)
        self.unverified.update(flow for flow, _, _ in pinned)
        return ()

    def _forget_all(self, before: Plan | None) -> None:
        for flow in before.flows if before is not None and self._verifier.busy else ():
            self._verifier.forget(flow)
        for flows in (self.verified, self.unverified, self.misrouted):
            flows.clear()

    def _changed(self, now_ns: int, before: Plan, plan: Plan) -> Iterator[tuple[str, Path, int]]:
        """The flows that are on another path than before, and now and then those that were not verified on
        it, with path and source port. What was known of them, and of flows that are gone, is forgotten."""
        pins = {*plan.pins} ^ {*before.pins}
        doubtful = {*self._forgotten, *(pin.flow for pin in pins)}
        if self._probing and now_ns - self._retried_ns >= RETRY_NS:
            self._retried_ns = now_ns
            doubtful |= self.unverified
        for name in {*doubtful, *_of_other_jobs(plan, before), *_of_other_jobs(before, plan)}:
            now = _route(plan, name)
            if now is not None and now == _route(before, name) and name not in doubtful:
                continue
            self._forget(name)
            if now is not None:
                yield name, *now
            elif name not in plan.flows:
                self.probes.pop(name, None)

    def moved(self, now_ns: int, plan: Plan, flows: Iterable[str]) -> tuple[Effect, ...]:
        """Some flows of the plan in force have got another path: probe them."""
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
        """An agent asks the controller to probe a flow's path."""
        planned = self._plan.flows.get(item.flow) if self._plan is not None else None
        if planned is None or planned.path is None or planned.source_port is None:
            return (SendProbeResult(item.host, item.flow, (), False),)
        self._probes_asked[item.flow] = item.host
        return self._verifier.begin(now_ns, [(item.flow, planned.path, planned.source_port)])

    def received(self, now_ns: int, frame: bytes) -> tuple[Effect, ...] | None:
        """A probe came back. None if the frame is not one of the controller's probes."""
        outcomes = self._verifier.received(frame)
        if outcomes is None:
            return None
        for outcome in outcomes:
            self.probes[outcome.flow] = ProbeView(now_ns, outcome.hops, not outcome.verified)
            for hop in outcome.hops:
                self.queues[hop.switch, hop.egress_port] = now_ns, hop.queue_packets
        return (*self._verifier.next_frames(now_ns), *self._concluded(outcomes))

    def expire(self, now_ns: int) -> tuple[Effect, ...]:
        """Send overdue probes again, and give up those that were sent too often."""
        frames, outcomes = self._verifier.expire(now_ns)
        return (*frames, *self._concluded(outcomes))

    def forget(self, flows: Iterable[str]) -> None:
        """Forget flows of a job that has left."""
        for flow in flows:
            self._forget(flow)
            self._forgotten.add(flow)
            self.probes.pop(flow, None)

    def _forget(self, flow: str) -> None:
        self._verifier.forget(flow)
        for flows in (self.verified, self.unverified, self.misrouted):
            flows.discard(flow)

    def _concluded(self, outcomes: Iterable[ProbeOutcome]) -> tuple[Effect, ...]:
        answers = []
        for outcome in outcomes:
            for flows in (self.verified, self.unverified, self.misrouted):
                flows.discard(outcome.flow)
            if outcome.seen and not outcome.verified:
                self.misrouted.add(outcome.flow)
            (self.verified if outcome.verified else self.unverified).add(outcome.flow)
            if not outcome.verified:
                self._complaints += 1
                level = logging.WARNING if self._complaints <= LOGGED else logging.DEBUG
                log.log(
                    level,
                    "flow %s is not verified: planned path %s, but its INT probe %s",
                    outcome.flow,
                    " ".join(outcome.planned),
                    f"took {' '.join(outcome.seen)}" if outcome.seen else "did not come back",
                )
            host = self._probes_asked.pop(outcome.flow, None)
            if host is not None:
                answers.append(SendProbeResult(host, outcome.flow, outcome.seen, outcome.verified))
        return tuple(answers)


def _route(plan: Plan, flow: str) -> tuple[Path, int] | None:
    """Path and source port of a flow that has both."""
    path, header = path_in(plan.flows, flow), header_of(plan.flows, flow)
    return (path, header[0]) if path is not None and header is not None and header[0] is not None else None


def _of_other_jobs(plan: Plan, than: Plan) -> Iterable[str]:
    """The flows of a plan but those of jobs whose flows are as in the other one."""
    return plan.flows.changed_since(than.flows) if isinstance(plan.flows, FlowPlans) else plan.flows
