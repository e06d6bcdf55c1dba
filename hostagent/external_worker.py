# SPDX-License-Identifier: Apache-2.0
"""A worker of a real training job: a process that has joined through the agent's socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hostagent.declared import setting
from hostagent.job import (
    FREE,
    MOST_NS,
    UNPLANNED,
    IterationRecord,
    JobSpec,
    MeasuredPhase,
    MeasuredProfile,
    PcieUse,
    PhaseSpec,
    Schedule,
)
from hostagent.nic.driver import ReceiveQueue, SendQueue
from hostagent.worker import ReadFabricTime

_MOST_CLOCK_NS = 1 << 61
_MOST_INDEX = (1 << 32) - 1
SendEvent = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMessage:
    """What a training process says of its job; as JSON, the body of "join"."""

    job: str = setting("name of the job, without '/'")
    hosts: tuple[str, ...] = setting("names of its hosts, in the order of their ranks")
    rank: int = setting("which of them this is", least=0)
    ring: tuple[tuple[str, str], ...] = setting("its flows, [source, destination] host; empty: a ring", ())
    model: str = setting("name of the model", "")
    gpus: int = setting("of the whole job; 0: one a host", 0, least=0)
    flops_per_iteration: float = setting("of the whole job", 0.0, least=0.0)
    bytes_per_flow: int = setting("bytes a flow carries in an iteration; 0: line rate", 0, least=0)
    period_ns: int = setting("length of an iteration alone", least=1)
    phases: tuple[tuple[int, int], ...] = setting(
        "[start, end] of each Up phase in ns from the first; empty: all of it", (), least=0
    )
    silent: bool = setting("it will not report its iterations", False)
    pcie_link: str = setting("the PCIe link of each host by which its GPUs reach the NIC", "")
    pcie_bps: int = setting("its rate; 0: not known, and the plan leaves it out", 0, least=0)

    def spec(self, line_bps: int) -> JobSpec:
        """The job. Raises ValueError for one that cannot be."""
        hosts = self.hosts
        around = tuple((host, hosts[(i + 1) % len(hosts)]) for i, host in enumerate(hosts))
        phases = self.phases or ((0, self.period_ns),)
        end = 0
        for phase in phases:
            if not end <= phase[0] < phase[1] <= self.period_ns:
                raise ValueError(f"job {self.job}: phases must be sorted, disjoint and within the period")
            end = phase[1]
        up_ns = sum(end - start for start, end in phases)
        size = self.bytes_per_flow or line_bps * up_ns // (8 * 10**9)
        rate_bps = max(1, size * 8 * 10**9 // up_ns)
        return JobSpec(
            name=self.job,
            model=self.model or self.job,
            gpus=self.gpus or len(hosts),
            hosts=hosts,
            ring=self.ring or (around if len(hosts) > 1 else ()),
            phases=(PhaseSpec(up_ns, size, 0, self.period_ns - up_ns),),
            flops_per_iteration=self.flops_per_iteration,
            profile=MeasuredProfile(self.period_ns, tuple(MeasuredPhase(*p, rate_bps) for p in phases)),
            silent=self.silent,
            pcie=PcieUse(self.pcie_link, self.pcie_bps) if self.pcie_link and self.pcie_bps else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMessage:
    """An iteration that a training process has done; times on the host's monotonic clock."""

    index: int = setting("from 0", least=0, most=_MOST_INDEX)
    start_ns: int = setting("start of the first Up phase", least=0, most=_MOST_CLOCK_NS)
    end_ns: int = setting("start of the next iteration's", least=0, most=_MOST_CLOCK_NS)
    communication_ns: int = setting("time in Up phases", 0, least=0, most=MOST_NS)
    held_ns: int = setting("delay put in by the schedule", 0, least=0, most=MOST_NS)
    drift_ns: int = setting("how late it began after its slot", 0, least=0, most=MOST_NS)
    realigned: bool = setting("it had drifted too far, and waited for the next slot", False)


class ExternalWorker:
    """The worker as the agent knows it; what it is told goes to its process by `tell`."""

    def __init__(self, spec: JobSpec, rank: int, tell: SendEvent, to_local: Callable[[int], int]) -> None:
        self.spec = spec
        self.rank = rank
        self.running = self.done = False
        self.flops = 0.0
        self._counted = (0, 0)
        self._tell = tell
        self._to_local = to_local
        self._fabric_time: ReadFabricTime = lambda: (0, 0)
        self._schedule = FREE
        self._level = UNPLANNED
        self._out: Sequence[SendQueue] = ()

    def open(self, out: Sequence[SendQueue], receive: Sequence[ReceiveQueue]) -> None:
        """Its flows have their places: say so."""
        self._out = out
        self.running = True
        self.tell_flows()

    def keep_time(self, fabric_time: ReadFabricTime) -> None:
        """Hold schedules by this idea of fabric time."""
        self._fabric_time = fabric_time

    def set_schedule(self, schedule: Schedule) -> None:
        """Pass a schedule on, in the host's time."""
        self._schedule = schedule
        self.tell_schedule()

    def set_level(self, level: int) -> None:
        """Pass the job's level on, if that is news."""
        if level != self._level:
            self._level = level
            self._tell({"event": "level", "level": level})

    def on_bytes(self, queue: ReceiveQueue, size: int) -> None:
        """Nothing is seen of what arrives."""

    def tell_flows(self) -> None:
        """Where each of its flows goes now."""
        flows = {qp.flow: {"source_port": qp.source_port, "dscp": qp.dscp} for qp in self._out}
        self._tell({"event": "flows", "flows": flows})

    def tell_schedule(self) -> None:
        """When it talks, on the host's clock as far as that is known by now."""
        schedule = self._schedule
        slot = self._to_local(schedule.epoch_ns + schedule.shift_ns)
        self._tell(
            {
                "event": "schedule",
                "slot_ns": slot,
                "period_ns": schedule.period_ns,
                "realign": schedule.realign,
                "once": schedule.once,
                "error_ns": self._fabric_time()[1],
            }
        )

    def record(self, step: StepMessage) -> IterationRecord:
        """The iteration as the agent reports it."""
        sent, again = sum(qp.bytes_acked for qp in self._out), sum(qp.retransmits for qp in self._out)
        before, self._counted = self._counted, (sent, again)
        self.flops += self.spec.flops_per_iteration / len(self.spec.hosts)
        span = max(0, step.end_ns - step.start_ns)
        return IterationRecord(
            job=self.spec.name,
            rank=self.rank,
            index=step.index,
            start_ns=step.start_ns,
            end_ns=step.end_ns,
            communication_ns=step.communication_ns,
            bytes_sent=sent - before[0] or self.spec.bytes_per_iteration * len(self._out),
            ecn_marks=0,
            retransmits=again - before[1],
            held_ns=step.held_ns,
            phases=(),
            wire_bytes=(),
            compute_ns=max(0, span - step.communication_ns - step.held_ns),
            flops=self.spec.flops_per_iteration / len(self.spec.hosts),
            drift_ns=step.drift_ns,
            realigned=step.realigned,
        )
