# SPDX-License-Identifier: Apache-2.0
"""A GPU host of the embedded fabric, or one rail of it: NIC, agent and training loops on one clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from controller.wire import agent_pb2 as pb
from hostagent.agent import Agent
from hostagent.clock import EventClock, SkewedClock
from hostagent.emulated_worker import EmulatedWorker
from hostagent.job import IterationRecord, JobSpec, MeasuredPhase, MeasuredProfile, PcieUse, jittered_start
from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.emulated import EmulatedNic
from hostagent.nic.roce import overhead_bytes
from hostagent.pcie_transfer import EmulatedPcieLink
from hostagent.phase_barrier import PhaseBarrier

JOIN_LEAD_NS = 15_000_000
"""How long before its start a worker joins. Chosen: the answer deadline (10 ms) and the control delays fit
in."""


@dataclass(frozen=True, slots=True)
class Skew:
    """How far a host's clock is off: `offset_ns` ahead at time 0, gaining `drift_ppm` millionths of the time
    since.
    """

    offset_ns: int = 0
    drift_ppm: float = 0.0


class EmulatedHost:
    """One emulated host.

    `transmit(frame)` is called as the last bit of a frame leaves the NIC, `receive(frame)` takes a frame from
    the link. `send(message)` takes the agent's messages. All run on the data-plane thread. `rate_bps`: the
    rate of the emulated link. `dcqcn` None: the profile scaled to that rate. `addresses`: host name -> IP
    address of every host. `seed` must be the same on all hosts of a fabric; each draw also uses the name of
    its host, flow or rank. `records`: the finished iterations of each worker, in the order of their ends, in
    the times of `clock`. With `skew` the agent reads another clock than `clock`, and has to ask the
    controller for fabric time. `chooses_ports`, `keeps_dscp` and `any_order`: see EmulatedNic.
    `shares_session`: see Agent.
    """

    def __init__(
        self,
        name: str,
        ip: str,
        mac: str,
        gateway_mac: str,
        rate_bps: int,
        *,
        clock: EventClock,
        transmit: Callable[[bytes], None],
        send: Callable[[pb.AgentMessage], None],
        addresses: Mapping[str, str],
        dcqcn: DcqcnProfile | None = None,
        mtu: int = 1024,
        seed: int = 0,
        skew: Skew | None = None,
        chooses_ports: bool = False,
        keeps_dscp: bool = False,
        any_order: bool = False,
        shares_session: bool = False,
    ) -> None:
        profile = dcqcn or DcqcnProfile.scaled(rate_bps, mtu + overhead_bytes(ip))
        self.name = name
        self.nic = EmulatedNic(
            name,
            ip,
            mac,
            gateway_mac,
            rate_bps,
            clock=clock,
            transmit=transmit,
            dcqcn=profile,
            mtu=mtu,
            seed=seed,
            chooses_ports=chooses_ports,
            keeps_dscp=keeps_dscp,
            any_order=any_order,
        )
        self._skewed = None if skew is None else SkewedClock(clock, skew.offset_ns, skew.drift_ppm)
        self.agent = Agent(
            name,
            ip,
            self.nic,
            self._skewed or clock,
            send,
            addresses=addresses,
            seed=seed,
            shared_clock=skew is None,
            shares_session=shares_session,
        )
        self.workers: dict[tuple[str, int], EmulatedWorker] = {}
        self._pcie: dict[str, EmulatedPcieLink] = {}
        self.records: list[IterationRecord] = []
        self.receive = self.nic.receive
        self._clock = clock
        self._seed = seed

    def add_worker(
        self,
        spec: JobSpec,
        rank: int,
        start_ns: int,
        iterations: int = 0,
        *,
        start_jitter_ns: int = 0,
        join_lead_ns: int = JOIN_LEAD_NS,
        on_iteration: Callable[[IterationRecord], None] | None = None,
        barrier: PhaseBarrier | None = None,
    ) -> EmulatedWorker:
        """Run a worker from `start_ns` plus a uniform draw of up to `start_jitter_ns`.

        It joins `join_lead_ns` before `start_ns`, or now if that is past. `iterations` 0: until it is
        stopped. `on_iteration` is called for each finished iteration, after the report to the controller.
        `barrier`: that of the job's workers on all hosts, if they have one.
        Raises ValueError for a worker that does not belong to this host, or runs already.
        """
        worker = EmulatedWorker(
            spec,
            rank,
            self._clock,
            start_ns + jittered_start(self._seed, spec.name, rank, start_jitter_ns),
            iterations,
            on_iteration=self._iteration if on_iteration is None else partial(self._report_to, on_iteration),
            on_done=self.agent.job_left,
            seed=self._seed,
            copier=None if spec.pcie is None else self._pcie_link(spec.pcie).copier(),
            barrier=barrier,
        )
        if spec.increase_timer != 1.0:
            self.nic.set_increase_timer(spec.name, spec.increase_timer)
        self.agent.add_worker(worker, self._host_time(start_ns - join_lead_ns))
        self.workers[spec.name, rank] = worker
        return worker

    def _pcie_link(self, use: PcieUse) -> EmulatedPcieLink:
        """The link of that name. The first worker that names it sets its rate."""
        if use.link not in self._pcie:
            self._pcie[use.link] = EmulatedPcieLink(self._clock, use.rate_bps)
        return self._pcie[use.link]

    def stop_worker(self, job: str, rank: int) -> None:
        """End a worker's loop now; the controller receives JobLeave. Does nothing if the worker has ended."""
        worker = self.workers.get((job, rank))
        if worker is not None:
            worker.stop()

    def _report_to(self, on_iteration: Callable[[IterationRecord], None], record: IterationRecord) -> None:
        self._iteration(record)
        on_iteration(record)

    def _iteration(self, record: IterationRecord) -> None:
        self.records.append(record)
        # An agent reports the times of its host's clock.
        start, end = self._host_time(record.start_ns), self._host_time(record.end_ns)
        self.agent.report(replace(record, start_ns=start, end_ns=end))

    def _host_time(self, time_ns: int) -> int:
        return time_ns if self._skewed is None else self._skewed.reading(time_ns)


def measured_profile(records: Sequence[IterationRecord], spec: JobSpec, skip: int = 1) -> MeasuredProfile:
    """The profile of a job from the records of one worker, without the first `skip` (CASSINI thesis, 4.3).

    It takes medians over iterations, without the waits for slots. The rate of a phase is what one flow of the
    worker put on the wire, headers included, divided by the length of the phase. Raises ValueError if there
    is no record to measure, or for records of several workers.
    """
    if len({(record.job, record.rank) for record in records}) > 1:
        raise ValueError(f"job {spec.name}: a profile is measured on the records of one worker")
    measured = [record for record in records if record.index >= skip]
    if not measured:
        raise ValueError(f"job {spec.name}: no iteration after the first {skip} to measure")
    host = spec.hosts[measured[0].rank]
    sends = [k for k, (src, _) in enumerate(spec.ring) if src == host]
    phases = []
    for index, phase in enumerate(spec.phases):
        own = [phase.bytes_of(k) for k in sends]
        if phase.most_bytes and any(own):
            start = int(median(record.phases[index][0] for record in measured))
            length = int(median(record.phases[index][1] - record.phases[index][0] for record in measured))
            sent = median(record.wire_bytes[index] for record in measured)
            largest = phase.most_bytes / sum(own)
            phases.append(MeasuredPhase(start, start + length, int(sent * 8e9 * largest / max(1, length))))
    period = int(median(record.end_ns - record.start_ns - record.held_ns for record in measured))
    return MeasuredProfile(period, tuple(phases))
