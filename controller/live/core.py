# SPDX-License-Identifier: Apache-2.0
"""The core: takes inputs one at a time, keeps the state, says what is to be done. It touches nothing.

The engine feeds it inputs in order, plans and writes tables when it asks for that, and carries its
effects out. FlowRequests are answered from the published plan at once, whatever is being planned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from controller.live.assignments import Assignments
from controller.live.counters import FabricCounters
from controller.live.failover import PreparedFailovers
from controller.live.hash_learning import HashLearner, pairs_of
from controller.live.iterations import IterationReports
from controller.live.job_registry import JobRegistry, JoinError
from controller.live.linkstate import GRACE_NS, LinkState, PortTransition
from controller.live.lookahead import Lookahead, moved_flows
from controller.live.measuring import (
    AS_DECLARED,
    JobMeasurement,
    MeasureSettings,
    depends_on_profiles,
    with_paths_of,
)
from controller.live.messages import (
    AgentDown,
    AgentUp,
    BytesCounted,
    ClockAsked,
    Effect,
    FlowAsked,
    FlowFallback,
    FlowOpened,
    FrameAsked,
    Input,
    IterationDone,
    IterationReport,
    JobArrived,
    JobLeft,
    Notice,
    PacketArrived,
    PacketSeen,
    PlanApplied,
    PortChanged,
    PortsSeen,
    ProbeAsked,
    SendClock,
    SendFrame,
    SendRefusal,
    SendWelcome,
    SwitchDown,
    SwitchLost,
    SwitchReady,
    SwitchUp,
    WorkerJoined,
    WorkerLeft,
)
from controller.live.pinned import PinnedPaths
from controller.live.queuepairs import QueuePairs
from controller.live.verify import TIMEOUT_NS
from controller.model.plan import Plan, Policy
from controller.planner import PIN_CAPACITY, PlanInput
from controller.planner.emergency import Emergency
from controller.planner.pinned_flows import remarks
from controller.planner.plan_text import summary
from controller.southbound.table_writes import DesiredState, FabricCondition
from topo.graph import Topology

log = logging.getLogger(__name__)

# A plan's shifts count from this long after it is made, so that every agent has it by then.
LEAD_NS = 20_000_000

REASON_INT = 1
REASON_LINK_PROBE = 2


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """What the core is told at start."""

    topology: Topology
    policy: Policy
    seed: int
    verify: bool
    elephant_bytes: int
    probe_timeout_ns: int = TIMEOUT_NS
    measure: MeasureSettings = AS_DECLARED
    pin_capacity: int = PIN_CAPACITY
    grace_ns: int = GRACE_NS


class Core:
    """The state of the controller. Not thread-safe: it belongs to one loop."""

    def __init__(self, settings: CoreSettings) -> None:
        self._settings = settings
        self.topology = settings.topology
        self.now_ns = 0
        self.registry = JobRegistry(settings.topology)
        self.links = LinkState(settings.topology, settings.grace_ns)
        self.counters = FabricCounters(settings.topology)
        self.reports = IterationReports()
        self.plan: Plan | None = None
        self._planned: Plan | None = None
        self.measuring = JobMeasurement(
            settings.measure if depends_on_profiles(settings.policy) else AS_DECLARED
        )
        self.condition = FabricCondition()
        self.wants_plan = False
        self.failovers = PreparedFailovers()
        self.paths = PinnedPaths(settings.topology, settings.probe_timeout_ns, probing=settings.verify)
        self._learner = HashLearner(settings.topology, settings.probe_timeout_ns, settings.seed)
        paths = settings.policy.routing != "ecmp"
        # Source ports are found by probes where nobody knows the hash, and the plan wants paths.
        self._learns = paths and settings.verify and not settings.topology.hash.known
        self._lookahead = Lookahead() if paths and settings.policy.lookahead else None
        self.lookahead_jobs: frozenset[str] | None = None
        self.queue_pairs = QueuePairs()
        self.assignments = Assignments()
        self._announced: Plan | None = None
        self._shown: tuple[Plan, str | None, Plan] | None = None
        self._effects: list[Effect] = []
        self._notices: list[Notice] = []

    @property
    def wants_tables(self) -> bool:
        """Whether the fabric's condition has changed since tables were last asked for."""
        return self.links.condition != self.condition

    @property
    def next_timer_ns(self) -> int | None:
        """When `run_timers` has something to do; None if never."""
        timed = (self.links, self.paths, self._learner, self.measuring, self._lookahead)
        times = (t.next_timer_ns for t in timed if t is not None)
        return min((t for t in times if t is not None), default=None)

    def take_effects(self) -> tuple[Effect, ...]:
        """What is to be sent, in order; taken once."""
        effects, self._effects = tuple(self._effects), []
        return effects

    def take_notices(self) -> tuple[Notice, ...]:
        """What Ryu applications are told, in order; taken once."""
        notices, self._notices = tuple(self._notices), []
        return notices

    def take_condition(self) -> FabricCondition:
        """The condition that tables are to be written for now. A plan is made for it too."""
        self.condition = self.links.condition
        self.queue_pairs.mistrusted.clear()
        self.wants_plan = self.wants_plan or bool(self.registry.jobs)
        return self.condition

    def plan_input(self) -> PlanInput:
        """What the planner is asked, as things stand; the wish for a plan is thereby granted."""
        self.wants_plan = False
        self.measuring.choose()
        return self._input()

    def _input(self) -> PlanInput:
        return PlanInput(
            topology=self.topology,
            jobs=self.registry.jobs,
            policy=self._settings.policy,
            epoch_ns=self.now_ns + LEAD_NS,
            down_links=self.condition.down_links,
            down_switches=self.condition.down_switches,
            previous=self._planned,
            seed=self._settings.seed,
            elephant_bytes=self._settings.elephant_bytes,
            learned=self._learner.learned(self.condition) if self._learns else None,
            queue_pairs=self.queue_pairs.of(self.registry.jobs),
            mistrusted=frozenset(self.queue_pairs.mistrusted),
            pin_capacity=self._settings.pin_capacity,
            mltcp_hosts=self.queue_pairs.mltcp_hosts,
        )

    def shown(self, plan: Plan) -> Plan:
        """A plan as it comes into force: with the job that is to be measured on top.

        It is the same when tables are written for it and when agents hear of it.
        """
        job = self.measuring.profiled
        if self._shown is None or self._shown[0] is not plan or self._shown[1] != job:
            top = self.measuring.overlay(plan)
            if top is not plan:
                top = replace(top, remarks=remarks(self._input(), top.flows))
            self._shown = plan, job, top
        return self._shown[2]

    @property
    def wanted(self) -> DesiredState:
        """What the switches should hold."""
        return DesiredState.of(self.condition, self.plan)

    def handle(self, item: Input) -> None:
        """Take one input in."""
        match item:
            case FlowOpened():
                news = self.queue_pairs.opened(item, self.registry.flows, self.plan)
                self.wants_plan = self.wants_plan or news
            case FlowFallback():
                self._effects.extend(self.assignments.fell(self.now_ns, item, self.registry))
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
                self.queue_pairs.agent_up(item)
                self._effects.extend(self.measuring.agent_up(item.host))
            case AgentDown(host):
                log.warning("the agent of %s is gone; its flows go on by what they were told last", host)
            case PortsSeen(switch, ports):
                self._moved(self.links.ports_seen(switch, ports))
            case SwitchReady(switch, ports):
                self._moved(self.links.switch_ready(self.now_ns, switch, ports))
                ident = self.topology.switch[switch].device_id
                self._notices.append(SwitchUp(self.now_ns, switch, ident))
                log.info("%s is in service", switch)
            case SwitchLost(switch, why):
                self.links.switch_lost(self.now_ns, switch)
                self._notices.append(SwitchDown(self.now_ns, switch, why))
                log.error("the session with %s is gone: %s; it forwards by what it holds", switch, why)
            case FrameAsked(switch, payload, egress_port, submit):
                self._effects.append(SendFrame(switch, payload, egress_port, submit))

    def run_timers(self) -> None:
        """Do what is due by now: link probes, overdue INT probes."""
        frames, moves = self.links.due(self.now_ns)
        self._effects.extend(frames)
        self._moved(moves)
        self._effects.extend(self.paths.expire(self.now_ns))
        if self._learner.busy:
            self._effects.extend(self._learner.expire(self.now_ns))
            self.wants_plan = self.wants_plan or not self._learner.busy
        if self._lookahead is not None and self.plan is not None:
            self.lookahead_jobs = self._lookahead.due(self.now_ns, self.registry.jobs) or self.lookahead_jobs
        self._measured(self.measuring.due(self.now_ns))
        self._conclude_plan()

    def fail_over(self, emergency: Emergency) -> int:
        """Tell agents the ways around a failure, at once; how many flows have one. The full plan follows."""
        if self.plan is None:
            return 0
        self._patch(emergency.applied(self.plan))
        return len(emergency.flows)

    @property
    def next_senders(self) -> frozenset[str] | None:
        """The jobs that send after the next foreseen change; None if none is, or nobody looks ahead."""
        return self._lookahead.next_senders if self._lookahead is not None and self.plan is not None else None

    def lookahead_input(self, active: frozenset[str]) -> PlanInput:
        """What the planner is asked to find paths for some of the jobs, from the plan in force.

        It is the same whether asked ahead of time or then, as long as that plan is.
        """
        jobs = tuple(j for j in self.registry.jobs if j.name in active)
        epoch_ns = self.plan.epoch_ns if self.plan is not None else self.now_ns
        return replace(self._input(), jobs=jobs, epoch_ns=epoch_ns)

    def adopt_lookahead(self, found: Plan) -> int:
        """Take the paths of `found` for its flows, all else stays; how many flows that moves."""
        if self.plan is None:
            return 0
        news = moved_flows(self.plan, found)
        if news:
            self._patch(replace(self.plan, flows={**self.plan.flows, **news}))
            self._effects.extend(self.paths.moved(self.now_ns, self.plan, news))
            self.failovers = PreparedFailovers.after(replace(self._input(), previous=None), self.plan)
        return len(news)

    def _patch(self, plan: Plan) -> None:
        """Some flows of the plan in force go another way: agents hear of it, and it counts as announced if
        it was."""
        if self._announced is self.plan:
            self._announced = plan
        self.plan = plan
        if self._planned is not None:
            self._planned = with_paths_of(self._planned, plan)
        self._effects.extend(self.assignments.adopt(plan, self.registry))

    def adopt(self, plan: Plan) -> None:
        """Publish a plan: tell agents what it changes for them, and begin to verify its pinned paths."""
        # What the next plan goes on from is this one without the job that is on top to be measured.
        self._planned = plan
        self.plan = plan = self.shown(plan)
        self.failovers = PreparedFailovers.after(replace(self._input(), previous=None), plan)
        self._effects.extend(self.assignments.adopt(plan, self.registry))
        self._effects.extend(self.measuring.adopted(self.now_ns))
        self._announced = None
        self._effects.extend(self.paths.adopt(self.now_ns, plan))
        self.lookahead_jobs = None
        if self._lookahead is not None:
            self._lookahead.plan_adopted(self.now_ns, self.registry.jobs)
        if self._learns:
            pairs = pairs_of(self.registry.jobs, self._settings.elephant_bytes)
            self._effects.extend(self._learner.want(self.now_ns, pairs, self.condition))
        self._conclude_plan()
        log.info("plan %d: %s", plan.version, summary(plan))

    # Jobs.

    def _joined(self, item: WorkerJoined) -> None:
        try:
            arrived = self.registry.join(item.host, item.rank, item.job)
        except JoinError as error:
            log.warning("%s: refused: %s", item.host, error)
            self._effects.append(SendRefusal(item.host, str(error)))
            return
        if arrived:
            job = item.job
            self.reports.arrived(job)
            self._notices.append(JobArrived(self.now_ns, job))
            self.measuring.arrived(job)
            self.wants_plan = True
            log.info("job %s has arrived: %s on %s", job.name, job.model, ", ".join(job.hosts))
        else:
            self._effects.extend(self.assignments.worker_joined(item.host, item.job.name))

    def _left(self, item: WorkerLeft) -> None:
        job = self.registry.leave(item.job, item.rank)
        if job is None:
            return
        self.assignments.job_left(job)
        self.paths.forget(f.name for f in job.flows)
        self.queue_pairs.left(job)
        self.reports.left(job.name)
        if self._lookahead is not None:
            self._lookahead.forget(job.name)
        self.measuring.left(job.name)
        self._notices.append(JobLeft(self.now_ns, job))
        self.wants_plan = True
        log.info("job %s has left", job.name)

    def _iteration(self, item: IterationReport) -> None:
        if not self.reports.add(item):
            return
        if self._lookahead is not None:
            self._lookahead.iteration_reported(item)
            self._lookahead.update(self.now_ns, self.registry.jobs)
        self._measured(self.measuring.iteration(self.now_ns, item))
        self.wants_plan = self.reports.new_period(item, self.registry, self.plan) or self.wants_plan
        self._notices.append(IterationDone(self.now_ns, item))

    def _measured(self, effects: Iterable[Effect]) -> None:
        """Plan with what has been measured, as soon as it has been."""
        self._effects.extend(effects)
        for job in self.measuring.take_measured():
            self.registry.take_measured(job)
            self.reports.measured(job.name)
        self.wants_plan = self.measuring.take_wish() or self.wants_plan

    # The fabric.

    def _packet(self, item: PacketSeen) -> None:
        if item.reason == REASON_LINK_PROBE:
            self._moved(self.links.probe_seen(item.switch, item.payload))
            return
        if item.reason == REASON_INT and self._learner.busy:
            self._effects.extend(self._learner.received(self.now_ns, item.payload))
            self.wants_plan = self.wants_plan or not self._learner.busy
        answers = self.paths.received(item.payload) if item.reason == REASON_INT else None
        if answers is None:
            self._notices.append(
                PacketArrived(self.now_ns, item.switch, item.ingress_port, item.reason, item.payload)
            )
            return
        self._effects.extend(answers)
        if not self.wants_tables and self.queue_pairs.mistrust(self.paths.strayed):
            self.wants_plan = True
        self._conclude_plan()

    def _conclude_plan(self) -> None:
        """Announce the plan once all its verifications are over."""
        plan, paths = self.plan, self.paths
        if plan is None or self._announced is plan or not paths.settled:
            return
        self._announced = plan
        verified, unverified = tuple(sorted(paths.verified)), tuple(sorted(paths.unverified))
        self._notices.append(PlanApplied(self.now_ns, plan, verified, unverified))
        log.info("plan %d: %d paths verified, %d not", plan.version, len(verified), len(unverified))

    def _moved(self, moves: Iterable[PortTransition]) -> None:
        for move in moves:
            self._notices.append(PortChanged(self.now_ns, move.switch, move.port, move.peer, move.up))
            level, state = (logging.INFO, "up") if move.up else (logging.WARNING, "down")
            peer = move.peer or "nothing"
            log.log(level, "port %d of %s, to %s, is %s", move.port, move.switch, peer, state)
