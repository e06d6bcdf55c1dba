# SPDX-License-Identifier: Apache-2.0
"""The host agent: it speaks for its workers to the controller, and pins their flows in the NIC.

It runs on the data-plane thread and lives by the injected clock. Nothing it does waits for the
controller longer than the answer deadline: without an answer, or without a session, a flow goes by ECMP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from random import Random

from controller.wire import agent_pb2 as pb
from hostagent.assignments import Pin, ProbedPath, SessionSettings
from hostagent.clock import EventClock
from hostagent.counts import ByteSource
from hostagent.fabric_time import FabricTime
from hostagent.job import LATE_TOLERANCE, IterationRecord, Schedule
from hostagent.messages import flow_fallback, flow_opened, hello, iteration_report, job_join
from hostagent.metering import Metering
from hostagent.nic.driver import FIRST_SOURCE_PORT, SENDERS, NicDriver, ReceiveQueue, SendQueue
from hostagent.nic.requester import check_pin
from hostagent.worker import Worker

log = logging.getLogger(__name__)

DEFAULT_CLOCK_POLL_NS = 4_000_000_000
"""How often fabric time is asked for, unless Welcome says otherwise."""
UNKNOWN_NS = 1 << 62
"""The error of a fabric time that nobody has told."""
LINGER_NS = 1_000_000_000
"""How long receiving ends outlive their worker, to acknowledge again what a peer sends again."""


class _Worker:
    """A worker on this host and the state of its flows; `waiting` names flows not yet open."""

    __slots__ = ("asked", "joined", "out", "receive", "trainer", "waiting")

    def __init__(self, trainer: Worker, waiting: dict[str, str]) -> None:
        self.trainer = trainer
        self.joined = False
        self.waiting = waiting
        self.asked: set[str] = set()
        self.out: dict[str, SendQueue] = {}
        self.receive: list[ReceiveQueue] = []

    def read(self) -> Mapping[str, int]:
        """What each flow of the worker has put on the wire so far."""
        return {flow: qp.wire_bytes for flow, qp in self.out.items()}


class Agent:
    """One host's agent.

    `send(message)` is called with `sequence` and `time_ns` filled, only between `session_up` and
    `session_lost`. `addresses` maps host names to IPv4 addresses. `seed` fixes the source ports that ECMP
    flows draw: a port depends on the seed and the flow's name alone, so two runs with one seed agree.
    `shared_clock` says that `clock` is the fabric's own; otherwise the controller is asked for its time.
    `byte_source(job)` gives another source of a job's byte counts than its queue pairs.
    `on_answer(flow, pin)` hears of each assignment, `on_session(up)` of the session.
    `fallen` are the flows that go by ECMP instead of by their pins, each with the reason.
    No flow waits for the controller longer than `most_wait_ns`, whatever the controller says (0: that).
    `present()` reads the clock where `clock.now` may lag behind it, as it does within a callback on a host.
    `on_clock()` hears of each answer to what time it is.
    """

    def __init__(
        self,
        host: str,
        ip: str,
        nic: NicDriver,
        clock: EventClock,
        send: Callable[[pb.AgentMessage], None],
        *,
        addresses: Mapping[str, str],
        seed: int = 0,
        shared_clock: bool = True,
        byte_source: Callable[[str], ByteSource] | None = None,
        most_wait_ns: int = 0,
        present: Callable[[], int] | None = None,
    ) -> None:
        self.host = host
        self.ip = ip
        self.connected = False
        self.welcomed = False
        self.marking = SessionSettings()
        self.pins: dict[str, Pin] = {}
        self.schedules: dict[str, Schedule] = {}
        self.senders: dict[str, str] = {}
        self.probes: dict[str, ProbedPath] = {}
        self.refusals: list[str] = []
        self.fallen: dict[str, str] = {}
        self.on_answer: Callable[[str, Pin], None] | None = None
        self.on_session: Callable[[bool], None] | None = None
        self.on_clock: Callable[[], None] | None = None
        self.time = FabricTime(shared=shared_clock)
        self._nic = nic
        self._clock = clock
        self._send_message = send
        self._addresses = addresses
        self._seed = seed
        self._most_wait_ns = most_wait_ns
        self._present = present or (lambda: clock.now)
        self._sequence = 0
        self._workers: dict[tuple[str, int], _Worker] = {}
        self.metering = Metering(clock, self.time, self._send_counts, byte_source)
        self.clock_poll_ns = DEFAULT_CLOCK_POLL_NS
        self._clock_round = 0

    # -- the session

    def session_up(self) -> None:
        """A session with a controller is open: say who we are."""
        self.connected = True
        self.welcomed = False
        self._send(hello(self.host, self.ip, self._nic))

    def session_lost(self) -> None:
        """The session is gone: flows go on as they are, and those that wait for an answer go by ECMP."""
        self.connected = self.welcomed = False
        self._clock_round += 1
        self.metering.clear()
        for worker in list(self._workers.values()):
            self._open_waiting(worker)
        if self.on_session is not None:
            self.on_session(False)

    def on_message(self, message: pb.ControllerMessage, arrived_ns: int | None = None) -> None:
        """A message of the controller, which came when the clock showed `arrived_ns` (None: just now). Raises
        ValueError, and does nothing, for what it cannot mean."""
        kind = message.WhichOneof("body")
        if kind == "welcome":
            self._on_welcome(message.welcome)
        elif kind == "flow":
            self._on_assignment(message.flow)
        elif kind == "schedule":
            said = message.schedule
            realign = said.realign or LATE_TOLERANCE
            schedule = Schedule(said.epoch_ns, said.shift_ns, said.period_ns, realign, said.once)
            self.schedules[said.job] = schedule
            self.senders[said.job] = said.sender
            for (job, _), worker in list(self._workers.items()):
                if job == said.job:
                    worker.trainer.set_schedule(schedule)
                    self._set_sender(worker)
        elif kind == "probe_result":
            result = message.probe_result
            self.probes[result.flow] = ProbedPath(tuple(result.path), result.verified)
        elif kind == "measure":
            self.metering.request(message.measure)
        elif kind == "clock":
            reply = message.clock
            arrived = self._present() if arrived_ns is None else arrived_ns
            self.time.add(reply.sent_ns, reply.received_ns, reply.replied_ns, arrived)
            if self.on_clock is not None:
                self.on_clock()
        elif kind == "refusal":
            self.refusals.append(message.refusal.what)
            log.warning("agent %s: the controller refuses: %s", self.host, message.refusal.what)

    def probe(self, flow: str) -> None:
        """Ask the controller to verify the path of a flow; the answer comes into `probes`."""
        self._send(pb.AgentMessage(probe_request=pb.ProbeRequest(flow=flow)))

    # -- the workers

    def add_worker(self, trainer: Worker, join_ns: int) -> None:
        """Bring a worker's job to the fabric at `join_ns`, and its training loop up when its flows are open.

        Raises ValueError for a worker that runs already, or a flow with a host without an address.
        """
        spec, key = trainer.spec, (trainer.spec.name, trainer.rank)
        if spec.hosts[trainer.rank] != self.host:
            raise ValueError(f"job {spec.name}: rank {trainer.rank} belongs to {spec.hosts[trainer.rank]}")
        if key in self._workers:
            raise ValueError(f"job {spec.name}: rank {trainer.rank} runs already on {self.host}")
        for host in {host for pair in spec.ring for host in pair} - self._addresses.keys():
            raise ValueError(f"job {spec.name}: host {host} has no address")
        at = max(join_ns, self._clock.now)
        ends = {spec.flow_name(src, dst): dst for src, dst in spec.ring if src == self.host}
        worker = self._workers[key] = _Worker(trainer, ends)
        trainer.keep_time(self.fabric_time)
        self._clock.call_at(at, self._join, worker)

    def job_left(self, trainer: Worker) -> None:
        """A worker is done: close its flows and tell the controller."""
        name = trainer.spec.name
        worker = self._workers.pop((name, trainer.rank))
        self.metering.left(trainer)
        for flow, qp in worker.out.items():
            qp.close()
            self.pins.pop(flow, None)
            self.fallen.pop(flow, None)
        self._clock.call_at(self._clock.now + LINGER_NS, _close_all, worker.receive)
        if all(job != name for job, _ in self._workers):
            self.schedules.pop(name, None)
            self.senders.pop(name, None)
        if self.welcomed and worker.joined:
            self._send(pb.AgentMessage(job_leave=pb.JobLeave(job=name, rank=trainer.rank)))

    def report(self, *records: IterationRecord) -> None:
        """Tell the controller of iterations, in one message; not of silent jobs'. Times are the host's."""
        if not self.welcomed:
            return
        error_ns = self.fabric_time()[1]
        told = [iteration_report(r, self.time.to_fabric, error_ns) for r in records if not self._silent(r)]
        if told:
            self._send(pb.AgentMessage(earlier=told[:-1], iteration=told[-1]))

    def fabric_time(self) -> tuple[int, int]:
        """The present fabric time as this host knows it, and how far off it may be, in ns."""
        now = self._clock.now
        if not self.time.known:
            return now, UNKNOWN_NS
        return self.time.to_fabric(now), self.time.error_ns(now)

    def source_port(self, flow: str) -> int:
        """The source port a flow draws when it goes by ECMP."""
        return Random(f"{self._seed}/{flow}").randrange(FIRST_SOURCE_PORT, 0x10000)

    def port_of(self, flow: str, pin: Pin) -> int:
        """Where a flow of that pin goes: a fallen one, or one without a port, by ECMP."""
        return self.source_port(flow) if flow in self.fallen else pin.source_port or self.source_port(flow)

    def queue_pairs(self) -> Mapping[str, SendQueue]:
        """The sending ends of all flows that are open here."""
        return {flow: qp for worker in self._workers.values() for flow, qp in worker.out.items()}

    def fall_back(self, flow: str, why: str) -> None:
        """Let a pinned flow go by ECMP, for a reason, or (without one) by its pin again; the controller hears
        of both. A pin to another port ends it by itself."""
        if why:
            self.fallen[flow] = why
        else:
            self.fallen.pop(flow, None)
        self._tell_fallen(flow)
        qp = self.queue_pairs().get(flow)
        if qp is not None and flow in self.pins:
            self._place(flow, qp)

    def request(self, flow: str) -> None:
        """Ask the controller for a flow's path; the answer comes to `on_answer`."""
        self._send(pb.AgentMessage(flow_request=pb.FlowRequest(flow=flow)))

    @property
    def deadline_ns(self) -> int:
        """How long a flow waits for the controller's answer."""
        said = self.marking.deadline_ns
        return min(said, self._most_wait_ns) if self._most_wait_ns else said

    # -- inside

    def _silent(self, record: IterationRecord) -> bool:
        worker = self._workers.get((record.job, record.rank))
        return worker is not None and worker.trainer.spec.silent

    def _send(self, message: pb.AgentMessage | None) -> None:
        if self.connected and message is not None:
            self._sequence += 1
            message.sequence = self._sequence
            message.time_ns = max(0, self.fabric_time()[0])
            self._send_message(message)

    def _send_counts(self, counts: pb.ByteCounts) -> None:
        self._send(pb.AgentMessage(byte_counts=counts))

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        self.welcomed = True
        self.marking = SessionSettings.of(welcome)
        self._nic.set_control_dscp(welcome.cnp_dscp, welcome.ack_dscp)
        self.clock_poll_ns = welcome.clock_poll_ns or DEFAULT_CLOCK_POLL_NS
        self._clock_round += 1
        if not self.time.shared:
            self._ask_time(self._clock_round)
        for worker in list(self._workers.values()):
            if worker.joined:
                self._announce(worker)
        for flow in self.fallen.keys() - self.queue_pairs().keys():
            self._tell_fallen(flow)
        if self.on_session is not None:
            self.on_session(True)

    def _ask_time(self, round_: int) -> None:
        """Ask for fabric time now and every so often, as long as this session lasts."""
        if round_ == self._clock_round:
            now = self._present()
            self._send(pb.AgentMessage(clock_request=pb.ClockRequest(sent_ns=now)))
            self._clock.call_at(now + self.clock_poll_ns, self._ask_time, round_)

    def _on_assignment(self, said: pb.FlowAssignment) -> None:
        pin = Pin(said.source_port, said.dscp, said.rate_cap_bps)
        check_pin(said.flow, pin.source_port or FIRST_SOURCE_PORT, pin.dscp)
        before = self.pins.get(said.flow)
        self.pins[said.flow] = pin
        moved = before is None or before.source_port != pin.source_port
        if moved and self.fallen.pop(said.flow, None) is not None:
            self._tell_fallen(said.flow)
        for worker in list(self._workers.values()):
            if said.flow in worker.out:
                self._place(said.flow, worker.out[said.flow])
                self._tell_level(worker)
            elif said.flow in worker.waiting and worker.joined:
                self._open_flow(worker, said.flow)
        if self.on_answer is not None:
            self.on_answer(said.flow, pin)

    def _tell_fallen(self, flow: str) -> None:
        pin = self.pins.get(flow)
        if self.welcomed and pin is not None:
            self._send(flow_fallback(flow, pin.source_port, self.fallen.get(flow, "")))

    def _place(self, flow: str, qp: SendQueue) -> None:
        pin = self.pins[flow]
        port = self.port_of(flow, pin)
        qp.repin(port, pin.dscp)
        qp.set_rate_cap(pin.rate_cap_bps)
        if port != pin.source_port and self._nic.pinning != "none":
            self._send(flow_opened(self._nic, qp, port))

    def _join(self, worker: _Worker) -> None:
        trainer = worker.trainer
        if trainer.done:
            return
        worker.joined = True
        spec = trainer.spec
        for src, dst in spec.ring:
            if dst == self.host:
                queue = self._nic.listen(spec.flow_name(src, dst), self._addresses[src], trainer.on_bytes)
                worker.receive.append(queue)
        self.metering.joined(trainer, worker.read)
        schedule = self.schedules.get(spec.name)
        if schedule is not None:
            trainer.set_schedule(schedule)
        self._set_sender(worker)
        if not self.connected:
            self._open_waiting(worker)
            return
        self._clock.call_at(self._clock.now + self.deadline_ns, self._open_waiting, worker)
        if self.welcomed:
            self._announce(worker)
        if not worker.waiting:
            self._start(worker)

    def _set_sender(self, worker: _Worker) -> None:
        """The congestion control that the plan wants for the job, or that the job chose."""
        spec, told = worker.trainer.spec, self.senders.get(worker.trainer.spec.name)
        self._nic.set_sender(spec.name, told if told in SENDERS else spec.sender)

    def _announce(self, worker: _Worker) -> None:
        """Tell the controller of a worker's job, and ask for its flows: for those that are open too, since
        what was asked in an earlier session, perhaps of another controller, is forgotten."""
        self._send(pb.AgentMessage(job_join=job_join(worker.trainer.spec, worker.trainer.rank)))
        mice = worker.trainer.spec.bytes_per_iteration < self.marking.elephant_bytes
        for flow, qp in worker.out.items():
            self._send(flow_opened(self._nic, qp, qp.source_port))
            if flow in self.fallen:
                self._tell_fallen(flow)
            if not mice:
                self.request(flow)
        for flow in list(worker.waiting):
            if mice or flow in self.pins:
                self._open_flow(worker, flow)
            elif flow not in worker.asked:
                worker.asked.add(flow)
                self.request(flow)

    def _open_waiting(self, worker: _Worker) -> None:
        """No answer in time, or nobody to answer: what waits goes as it is known, else by ECMP."""
        if worker.trainer.done or not worker.joined:
            return
        for flow in list(worker.waiting):
            self._open_flow(worker, flow)
        self._start(worker)

    def _open_flow(self, worker: _Worker, flow: str) -> None:
        dst = worker.waiting.pop(flow)
        marking = self.marking
        mice = worker.trainer.spec.bytes_per_iteration < marking.elephant_bytes
        pin = self.pins.get(flow) or Pin(0, marking.mice_dscp if mice else marking.equal_dscp)
        port = self.port_of(flow, pin)
        qp = self._nic.open_qp(flow, self._addresses[dst], port, pin.dscp)
        qp.set_rate_cap(pin.rate_cap_bps)
        worker.out[flow] = qp
        self._send(flow_opened(self._nic, qp, qp.source_port))
        self._start(worker)

    def _tell_level(self, worker: _Worker) -> None:
        """Who goes first on what jobs share within the host is as in the fabric."""
        worker.trainer.set_level(self.marking.level(self.pins[f] for f in worker.out if f in self.pins))

    def _start(self, worker: _Worker) -> None:
        if not worker.waiting and not worker.trainer.running:
            self._tell_level(worker)
            worker.trainer.open(tuple(worker.out.values()), tuple(worker.receive))


def _close_all(queues: list[ReceiveQueue]) -> None:
    for queue in queues:
        queue.close()
