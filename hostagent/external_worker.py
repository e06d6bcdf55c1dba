# SPDX-License-Identifier: Apache-2.0
"""A worker that is not the agent's own: a training process that joined over the agent's socket, or a job that
the agent only observes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from controller.wire.limits import MAX_NAME_CHARS
from controller.wire.traffic_config import TrafficConfig
from hostagent.job import (
    MOST_NS,
    IterationRecord,
    JobSpec,
    MeasuredPhase,
    MeasuredProfile,
    PcieUse,
    PhaseSpec,
)
from hostagent.job_traffic import expanded
from hostagent.nic.driver import ReceiveQueue, SendQueue
from hostagent.worker import ReadFabricTime
from polyrhythm_files import MAX_WHOLE, Section, Whole, finite
from polyrhythm_job.protocol import NO_LEVEL, flows_event, level_event, schedule_event
from polyrhythm_job.schedule import UNSCHEDULED, Schedule

_MOST_CLOCK_NS = 1 << 61
_MOST_INDEX = (1 << 32) - 1
SendEvent = Callable[[Mapping[str, Any]], None]


class JoinMessage(Section, frozen=True, kw_only=True):
    """The fields of a "join" request: a training process describes its job."""

    job: Annotated[str, Meta(max_length=MAX_NAME_CHARS, description="name of the job, without '/'")]
    hosts: Annotated[tuple[str, ...], Meta(description="names of its hosts, in the order of their ranks")]
    rank: Annotated[int, Meta(ge=0, le=MAX_WHOLE, description="the place of this host among them")]
    ring: Annotated[
        tuple[tuple[str, str], ...], Meta(description="its flows, [source, destination] host; empty: a ring")
    ] = ()
    model: Annotated[str, Meta(max_length=MAX_NAME_CHARS, description="name of the model")] = ""
    gpus: Annotated[int, Meta(ge=0, le=MAX_WHOLE, description="of the whole job; 0: one a host")] = 0
    flops_per_iteration: Annotated[float, finite(0.0, what="of the whole job")] = 0.0
    bytes_per_flow: Annotated[
        int, Meta(ge=0, le=MAX_WHOLE, description="bytes a flow carries in an iteration; 0: line rate")
    ] = 0
    period_ns: Annotated[int, Meta(ge=1, le=MAX_WHOLE, description="length of an iteration alone")]
    phases: Annotated[
        tuple[tuple[Whole, Whole], ...],
        Meta(description="[start, end] of each Up phase in ns from the start of the first; empty: all of it"),
    ] = ()
    traffic: Annotated[
        TrafficConfig | None,
        Meta(
            description="what the job is; its flows and their bytes follow. Not with ring or bytes_per_flow"
        ),
    ] = None
    rails: Annotated[
        int, Meta(ge=1, le=64, description="so many neighbours in hosts are NICs of one server")
    ] = 1
    silent: Annotated[bool, Meta(description="it will not report its iterations")] = False
    pcie_link: Annotated[str, Meta(description="the PCIe link between its GPUs and the NIC on each host")] = (
        ""
    )
    pcie_bps: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_WHOLE,
            description="the rate of that link; 0: unknown, then the plan ignores the link",
        ),
    ] = 0

    def spec(self, line_bps: int) -> JobSpec:
        """The job, for a NIC of `line_bps`. Raises ValueError for an impossible one."""
        hosts, rails = self.hosts, self.rails
        if len(hosts) % rails:
            raise ValueError(
                f"job {self.job}: {len(hosts)} hosts, {rails} rails; legal: as many hosts on each rail"
            )
        # On each rail, from every server to the next one.
        around = tuple((host, hosts[(i + rails) % len(hosts)]) for i, host in enumerate(hosts))
        phases = self.phases or ((0, self.period_ns),)
        end = 0
        for phase in phases:
            if not end <= phase[0] < phase[1] <= self.period_ns:
                raise ValueError(f"job {self.job}: phases must be sorted, disjoint and within the period")
            end = phase[1]
        up_ns = sum(end - start for start, end in phases)
        ring = self.ring or (around if len(hosts) > rails else ())
        sizes: int | tuple[int, ...] = self.bytes_per_flow or line_bps * up_ns // (8 * 10**9)
        if self.traffic is not None:
            ring, sizes = self._expanded(self.traffic)
        rate_bps = max(1, (sizes if isinstance(sizes, int) else max(sizes)) * 8 * 10**9 // up_ns)
        return JobSpec(
            name=self.job,
            model=self.model or self.job,
            gpus=self.gpus or len(hosts),
            hosts=hosts,
            ring=ring,
            phases=(PhaseSpec(up_ns, sizes, 0, self.period_ns - up_ns),),
            flops_per_iteration=self.flops_per_iteration,
            profile=MeasuredProfile(self.period_ns, tuple(MeasuredPhase(*p, rate_bps) for p in phases)),
            silent=self.silent,
            pcie=PcieUse(self.pcie_link, self.pcie_bps) if self.pcie_link and self.pcie_bps else None,
        )

    def _expanded(self, config: TrafficConfig) -> tuple[tuple[tuple[str, str], ...], tuple[int, ...]]:
        """The flows of what the job is, and the bytes of each in an iteration."""
        if self.ring or self.bytes_per_flow:
            raise ValueError(
                f"job {self.job}: ring and bytes_per_flow follow from traffic; legal: one of both"
            )
        traffic, flows = expanded(self.job, config, self.hosts, self.gpus or len(self.hosts), self.rails)
        sizes = tuple(f.iteration_bytes(traffic.exchanges) for f in flows)
        return tuple((f.src, f.dst) for f in flows), sizes

    def ranks(self) -> range:
        """The ranks of the NICs of this server: a process on a server with several rails joins for all."""
        first = self.rank - self.rank % self.rails
        return range(first, first + self.rails)


class StepMessage(Section, frozen=True, kw_only=True):
    """The fields of a "step" request: an iteration has ended. Times are on the host's monotonic clock."""

    index: Annotated[int, Meta(ge=0, le=_MOST_INDEX, description="from 0")]
    start_ns: Annotated[int, Meta(ge=0, le=_MOST_CLOCK_NS, description="start of the first Up phase")]
    end_ns: Annotated[
        int, Meta(ge=0, le=_MOST_CLOCK_NS, description="start of the next iteration's first Up phase")
    ]
    communication_ns: Annotated[int, Meta(ge=0, le=MOST_NS, description="time in Up phases")] = 0
    held_ns: Annotated[int, Meta(ge=0, le=MOST_NS, description="how long it waited for its slot")] = 0
    drift_ns: Annotated[int, Meta(ge=0, le=MOST_NS, description="how late it began after its slot")] = 0
    realigned: Annotated[
        bool, Meta(description="it was too late for its slot, and waited for the next one")
    ] = False


