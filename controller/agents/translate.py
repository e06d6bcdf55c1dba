# SPDX-License-Identifier: Apache-2.0
"""Translation between the messages of the agent protocol and the controller's own values, both ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from controller.live.messages import (
    AgentEffect,
    AgentUp,
    BytesCounted,
    ClockAsked,
    ConnectionsSeen,
    FlowAsked,
    FlowFallback,
    FlowOpened,
    IterationReport,
    ProbeAsked,
    SendAssignment,
    SendClock,
    SendConnectionPath,
    SendJobAccepted,
    SendMeasure,
    SendProbeResult,
    SendRefusal,
    SendSchedule,
    SendWelcome,
    WorkerJoined,
    WorkerLeft,
    WorkersListed,
)
from controller.model import REALIGN
from controller.model.job import Flow, Job, Phase, Profile
from controller.model.plan import Connection
from controller.model.traffic import TrafficClasses
from controller.wire import agent_pb2 as wire
from controller.wire.job_name import job_name_fault
from controller.wire.limits import (
    MAX_CONNECTIONS_OF_MESSAGE,
    MAX_EARLIER_REPORTS,
    MAX_FLOW_NAME_CHARS,
    MAX_FLOWS_OF_JOB,
    MAX_HOSTS_OF_JOB,
    MAX_NAME_CHARS,
    MAX_PHASES_OF_JOB,
    MAX_REASON_CHARS,
    MAX_REPORT_BINS,
)
from controller.wire.protocol import (
    ANSWER_DEADLINE_NS,
    CONNECTS,
    DSCP_BEHAVIOURS,
    MAX_GPUS,
    NEW_DSCP,
    PINNINGS,
    PROTOCOL,
)
from controller.wire.senders import DCQCN, canonical_sender
from topo.addresses import canonical_address
from topo.graph import Host

AgentInput = (
    WorkerJoined
    | WorkerLeft
    | FlowAsked
    | FlowOpened
    | ConnectionsSeen
    | FlowFallback
    | IterationReport
    | ProbeAsked
    | BytesCounted
    | ClockAsked
    | WorkersListed
)


class MessageError(ValueError):
    """A message of an agent is invalid; the text says why and is sent back to the agent."""


@dataclass(frozen=True, slots=True)
class WelcomeTerms:
    """What every agent receives when its session begins.

    Flows of fewer than `elephant_bytes` per iteration go by ECMP. A phase that is late by more than
    `realign`, a fraction of the period, waits for its next slot. `profiles`: new jobs are measured.
    """

    policy: str
    classes: TrafficClasses
    elephant_bytes: int
    answer_deadline_ns: int = ANSWER_DEADLINE_NS
    clock_poll_ns: int = 4_000_000_000
    realign: float = REALIGN
    profiles: bool = False


def check_hello(hello: wire.Hello, hosts: Mapping[str, Host]) -> None:
    """Check the Hello of a NIC. `hosts`: those of the fabric by name.

    Raises:
        MessageError: the host or its address is not the fabric's, or the protocol or a capability is unknown.
    """
    if hello.protocol != PROTOCOL:
        raise MessageError(f"protocol: version {hello.protocol} is unknown; legal: {PROTOCOL}")
    if hello.host not in hosts:
        raise MessageError(f"host: the fabric has no host named {hello.host!r}")
    if not _same_address(hello.ip, hosts[hello.host].ip):
        raise MessageError(
            f"ip: host {hello.host} has the address {hosts[hello.host].ip} in the fabric, not {hello.ip!r}"
        )
    if hello.pinning not in PINNINGS:
        raise MessageError(f"pinning: {hello.pinning[:40]!r} is unknown; legal: {', '.join(PINNINGS)}")
    if hello.dscp and hello.dscp not in DSCP_BEHAVIOURS:
        raise MessageError(f"dscp: {hello.dscp!r} is unknown; legal: {', '.join(DSCP_BEHAVIOURS)}")
    if not set(CONNECTS).issuperset(hello.connects):
        raise MessageError(f"connects: {[*hello.connects][:8]}; legal: {', '.join(map(str, CONNECTS))}")


def _same_address(text: str, canonical: str) -> bool:
    try:
        return canonical_address(text) == canonical
    except ValueError:
        return False


def agent_up(hello: wire.Hello) -> AgentUp:
    """The input for a Hello that has been checked."""
    workers = _workers(hello.workers) if hello.HasField("workers") else None
    connects = tuple(sorted(set(hello.connects)))
    return AgentUp(hello.host, hello.pinning, hello.dscp or NEW_DSCP, hello.mltcp, connects, workers)


def _workers(listed: wire.Workers) -> frozenset[tuple[str, int]]:
    return frozenset((worker.job, worker.rank) for worker in listed.workers)


def from_agent(
    host: str, message: wire.AgentMessage, job_of: Callable[[wire.JobJoin], Job] | None = None
) -> Iterator[AgentInput]:
    """The inputs that a message of an agent carries, in order. `job_of` replaces `described_job`.

    Raises:
        MessageError: a second Hello, an empty message, or values out of range. Inputs that were yielded
            before are valid.
    """
    if len(message.earlier) > MAX_EARLIER_REPORTS:
        raise MessageError(
            f"earlier: {len(message.earlier):,} reports; legal: at most {MAX_EARLIER_REPORTS:,} in a message"
        )
    for report in message.earlier:
        yield _iteration(host, report)
    yield _body(host, message, job_of or described_job)


def _body(host: str, message: wire.AgentMessage, job_of: Callable[[wire.JobJoin], Job]) -> AgentInput:
    kind = message.WhichOneof("body")
    if kind == "flow_request":
        return FlowAsked(host, _flow_name(message.flow_request.flow))
    if kind == "flow_opened":
        opened = message.flow_opened
        _flow_name(opened.flow)
        if opened.source_port >= 1 << 16 or opened.dscp >= 1 << 6:
            raise MessageError(
                f"flow {opened.flow}: source port {opened.source_port} or DSCP {opened.dscp} is out of range"
            )
        return FlowOpened(host, opened.flow, opened.source_port, opened.dscp)
    if kind == "connections":
        return ConnectionsSeen(host, _connections(message.connections))
    if kind == "flow_fallback":
        fell = message.flow_fallback
        _flow_name(fell.flow)
        if fell.source_port >= 1 << 16:
            raise MessageError(f"flow {fell.flow}: source port {fell.source_port} is out of range")
        return FlowFallback(host, fell.flow, fell.on_ecmp, fell.source_port, fell.why[:MAX_REASON_CHARS])
    if kind == "probe_request":
        return ProbeAsked(host, _flow_name(message.probe_request.flow))
    if kind == "job_leave":
        return WorkerLeft(host, message.job_leave.rank, message.job_leave.job)
    if kind == "workers":
        return WorkersListed(host, _workers(message.workers))
    if kind == "job_join":
        return WorkerJoined(host, message.job_join.rank, job_of(message.job_join))
    if kind == "iteration":
        return _iteration(host, message.iteration)
    if kind == "byte_counts":
        counts = message.byte_counts
        if not counts.bin_ns or any(len(f.bytes) > MAX_REPORT_BINS for f in counts.flows):
            raise MessageError(
                f"byte counts: bin_ns must be above 0, and a flow may have at most {MAX_REPORT_BINS} bins"
            )
        return BytesCounted(
            host=host,
            job=counts.job,
            rank=counts.rank,
            start_ns=counts.start_ns,
            bin_ns=counts.bin_ns,
            flows=tuple((f.flow, tuple(f.bytes)) for f in counts.flows),
            flops=_amount(counts.flops),
        )
    if kind == "clock_request":
        return ClockAsked(host, message.clock_request.sent_ns)
    raise MessageError(f"a message of the kind {kind or 'none'} is not legal within a session")


def to_agent(effect: AgentEffect, terms: WelcomeTerms) -> wire.ControllerMessage:
    """The protocol's message for an effect, without its sequence number."""
    message = wire.ControllerMessage()
    match effect:
        case SendWelcome():
            message.welcome.policy = terms.policy
            message.welcome.cnp_dscp = terms.classes.cnp
            message.welcome.ack_dscp = terms.classes.ack
            message.welcome.equal_dscp = terms.classes.equal
            message.welcome.mice_dscp = terms.classes.mice
            message.welcome.elephant_bytes = terms.elephant_bytes
            message.welcome.answer_deadline_ns = terms.answer_deadline_ns
            message.welcome.clock_poll_ns = terms.clock_poll_ns
            message.welcome.profiles = terms.profiles
            message.welcome.level_dscp.extend(terms.classes.levels)
        case SendAssignment():
            message.flow.flow = effect.flow
            message.flow.source_port = effect.source_port
            message.flow.dscp = effect.dscp
            message.flow.rate_cap_bps = effect.rate_cap_bps
        case SendConnectionPath():
            told = message.connection_path
            told.flow, told.job = effect.flow, effect.job
            told.src_ip, told.dst_ip = effect.src_ip, effect.dst_ip
            told.index, told.protocol, told.dscp = effect.index, effect.protocol, effect.dscp
            told.ended = effect.ended
            told.known = effect.conditions is not None
            for c in effect.conditions or ():
                told.conditions.add(source_mask=c.source_mask, dest_mask=c.dest_mask, odd=c.odd)
        case SendSchedule():
            message.schedule.job = effect.job
            message.schedule.epoch_ns = effect.epoch_ns
            message.schedule.shift_ns = effect.shift_ns
            message.schedule.period_ns = effect.period_ns
            message.schedule.sender = effect.sender
            usual = max(terms.realign, effect.tolerance)
            message.schedule.realign = usual if effect.realign is None else effect.realign
            message.schedule.once = effect.once
        case SendMeasure():
            message.measure.job = effect.job
            message.measure.bin_ns = effect.bin_ns
            message.measure.report_ns = effect.report_ns
            message.measure.profiling = effect.profiling
        case SendClock():
            message.clock.sent_ns = effect.sent_ns
            message.clock.received_ns = effect.received_ns
            message.clock.replied_ns = effect.replied_ns
        case SendJobAccepted():
            message.accepted.job = effect.job
            message.accepted.rank = effect.rank
        case SendRefusal():
            message.refusal.what = effect.what
        case SendProbeResult():
            message.probe_result.flow = effect.flow
            message.probe_result.path.extend(effect.path)
            message.probe_result.verified = effect.verified
    return message


