# SPDX-License-Identifier: Apache-2.0
"""Hosts on two switches that one cable joins: real NICs and training loops, strict-priority queues, no controller.

The ports are the switch's own (`bmv2.scheduler`). They mark packets by the default ramp at dequeue, as the P4
program does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from host_bench import FRAME, MS, RATE, set_tos

from bmv2.scheduler import SwitchPort
from controller.southbound.desired import EcnProfile
from controller.wire.traffic import flow_name
from hostagent.emulated_worker import EmulatedWorker
from hostagent.job import IterationRecord, JobSpec, PhaseSpec
from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.emulated import EmulatedNic
from hostagent.nic.requester import Requester
from hostagent.nic.responder import Responder
from polyrhythm.fabric.heap import EventHeap
from polyrhythm.scenario.marking import EcnConfig
from polyrhythm_job.schedule import Schedule

DSCP = 10
"""Of the highest level; the next level has the next DSCP, and the next lower queue."""
CONTROL_QUEUE = 7
BUFFER_PACKETS = 256
PAYLOAD = 1024


class OneLink:
    """`pairs` hosts on each side: h0 to h(pairs - 1) on the left, the others on the right. `rates_bps`: the
    rates of the NICs of each pair, RATE if it is empty. The cable has RATE. Each queue holds `queue_packets`.
    """

    def __init__(
        self,
        pairs: int,
        *,
        seed: int = 1,
        rates_bps: Sequence[int] = (),
        queue_packets: int = BUFFER_PACKETS,
    ) -> None:
        self.heap = EventHeap()
        rates = 2 * list(rates_bps or [RATE] * pairs)
        self.profile = DcqcnProfile.scaled(max(rates), FRAME, min(rates), queue_packets)
        self._pairs = pairs
        self._random = random.Random(seed)
        self._queue_packets = queue_packets
        self._ramp = [0] * (queue_packets + 1)
        ecn = EcnConfig()
        for low, high, probability in EcnProfile(ecn.kmin, ecn.kmax, ecn.pmax).ramp():
            for depth in range(low, min(high, queue_packets) + 1):
                self._ramp[depth] = probability
        self.nics = [
            EmulatedNic(
                f"h{i}", self.ip(i), f"02:00:00:00:00:{i + 1:02x}", "02:ff:00:00:00:01", rate,
                clock=self.heap, transmit=partial(self._enter, i), dcqcn=self.profile, seed=seed,
            )
            for i, rate in enumerate(rates)
        ]  # fmt: skip
        self._place = {nic.ip: i for i, nic in enumerate(self.nics)}
        self.cable = [self._port(self._leave) for _ in range(2)]
        self._down = [self._port(partial(self._arrive, nic), nic.rate_bps) for nic in self.nics]

    @staticmethod
    def ip(host: int) -> str:
        return f"10.0.0.{host + 1}"

    def flow(
        self, src: int, dst: int, name: str, level: int, on_bytes: Any = None
    ) -> tuple[Requester, Responder]:
        """An open flow at a priority level, 0 the highest."""
        queue = self.nics[dst].listen(name, self.ip(src), on_bytes or (lambda queue, size: None))
        return self.nics[src].open_qp(name, self.ip(dst), 0xC123, DSCP + level), queue

    def run(self, until_ns: int) -> None:
        def stop() -> None:
            self.heap.stop = True

        self.heap.call_at(until_ns, stop)
        self.heap.run()

    def _port(self, deliver: Any, rate_bps: int = RATE) -> SwitchPort:
        port = SwitchPort(
            1, self.heap, deliver, rate_bps=rate_bps, queues=8, queue_packets=self._queue_packets
        )
        port.reset(self._egress)
        return port

    def _egress(
        self, state: Any, port: int, qid: int, enqueued: int, found: int, now: int, depth: int
    ) -> bytes:
        frame: bytes = state[0]
        if qid == CONTROL_QUEUE or self._random.randrange(0xFFFF) >= self._ramp[depth]:
            return frame
        return set_tos(frame, frame[15] | 3)

    @staticmethod
    def _queue(frame: bytes) -> int:
        dscp = frame[15] >> 2
        return CONTROL_QUEUE if dscp >= 48 else CONTROL_QUEUE - 1 - (dscp - DSCP)

    def _enter(self, host: int, frame: bytes) -> None:
        left, to_left = host < self._pairs, self._place[frame[30:34]] < self._pairs
        if left == to_left:
            self._leave(frame)
        else:
            self.cable[to_left].enqueue(self._queue(frame), (frame,))

    def _leave(self, frame: bytes) -> None:
        self._down[self._place[frame[30:34]]].enqueue(self._queue(frame), (frame,))

    @staticmethod
    def _arrive(nic: EmulatedNic, frame: bytes) -> None:
        nic.receive(nic.macs[6:] + nic.macs[:6] + frame[12:])


class TrainingJob:
    """A job of two hosts, `left` and its partner on the right.

    `phases` are (up ms, part of the line rate, down ms). `slot` is (period ms, shift ms).
    """

    def __init__(
        self,
        link: OneLink,
        name: str,
        left: int,
        phases: tuple[tuple[float, float, float], ...],
        *,
        level: int = 0,
        start_ms: float = 0.0,
        slot: tuple[float, float] | None = None,
    ) -> None:
        right = left + len(link.nics) // 2
        ends = (f"h{left}", f"h{right}")
        self.spec = JobSpec(
            name, "m", 2, ends, (ends, ends[::-1]), tuple(map(self._phase, phases)), 1e12,
        )  # fmt: skip
        self.records: list[IterationRecord] = []
        self.workers = [
            EmulatedWorker(
                self.spec, rank, link.heap, round(start_ms * MS), 0,
                on_iteration=self._report, on_done=lambda worker: None,
            )
            for rank in range(2)
        ]  # fmt: skip
        there, here = self.workers
        out, at_right = link.flow(left, right, flow_name(self.spec.name, *ends), level, here.on_bytes)
        back, at_left = link.flow(right, left, flow_name(self.spec.name, *ends[::-1]), level, there.on_bytes)
        self.senders = (out, back)
        for worker in self.workers:
            if slot is not None:
                worker.set_schedule(Schedule(0, round(slot[1] * MS), round(slot[0] * MS)))
        there.open([out], [at_left])
        here.open([back], [at_right])

    @staticmethod
    def _phase(phase: tuple[float, float, float]) -> PhaseSpec:
        up, part, down = phase
        rate = round(RATE * part)
        return PhaseSpec(round(up * MS), int(up * MS * rate / 8e9 * PAYLOAD / FRAME), rate, round(down * MS))

    def _report(self, record: IterationRecord) -> None:
        if record.rank == 0:
            self.records.append(record)

    def mean_ms(self, skip: int = 1) -> float:
        """The mean iteration without the first `skip`."""
        kept = self.records[skip:]
        return (kept[-1].end_ns - kept[0].start_ns) / len(kept) / MS
