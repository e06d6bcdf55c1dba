# SPDX-License-Identifier: Apache-2.0
"""The state of a live fabric. The core takes one input at a time and returns effects; it does no I/O.

The control loop (`controller/process/control_loop.py`) feeds it inputs in order, computes plans and writes
tables when the core asks for them, and carries out its effects. The core answers an agent's request for a
flow at once from the plan in force, also while a new plan is being computed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from controller.live import plan_causes
from controller.live.agent_authority import AgentAuthority
from controller.live.assignments import Assignments
from controller.live.connections import Connections
from controller.live.counters import FabricCounters
from controller.live.failover import PreparedFailovers
from controller.live.floor_watch import FloorWatch
from controller.live.int_probes import IntProbes
from controller.live.iterations import IterationReports
from controller.live.job_leases import JobLeases
from controller.live.job_registry import JobRegistry, JoinError
from controller.live.link_state import LinkState
from controller.live.lookahead import Lookahead, moved_flows
from controller.live.measuring import JobMeasurement
from controller.live.messages import (
    AgentUp,
    BytesCounted,
    ClockAsked,
    ConnectionsSeen,
    Effect,
    FlowAsked,
    FlowFallback,
    FlowOpened,
    FrameAsked,
    Input,
    IterationReport,
    PacketSeen,
    PortsSeen,
    ProbeAsked,
    SendClock,
    SendFrame,
    SendRefusal,
    SendWelcome,
    SwitchLost,
    SwitchReady,
    WorkerJoined,
    WorkerLeft,
)
from controller.live.notices import IterationDone, JobArrived, JobLeft, Notice, PacketArrived
from controller.live.operating import carry_out
from controller.live.operator_commands import ChosenPolicy, DrainSet, JobEnded, JobRequested, PolicySet
from controller.live.overlays import PlanOverlays
from controller.live.plan_changes import with_paths_of, with_slots_later
from controller.live.plan_inputs import PlanInputs
from controller.live.queue_pairs import QueuePairs
from controller.live.reannouncement import Reannouncement
from controller.live.settings import CoreSettings
from controller.live.slot_drift import SlotDrift
from controller.live.switch_states import port_changes, switch_changed
from controller.live.unplannable_jobs import UnplannableJobs
from controller.model.flow_plans import with_flows
from controller.model.plan import Plan
from controller.planner import PlanInput
from controller.planner.emergency import Emergency
from controller.planner.plan_text import summary
from controller.southbound.desired import REASON_INT, REASON_LINK_PROBE
from controller.southbound.table_writes import DesiredState, FabricCondition

log = logging.getLogger(__name__)


class Core:
    """The state of the controller. Not thread-safe: only the control loop may use it."""

    def __init__(self, settings: CoreSettings) -> None:
        self.settings = settings
        self.topology = settings.topology
        self.start_policy = settings.policy
        self.chosen_policy: ChosenPolicy | None = None
        self.now_ns = 0
        self.registry = JobRegistry(settings.topology)
        self.leases = JobLeases(settings.lease_ns)
        self._authority = AgentAuthority(self.registry)
        self.unplannable = UnplannableJobs()
        self.links = LinkState(settings.topology, settings.grace_ns, settings.restart_grace_ns)
        self.counters = FabricCounters(settings.topology)
        self.reports = IterationReports()
        self.plan: Plan | None = None
        self.planned: Plan | None = None
        self.measuring = JobMeasurement(settings.measured_as)
        self.condition = FabricCondition()
        self.wants_plan, self.causes = False, plan_causes.PlanCauses()
        self.failovers = PreparedFailovers()
        self.probes = IntProbes(settings)
        self.paths = self.probes.paths
        self.lookahead = Lookahead(settings.policy.routing)
        self.lookahead_jobs: frozenset[str] | None = None
        self.queue_pairs = QueuePairs()
        self.assignments = Assignments()
        self._drift = SlotDrift()
        self.floors = FloorWatch()
        self.connections = Connections(settings.topology)
        self._overlays = PlanOverlays(self.measuring, self.floors, self.connections)
        self.inputs = PlanInputs(
            settings, self.registry, self.unplannable, self.queue_pairs, self.floors, self.probes
        )
        self.reannouncement = Reannouncement(settings.topology.host, settings.restart_grace_ns)
        self.resumes, self.last_number = False, 0
        self._effects: list[Effect] = []
        self._notices: list[Notice] = []

    @property
    def wants_tables(self) -> bool:
        """Whether links or switches have failed or recovered since the last `take_condition`."""
        return self.links.condition != self.condition

    @property
    def next_timer_ns(self) -> int | None:
        """When `run_timers` must be called next; None while no timer is set."""
        timed = (self.links, self.probes, self.measuring, self.unplannable, self.reannouncement, self.leases)
        times = (t.next_timer_ns for t in (*timed, self.lookahead))
        return min((t for t in times if t is not None), default=None)

    def take_effects(self) -> tuple[Effect, ...]:
        """The messages and frames to send, in order. Each is returned once."""
        effects, self._effects = self._effects, []
        return tuple(map(self._authority.for_agent, effects))

    def take_notices(self) -> tuple[Notice, ...]:
        """The notices for Ryu applications, in order. Each is returned once."""
        notices, self._notices = tuple(self._notices), []
        return notices

    def take_condition(self) -> FabricCondition:
        """The condition for which the caller now writes tables. If there are jobs, it wants a plan too."""
        self.condition = self.links.condition
        self.queue_pairs.mistrusted.clear()
        self.wants_plan = self.wants_plan or bool(self.registry.jobs)
        return self.condition

    def plan_input(self) -> PlanInput:
        """The planner's input for the present state. Clears `wants_plan`."""
        self.wants_plan = False
        self.causes.input_taken()
        self.measuring.choose()
        return self.input_now()

    def plan_failed(self, why: str) -> None:
        """No plan could be made in time: leave out the job that is the reason, and want another plan."""
        planned = self.planned.jobs if self.planned is not None else ()
        told = self.unplannable.failed(self.now_ns, self.registry.jobs, planned, why)
        self.wants_plan = self.causes.add(plan_causes.LEFT_OUT, told is not None)
        self._effects.extend(told or ())
        for job in self.unplannable.reasons:
            self._effects.extend(self.measuring.given_up(job))

    def input_now(self) -> PlanInput:
        """The planner's input for the present state, as it is."""
        return self.inputs.at(self.now_ns, self.condition, self.planned, self.last_number)

    def in_force(self, plan: Plan) -> Plan:
        """The plan as it comes into force, with `PlanOverlays`. The same object for the same plan."""
        return self._overlays.in_force(plan, self.input_now)

    @property
    def desired(self) -> DesiredState:
        """The state that the switches should have."""
        return DesiredState.of(self.condition, self.plan)

    def resume(self) -> None:
        """The switches are in service: verify the paths of the plan that was taken up."""
        if self.plan is not None:
            self._enter_into_force(self.plan)
            words = "plan %d of policy %s is still in force: %s"
            log.info(words, self.plan.version, self.plan.policy.name, summary(self.plan))

    def handle(self, item: Input) -> None:
        """Process one input. What an agent may not say is refused."""
        inputs, refusals = self._authority.checked(item)
        self._effects.extend(refusals)
        for allowed in inputs:
            for ended in self.leases.ended_by(self.now_ns, allowed, self.registry):
                self._handle(ended)
            self.reannouncement.heard(self.now_ns, allowed)
            self._handle(allowed)

    def answered(self, item: FlowAsked) -> tuple[Effect, ...]:
        """Process a question for a flow between two steps; returns what to tell agents."""
        earlier, self._effects = self._effects, []
        self.handle(item)
        answers, self._effects = self.take_effects(), earlier
        return answers

    def _handle(self, item: Input) -> None:
        match item:
            case FlowOpened():
                opened = self.queue_pairs.opened(item, self.registry.job_of(item.flow), self.plan)
                self.wants_plan |= self.causes.add(plan_causes.CONNECTIONS, opened)
            case ConnectionsSeen():
                seen = self.connections.seen(item, self.registry)
                self.wants_plan |= self.causes.add(plan_causes.CONNECTIONS, seen)
            case FlowFallback():
                self._effects.extend(self.assignments.flow_fallback(self.now_ns, item, self.registry))
            case FlowAsked(host, flow):
                self._effects.extend(self.assignments.flow_asked(host, flow, self.registry))
            case IterationReport():
                self._iteration(item)
            case BytesCounted():
                self._measured(self.measuring.counted(self.now_ns, item))
            case ClockAsked(host, sent_ns):
                self._effects.append(SendClock(host, sent_ns, self.now_ns, self.now_ns))
            case PacketSeen():
                self._packet(item)
            case WorkerJoined():
                self._joined(item)
            case WorkerLeft():
                self._left(item)
            case ProbeAsked():
                self._effects.extend(self.paths.asked(self.now_ns, item))
            case AgentUp():
                self._effects.append(SendWelcome(item.host))
                self.assignments.agent_up(item.host)
                self.queue_pairs.agent_up(replace(item, workers=None))
                self.connections.agent_up(item)
                self._effects.extend(self.measuring.agent_up(item.host))
            case PortsSeen() | SwitchReady() | SwitchLost():
                self._notices.extend(switch_changed(self.now_ns, self.links, self.topology, item))
            case FrameAsked(switch, payload, egress_port, submit):
                self._effects.append(SendFrame(switch, payload, egress_port, submit))
            case DrainSet() | PolicySet() | JobRequested() | JobEnded():
                self._effects.extend(carry_out(self, item))

    def run_timers(self) -> None:
        """Run each timer that is due: link probes, late INT probes, lookahead, the end of a measurement."""
        frames, moves = self.links.due(self.now_ns)
        self._effects.extend(frames)
        self._notices.extend(port_changes(self.now_ns, moves))
        for left in (*self.reannouncement.due(self.now_ns), *self.leases.due(self.now_ns, self.registry)):
            self._left(left)
        self._effects.extend(self.probes.due(self.now_ns))
        self.wants_plan |= self.causes.add(plan_causes.LEARNED, self.probes.take_plan_request())
        if self.plan is not None:
            self.lookahead_jobs = self.lookahead.due(self.now_ns, self.registry.jobs) or self.lookahead_jobs
        self._measured(self.measuring.due(self.now_ns))
        self.reports.due(self.now_ns, self.registry.jobs)
        wanted, back = self.unplannable.due(self.now_ns)
        self.wants_plan |= self.causes.add(plan_causes.LEFT_OUT, wanted)
        for job in filter(None, map(self.registry.get, back)):
            self.measuring.arrived(job)
        self._announce_if_verified()

    def fail_over(self, emergency: Emergency) -> None:
        """Tell agents the paths around a failure at once. A plan follows."""
        if self.plan is not None:
            self._patch(emergency.applied(self.plan))

    @property
    def next_senders(self) -> frozenset[str] | None:
        """The jobs that send after the next predicted change; None without a prediction or lookahead."""
        return self.lookahead.next_senders if self.plan is not None else None

    def lookahead_input(self, active: frozenset[str]) -> PlanInput:
        """The planner's input to find paths for the `active` jobs alone, starting from the plan in force. It
        does not depend on the present time: an earlier result stays valid while that plan is in force.
        """
        epoch_ns = self.plan.epoch_ns if self.plan is not None else self.now_ns
        return self.inputs.of_some(self.input_now(), active, epoch_ns)

    def adopt_lookahead(self, found: Plan) -> int:
        """Move the flows of `found` to its paths, keep the rest of the plan; returns how many flows move."""
        if self.plan is None:
            return 0
        if moved := moved_flows(self.plan, found):
            self._patch(replace(self.plan, flows=with_flows(self.plan.flows, moved)))
            self._effects.extend(self.paths.moved(self.now_ns, self.plan, moved))
            self.failovers = self._failovers_of(self.plan)
        return len(moved)

    def _failovers_of(self, plan: Plan) -> PreparedFailovers:
        return PreparedFailovers.after(replace(self.input_now(), previous=None), plan, self.condition)

    def _patch(self, plan: Plan) -> None:
        """Replace the plan in force by one that differs only in some flows' paths, and tell agents. Ryu
        applications do not hear of it if they have heard of the plan already.
        """
        self.probes.plan_patched(self.plan, plan)
        self._overlays.plan_changed(self.now_ns, self.plan, plan)
        self.plan = plan
        if self.planned is not None:
            self.planned = with_paths_of(self.planned, plan)
        self._effects.extend(self.assignments.adopt(plan, self.registry))
        self._effects.extend(self.connections.tell(plan, self.registry.jobs, self.condition))

    def adopt(self, plan: Plan) -> None:
        """Bring a plan into force: tell agents what changes for them, and start to verify its paths."""
        # The next plan starts from this one as it was made, without the raised level of the measured job.
        self.planned = plan
        self.wants_plan |= self.causes.add(plan_causes.LEFT_OUT, self.unplannable.made(plan.jobs))
        before, self.plan = self.plan, self.in_force(plan)
        plan = self.plan
        self._overlays.plan_changed(self.now_ns, before, plan)
        self._effects.extend(self.assignments.adopt(plan, self.registry))
        self._effects.extend(self.connections.tell(plan, self.registry.jobs, self.condition))
        self._effects.extend(self.measuring.adopted(self.now_ns))
        self._enter_into_force(plan)
        log.info("plan %d of policy %s is in force: %s", plan.version, plan.policy.name, summary(plan))

    def _enter_into_force(self, plan: Plan) -> None:
        """Verify the paths of a plan, and begin to watch and to prepare what depends on it."""
        self.resumes = False
        self._drift.plan_adopted(self.now_ns, plan)
        self.failovers = self._failovers_of(plan)
        self._effects.extend(self.probes.plan_adopted(self.now_ns, plan, self.registry.jobs, self.condition))
        self.lookahead_jobs = None
        self.lookahead.plan_adopted(self.now_ns, self.registry.jobs)
        self._announce_if_verified()

    # Jobs.

    def _joined(self, item: WorkerJoined) -> None:
        job, before = item.job, self.registry.declared(item.job.name)
        try:
            arrived = self.registry.join(item.host, item.rank, job)
        except JoinError as error:
            log.warning("host %s: a worker of job %s is refused: %s", item.host, job.name, error)
            self._effects.append(SendRefusal(item.host, str(error)))
            return
        self.reannouncement.announced(item.host, job.name, item.rank)
        if arrived:
            self._notices.append(JobArrived(self.now_ns, job))
            where = f"model {job.model} on hosts {', '.join(job.hosts)}"
            log.info("job %s has arrived (all workers have joined): %s; a new plan is made", job.name, where)
        else:
            self._effects.extend(self.assignments.worker_joined(item.host, job.name))
            jobs = (self.registry.get(job.name),)
            self._effects.extend(self.connections.tell(self.plan, jobs, self.condition))
            now = self.registry.declared(job.name)
            if before in (None, now) or now is None:
                return
            self.measuring.left(job.name)
            log.info("job %s: its rank on host %s has measured another profile", job.name, item.host)
            job = now
        self.reports.arrived(job)
        self.measuring.arrived(job)
        self.floors.job_changed(job.name, self.plan)
        self.wants_plan = True

    def _left(self, item: WorkerLeft) -> None:
        self.reannouncement.announced(item.host, item.job, item.rank)
        if (job := self.registry.leave(item.job, item.rank)) is None:
            return
        for left in (self.assignments.job_left, self.queue_pairs.left, self.connections.left):
            left(job)
        self.paths.forget(f.name for f in job.flows)
        names = (self.unplannable.forget, self.reports.left, self.lookahead.forget, self.measuring.left)
        for forget in names:
            forget(job.name)
        self.floors.left(job.name, self.plan)
        self._notices.append(JobLeft(self.now_ns, job))
        self.wants_plan = True
        log.info("job %s has left (its last worker has ended); a new plan is made", job.name)

    def _iteration(self, item: IterationReport) -> None:
        if (ended := self.reports.add(item)) is None:
            return
        breached = self.floors.ended(item.job, ended, self.plan, self.measuring.profiled)
        self.lookahead.iteration_reported(item)
        self.lookahead.update(self.now_ns, self.registry.jobs)
        corrected = self.reports.new_period(item, self.registry, self.plan, self.measuring)
        self._measured(self.measuring.iteration(self.now_ns, item))
        self.wants_plan |= self.causes.add(plan_causes.ITERATIONS, corrected or breached)
        self._notices.append(IterationDone(self.now_ns, item))
        self._keep_slots_apart(item)

    def _keep_slots_apart(self, item: IterationReport) -> None:
        """Move the slots of a job that is late, and of those whose slots depend on its, a step later."""
        known = self.assignments.tolerances
        later_ns = self._drift.later_ns(self.now_ns, item, self.plan, known)
        if later_ns and self.plan is not None and self.planned is not None:
            group = known[item.job].group
            before, self.plan = self.plan, with_slots_later(self.plan, group, later_ns)
            self.probes.plan_patched(before, self.plan)
            self.planned = with_slots_later(self.planned, group, later_ns)
            self._effects.extend(self.assignments.slots_moved(self.plan, group, self.registry))

    def _measured(self, effects: Iterable[Effect]) -> None:
        """Replace the profiles of jobs whose measurement has ended, and ask for a plan with them."""
        self._effects.extend(effects)
        for job in self.measuring.take_measured():
            self.registry.take_measured(job)
            self.reports.measured(job.name)
            self.floors.job_changed(job.name, self.plan)
        self.wants_plan |= self.causes.add(plan_causes.MEASUREMENT, self.measuring.take_plan_request())

    # The fabric.

    def _packet(self, item: PacketSeen) -> None:
        if item.reason == REASON_LINK_PROBE:
            self._notices.extend(port_changes(self.now_ns, self.links.probe_seen(item.switch, item.payload)))
            return
        of_path = False
        if item.reason == REASON_INT:
            answers, of_path = self.probes.received(self.now_ns, item.payload)
            self._effects.extend(answers)
            self.wants_plan |= self.causes.add(plan_causes.LEARNED, self.probes.take_plan_request())
        if not of_path:
            arrived = PacketArrived(self.now_ns, item.switch, item.ingress_port, item.reason, item.payload)
            self._notices.append(arrived)
            return
        if not self.wants_tables and self.queue_pairs.mistrust(self.paths.misrouted):
            self.wants_plan = self.causes.add(plan_causes.MISROUTED)
        self._announce_if_verified()

    def _announce_if_verified(self) -> None:
        """Announce the plan to Ryu applications once every path is verified or given up."""
        self._notices.extend(self.probes.announcement(self.now_ns, self.plan))