def _connections(said: wire.Connections) -> tuple[tuple[bool, Connection], ...]:
    if len(said.connections) > MAX_CONNECTIONS_OF_MESSAGE:
        raise MessageError(
            f"{len(said.connections):,} connections in a message; legal: {MAX_CONNECTIONS_OF_MESSAGE:,}"
        )
    for c in said.connections:
        if c.protocol not in CONNECTS or not 0 < c.source_port < 1 << 16 or not 0 < c.dest_port < 1 << 16:
            raise MessageError(
                f"connection of flow {_flow_name(c.flow)}: protocol {c.protocol}, ports {c.source_port} and "
                f"{c.dest_port}; legal: protocol 6 or 17, ports from 1 to 65535"
            )
        if c.sent_dscp >= 1 << 6:
            raise MessageError(f"connection of flow {c.flow}: DSCP {c.sent_dscp}; legal: 0 to 63")
    return tuple(
        (not c.closed, Connection(_flow_name(c.flow), c.protocol, c.source_port, c.dest_port, c.sent_dscp))
        for c in said.connections
    )


def _iteration(host: str, report: wire.IterationReport) -> IterationReport:
    return IterationReport(
        host=host,
        job=report.job,
        rank=report.rank,
        index=report.index,
        start_ns=report.start_ns,
        end_ns=report.end_ns,
        communication_ns=report.communication_ns,
        bytes_sent=report.bytes_sent,
        ecn_marks=report.ecn_marks,
        retransmits=report.retransmits,
        held_ns=report.held_ns,
        compute_ns=report.compute_ns,
        flops=_amount(report.flops),
        drift_ns=report.drift_ns,
        realigned=report.realigned,
        clock_error_ns=report.clock_error_ns,
    )


