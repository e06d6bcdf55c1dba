# SPDX-License-Identifier: Apache-2.0
"""The agent of a NIC: it reports its workers to the controller, and pins their flows in the NIC.

It runs on the data-plane thread and on the injected clock. It waits for the controller at most until the
answer deadline: without an answer, or without a session, a flow goes by ECMP.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from controller.wire import agent_pb2 as pb
from controller.wire.rocev2 import ROCE_SOURCE_PORTS, drawn_source_port
from controller.wire.senders import sender_in_force
from hostagent.assignments import Pin, ProbedPath, SessionSettings
from hostagent.clock import EventClock
from hostagent.counts import ByteSource
from hostagent.fabric_time import FabricTime
from hostagent.flow_paths import FlowPathTable
from hostagent.job import IterationRecord
from hostagent.messages import (
    flow_fallback,
    flow_opened,
    hello,
    iteration_report,
    job_join,
    joined_workers,
)
from hostagent.metering import Metering
from hostagent.nic.driver import NicDriver, SendQueue
from hostagent.nic.roce import check_pin
from hostagent.worker import Worker
from hostagent.worker_state import WorkerState, check_worker
from polyrhythm_job.schedule import REALIGN_THRESHOLD, Schedule

log = logging.getLogger(__name__)

DEFAULT_CLOCK_POLL_NS = 4_000_000_000
"""The time between two questions for fabric time, if Welcome gives no other. Chosen: a clock that drifts by
200 ppm is then off by less than 1 ms."""
UNKNOWN_NS = 1 << 62
"""The error of fabric time until the controller has sent the time."""
LINGER_NS = 1_000_000_000
"""How long receiving ends outlive their worker: they acknowledge again what a peer retransmits."""
_MOST_REFUSALS = 10
"""The last refusals of the controller that are kept, to be looked at. Chosen."""


class Agent:
    """The agent of one NIC, which is a host of the fabric's description.

    Parameters:
    `send(message)` is called with `time_ns` filled, only between `session_up` and `session_lost`.
    `shares_session`: the agents of other NICs use the same session, so each message says whose it is.
    `addresses`: host name -> IP address. `seed`: a flow on ECMP draws its source port from the seed and its
    name, so two runs with one seed agree. `shared_clock`: `clock` shows fabric time; otherwise the agent asks
    the controller for it. `byte_source(job)` replaces the queue pairs as the source of a job's byte counts.
    `most_wait_ns`: the longest that a flow waits for the controller, even if the controller allows more (0:
    as the controller says). `present()` reads the clock: on a host `clock.now` stands still within a
    callback. `connects`: the IP protocols of which connections are steered by the socket shim.

    Attributes:
    `settings`: from the controller's Welcome. `pins`, `schedules`, `senders`: the controller's assignments.
    `refusals`: its last refusals.
    `fallen`: the flows that go by ECMP instead of by their pins, each with the reason. `on_answer(flow, pin)`
    is called after each flow assignment, `on_session(up)` when the session begins or ends, `on_clock()` after
    each answer to the question for the time.
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
        shares_session: bool = False,
        connects: tuple[int, ...] = (),
    ) -> None:
        self.host = host
        self.ip = ip
        self.connected = False
        self.welcomed = False
        self.settings = SessionSettings()
        self.pins: dict[str, Pin] = {}
        self.schedules: dict[str, Schedule] = {}
        self.senders: dict[str, str] = {}
        self.probes: dict[str, ProbedPath] = {}
        self.refusals: deque[str] = deque(maxlen=_MOST_REFUSALS)
        self.fallen: dict[str, str] = {}
        self.flow_paths = FlowPathTable(connects)
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
        self._named = host if shares_session else ""
        self._workers: dict[tuple[str, int], WorkerState] = {}
        self.metering = Metering(
            clock, self.time, lambda counts: self._send(pb.AgentMessage(byte_counts=counts)), byte_source
        )
        self.clock_poll_ns = DEFAULT_CLOCK_POLL_NS
        self._clock_round = 0

    # -- session with the controller

    def session_up(self, *, complete: bool = True) -> None:
        """A session with a controller is open: send Hello. `complete`: all workers of the host are known."""
        self.connected = True
        self.welcomed = False
        joined = joined_workers(self.workers) if complete else None
        self._send(hello(self.host, self.ip, self._nic, joined, self.flow_paths.protocols))

    def list_workers(self) -> None:
        """Tell the controller which workers the host has: others that it knows of this host have ended."""
        self._send(pb.AgentMessage(workers=joined_workers(self.workers)))

    def session_lost(self) -> None:
        """The session has ended: open flows stay as they are, flows that wait for an answer go by ECMP."""
        self.connected = self.welcomed = False
        self._clock_round += 1
        self.metering.clear()
        for state in list(self._workers.values()):
            self._open_waiting(state)
        if self.on_session is not None:
            self.on_session(False)

    def on_message(self, message: pb.ControllerMessage, arrived_ns: int | None = None) -> None:
        """Handle a message of the controller that arrived at `arrived_ns` of the clock (None: now).

        Raises ValueError, and changes nothing, for illegal content.
        """
        kind = message.WhichOneof("body")
        if kind == "welcome":
            self._on_welcome(message.welcome)
        elif kind == "flow":
            self._on_assignment(message.flow)
        elif kind == "connection_path":
            self.flow_paths.take(message.connection_path)
        elif kind == "schedule":
            self._on_schedule(message.schedule)
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
        elif kind == "accepted":
            accepted = self._workers.get((message.accepted.job, message.accepted.rank))
            if accepted is not None:
                accepted.accepted = True
        elif kind == "refusal":
            self.refusals.append(message.refusal.what)
            log.warning("agent %s: the controller refuses: %s", self.host, message.refusal.what)

    def probe(self, flow: str) -> None:
        """Ask the controller to verify the path of a flow. The answer appears in `probes`."""
        self._send(pb.AgentMessage(probe_request=pb.ProbeRequest(flow=flow)))

    # -- workers and flows

    def add_worker(self, worker: Worker, join_ns: int) -> None:
        """Announce a worker's job to the controller at `join_ns`, and start the worker when its flows are
        open. Raises ValueError as `check_worker` does.
        """
        self.check_worker(worker)
        spec, at = worker.spec, max(join_ns, self._clock.now)
        state = self._workers[spec.name, worker.rank] = WorkerState(worker, self.host)
        worker.keep_time(self.fabric_time)
        self._clock.call_at(at, self._join, state)

    def check_worker(self, worker: Worker) -> None:
        """Raise ValueError for a worker that cannot run on this host beside its other workers."""
        check_worker(worker, self.host, self._addresses, self._workers)

    def job_left(self, worker: Worker) -> None:
        """A worker has ended: close its flows and tell the controller."""
        name = worker.spec.name
        state = self._workers.pop((name, worker.rank))
        self.metering.left(worker)
        for flow, qp in state.out.items():
            qp.close()
            self.pins.pop(flow, None)
            self.fallen.pop(flow, None)
        self._clock.call_at(self._clock.now + LINGER_NS, state.close_receiving_ends)
        if all(job != name for job, _ in self._workers):
            self.schedules.pop(name, None)
            self.senders.pop(name, None)
            self.flow_paths.forget(name)
        if self.connected and state.joined:
            self._send(pb.AgentMessage(job_leave=pb.JobLeave(job=name, rank=worker.rank)))

    def report(self, *records: IterationRecord) -> None:
        """Report iterations in one message, except those of silent jobs. Times are the host's."""
        if not self.welcomed:
            return
        error_ns = self.fabric_time()[1]
        reports = [iteration_report(r, self.time.to_fabric, error_ns) for r in records if not self._silent(r)]
        if reports:
            self._send(pb.AgentMessage(earlier=reports[:-1], iteration=reports[-1]))

    def fabric_time(self) -> tuple[int, int]:
        """The present fabric time as this host knows it, and the bound of its error, both in ns."""
        now = self._clock.now
        if not self.time.known:
            return now, UNKNOWN_NS
        return self.time.to_fabric(now), self.time.error_ns(now)

    def source_port(self, flow: str) -> int:
        """The source port that a flow draws when it goes by ECMP."""
        return drawn_source_port(flow, self._seed)

    def port_of(self, flow: str, pin: Pin) -> int:
        """The source port of a flow with that pin: ECMP's if the flow has fallen back or the pin has none."""
        return self.source_port(flow) if flow in self.fallen else pin.source_port or self.source_port(flow)

    def queue_pairs(self) -> Mapping[str, SendQueue]:
        """The sending ends of all flows that are open here."""
        return {flow: qp for state in self._workers.values() for flow, qp in state.out.items()}

    def fall_back(self, flow: str, why: str) -> None:
        """Let a pinned flow go by ECMP for the reason `why`; with an empty reason let it go by its pin again.

        The agent reports both to the controller. A new pin to another port also ends the fall-back.
        """
        if why:
            self.fallen[flow] = why
        else:
            self.fallen.pop(flow, None)
        self._send_fallback(flow)
        qp = self.queue_pairs().get(flow)
        if qp is not None and flow in self.pins:
            self._apply_pin(flow, qp)

    def report_connections(self, connections: Sequence[pb.Connection]) -> None:
        """Tell the controller which TCP and UDP connections carry flows, or no longer do."""
        if self.welcomed:
            self._send(pb.AgentMessage(connections=pb.Connections(connections=connections)))

    def request(self, flow: str) -> None:
        """Ask the controller for the source port of a flow. `on_answer` receives the answer."""
        self._send(pb.AgentMessage(flow_request=pb.FlowRequest(flow=flow)))

    @property
    def deadline_ns(self) -> int:
        """How long a flow waits for the controller's answer."""
        return min(self.settings.deadline_ns, self._most_wait_ns or self.settings.deadline_ns)

    @property
    def workers(self) -> Mapping[tuple[str, int], bool]:
        """Job and rank of each worker that has joined, and whether the controller has stored it."""
        return {key: state.accepted for key, state in self._workers.items() if state.joined}

    def _silent(self, record: IterationRecord) -> bool:
        state = self._workers.get((record.job, record.rank))
        return state is not None and state.worker.spec.silent

    def _send(self, message: pb.AgentMessage | None) -> None:
        if self.connected and message is not None:
            message.host = self._named
            message.time_ns = max(0, self.fabric_time()[0])
            self._send_message(message)

    def _on_schedule(self, terms: pb.JobSchedule) -> None:
        realign = terms.realign or REALIGN_THRESHOLD
        schedule = Schedule(terms.epoch_ns, terms.shift_ns, terms.period_ns, realign, terms.once)
        self.schedules[terms.job] = schedule
        self.senders[terms.job] = terms.sender
        for (job, _), state in list(self._workers.items()):
            if job == terms.job:
                state.worker.set_schedule(schedule)
                self._nic.set_sender(job, sender_in_force(terms.sender, state.worker.spec.sender))

    def _on_welcome(self, welcome: pb.Welcome) -> None:
        self.welcomed = True
        self.settings = SessionSettings.from_welcome(welcome)
        self._nic.set_traffic_classes(welcome.cnp_dscp, welcome.ack_dscp, self.settings.levels)
        self.clock_poll_ns = welcome.clock_poll_ns or DEFAULT_CLOCK_POLL_NS
        self._clock_round += 1
        if not self.time.shared:
            self._ask_time(self._clock_round)
        for state in list(self._workers.values()):
            if state.joined:
                self._announce(state)
        for flow in self.fallen.keys() - self.queue_pairs().keys():
            self._send_fallback(flow)
        self.flow_paths.changed(anew=True)
        if self.on_session is not None:
            self.on_session(True)

    def _ask_time(self, round_: int) -> None:
        """Ask for fabric time now and every `clock_poll_ns`, until the session ends."""
        if round_ == self._clock_round:
            now = self._present()
            self._send(pb.AgentMessage(clock_request=pb.ClockRequest(sent_ns=now)))
            self._clock.call_at(now + self.clock_poll_ns, self._ask_time, round_)

    def _on_assignment(self, assignment: pb.FlowAssignment) -> None:
        flow = assignment.flow
        pin = Pin(assignment.source_port, assignment.dscp, assignment.rate_cap_bps)
        check_pin(flow, pin.source_port or ROCE_SOURCE_PORTS.start, pin.dscp)
        before = self.pins.get(flow)
        self.pins[flow] = pin
        moved = before is None or before.source_port != pin.source_port
        if moved and self.fallen.pop(flow, None) is not None:
            self._send_fallback(flow)
        for state in list(self._workers.values()):
            if flow in state.out:
                self._apply_pin(flow, state.out[flow])
                self._update_level(state)
            elif flow in state.waiting and state.joined:
                self._open_flow(state, flow)
        if self.on_answer is not None:
            self.on_answer(flow, pin)

    def _send_fallback(self, flow: str) -> None:
        pin = self.pins.get(flow)
        if self.welcomed and pin is not None:
            self._send(flow_fallback(flow, pin.source_port, self.fallen.get(flow, "")))

    def _apply_pin(self, flow: str, qp: SendQueue) -> None:
        pin = self.pins[flow]
        port = self.port_of(flow, pin)
        qp.repin(port, pin.dscp)
        qp.set_rate_cap(pin.rate_cap_bps)
        if port != pin.source_port and self._nic.pinning != "none":
            self._send(flow_opened(self._nic, qp, port))

    def _join(self, state: WorkerState) -> None:
        worker = state.worker
        if worker.done:
            return
        state.joined = True
        spec = worker.spec
        for name, src, dst in spec.flows():
            if dst == self.host:
                queue = self._nic.listen(name, self._addresses[src], worker.on_bytes)
                state.receive.append(queue)
        self.metering.joined(worker, state.read)
        schedule = self.schedules.get(spec.name)
        if schedule is not None:
            worker.set_schedule(schedule)
        self._nic.set_sender(spec.name, sender_in_force(self.senders.get(spec.name, ""), spec.sender))
        if not self.connected:
            self._open_waiting(state)
            return
        self._clock.call_at(self._clock.now + self.deadline_ns, self._open_waiting, state)
        if self.welcomed:
            self._announce(state)
        if not state.waiting:
            self._start(state)

    def _announce(self, state: WorkerState) -> None:
        """Announce a worker's job to the controller, and ask for the source ports of its flows.

        That includes open flows: an earlier session was perhaps with another controller.
        """
        self._send(pb.AgentMessage(job_join=job_join(state.worker.spec, state.worker.rank)))
        for flow, qp in state.out.items():
            self._send(flow_opened(self._nic, qp, qp.source_port))
            if flow in self.fallen:
                self._send_fallback(flow)
            if state.sizes[flow] >= self.settings.elephant_bytes:
                self.request(flow)
        for flow in list(state.waiting):
            if state.sizes[flow] < self.settings.elephant_bytes or flow in self.pins:
                self._open_flow(state, flow)
            elif flow not in state.asked:
                state.asked.add(flow)
                self.request(flow)

    def _open_waiting(self, state: WorkerState) -> None:
        """No answer came in time, or there is no session: open the flows by their pins, else by ECMP."""
        if state.worker.done or not state.joined:
            return
        for flow in list(state.waiting):
            self._open_flow(state, flow)
        self._start(state)

    def _open_flow(self, state: WorkerState, flow: str) -> None:
        dst = state.waiting.pop(flow)
        settings = self.settings
        dscp = settings.mice_dscp if state.sizes[flow] < settings.elephant_bytes else settings.equal_dscp
        pin = self.pins.get(flow) or Pin(0, dscp)
        port = self.port_of(flow, pin)
        qp = self._nic.open_qp(flow, self._addresses[dst], port, pin.dscp)
        qp.set_rate_cap(pin.rate_cap_bps)
        state.out[flow] = qp
        self._send(flow_opened(self._nic, qp, qp.source_port))
        self._start(state)

    def _update_level(self, state: WorkerState) -> None:
        """Give the worker the job's priority level: it holds within the host as in the fabric."""
        state.worker.set_level(self.settings.level(self.pins[f] for f in state.out if f in self.pins))

    def _start(self, state: WorkerState) -> None:
        if not state.waiting and not state.worker.running:
            self._update_level(state)
            state.worker.open(tuple(state.out.values()), tuple(state.receive))