class ExternalWorker:
    """The worker as the agent sees it. Events for its process go to `send`; `to_local` turns fabric time into
    the host's."""

    def __init__(self, spec: JobSpec, rank: int, send: SendEvent, to_local: Callable[[int], int]) -> None:
        self.spec = spec
        self.rank = rank
        self.running = self.done = False
        self.flops = 0.0
        self._counted = (0, 0)
        self._send = send
        self._to_local = to_local
        self._fabric_time: ReadFabricTime = lambda: (0, 0)
        self._schedule = UNSCHEDULED
        self._level = NO_LEVEL
        self._out: Sequence[SendQueue] = ()
        self._flow_bytes = 0

    def open(self, out: Sequence[SendQueue], receive: Sequence[ReceiveQueue]) -> None:
        """Take the flows that are open, and tell the process where they go."""
        self._out = out
        sizes = self.spec.flow_bytes()
        self._flow_bytes = sum(sizes[qp.flow] for qp in out)
        self.running = True
        self.send_flows()

    def keep_time(self, fabric_time: ReadFabricTime) -> None:
        """Read the error of fabric time here."""
        self._fabric_time = fabric_time

    def set_schedule(self, schedule: Schedule) -> None:
        """Send the job's slots to the process, in the host's time."""
        self._schedule = schedule
        self.send_schedule()

    def set_level(self, level: int) -> None:
        """Send the job's level to the process if it has changed."""
        if level != self._level:
            self._level = level
            self._send(level_event(level))

    def on_bytes(self, queue: ReceiveQueue, size: int) -> None:
        """Not called: the agent does not see the bytes of another process."""

    def send_flows(self) -> None:
        """Send the source port and DSCP of each flow to the process."""
        self._send(flows_event({qp.flow: (qp.source_port, qp.dscp) for qp in self._out}))

    def send_schedule(self) -> None:
        """Send the job's slots to the process, on the host's clock as far as fabric time is known now."""
        schedule = self._schedule
        slot_ns = self._to_local(schedule.epoch_ns + schedule.shift_ns)
        self._send(schedule_event(schedule, slot_ns, self._fabric_time()[1]))

    def record(self, step: StepMessage) -> IterationRecord:
        """The iteration as the agent reports it to the controller."""
        sent, retransmits = sum(qp.bytes_acked for qp in self._out), sum(qp.retransmits for qp in self._out)
        before, self._counted = self._counted, (sent, retransmits)
        self.flops += self.spec.flops_per_iteration / len(self.spec.hosts)
        span = max(0, step.end_ns - step.start_ns)
        return IterationRecord(
            job=self.spec.name,
            rank=self.rank,
            index=step.index,
            start_ns=step.start_ns,
            end_ns=step.end_ns,
            communication_ns=step.communication_ns,
            bytes_sent=sent - before[0] or self._flow_bytes,
            ecn_marks=0,
            retransmits=retransmits - before[1],
            held_ns=step.held_ns,
            phases=(),
            wire_bytes=(),
            compute_ns=max(0, span - step.communication_ns - step.held_ns),
            flops=self.spec.flops_per_iteration / len(self.spec.hosts),
            drift_ns=step.drift_ns,
            realigned=step.realigned,
        )