def check_size(join: wire.JobJoin) -> None:
    """Refuse the description of a job that is too large, before it is read. Raises MessageError."""
    for what, found, most in (
        ("flows", len(join.flows), MAX_FLOWS_OF_JOB),
        ("hosts", len(join.hosts), MAX_HOSTS_OF_JOB),
        ("phases", len(join.phases), MAX_PHASES_OF_JOB),
    ):
        if found > most:
            raise MessageError(
                f"job {join.job[:MAX_NAME_CHARS]}: it has {found:,} {what}; legal: at most {most:,}"
            )


def described_job(join: wire.JobJoin) -> Job:
    """The job that a worker describes when it joins. Raises MessageError."""
    check_size(join)
    if fault := job_name_fault(join.job, ()):
        raise MessageError(fault)
    if len(join.model) > MAX_NAME_CHARS:
        raise MessageError(
            f"a model's name has {len(join.model)} characters; legal: at most {MAX_NAME_CHARS}"
        )
    if not 1 <= join.gpus <= MAX_GPUS:
        raise MessageError(f"job {join.job}: it has {join.gpus:,} GPUs; legal: 1 to {MAX_GPUS:,}")
    try:
        sender = canonical_sender(join.sender or DCQCN)
    except ValueError as error:
        raise MessageError(f"job {join.job}: {error}") from None
    return Job(
        name=join.job,
        model=join.model,
        gpus=join.gpus,
        hosts=tuple(join.hosts),
        profile=Profile(join.period_ns, tuple(Phase(p.start_ns, p.end_ns, p.rate_bps) for p in join.phases)),
        flops_per_iteration=_amount(join.flops_per_iteration),
        flows=tuple(
            Flow(_flow_name(f.name), join.job, f.src, f.dst, f.bytes_per_iteration) for f in join.flows
        ),
        silent=join.silent,
        pcie_link=join.pcie_link if join.pcie_bps else "",
        pcie_bps=join.pcie_bps,
        sender=sender,
    )


def _flow_name(name: str) -> str:
    if len(name) > MAX_FLOW_NAME_CHARS:
        raise MessageError(
            f"flow {name[:100]}...: its name has {len(name):,} characters; "
            f"legal: at most {MAX_FLOW_NAME_CHARS:,}"
        )
    return name


def _amount(value: float) -> float:
    """A figure that an agent has measured; 0 (not known) if it is not finite or not above 0."""
    return value if math.isfinite(value) and value > 0 else 0.0
