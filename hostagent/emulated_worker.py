# SPDX-License-Identifier: Apache-2.0
"""The emulated training loop of one worker. It stands for the GPU and the collective library.

A communication phase ends when the worker's own bytes are acknowledged and the bytes that its peers send it
in that phase have arrived. Where the workers of the job share a barrier, it ends when that is true of all
workers of the ring (`phase_barrier.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from hostagent.clock import EventClock
from hostagent.job import IterationRecord, JobSpec, PhaseSpec
from hostagent.nic.driver import ReceiveQueue, SendQueue
from hostagent.pcie_transfer import PcieTransfer
from hostagent.phase_barrier import PhaseBarrier
from hostagent.worker import ReadFabricTime
from polyrhythm_job.schedule import UNSCHEDULED, Schedule, Slot, next_slot


class EmulatedWorker:
    """One worker of a job. It runs `iterations` iterations (0: until `stop`), then calls `on_done(self)`.

    `open` starts it when its queue pairs exist. The first communication phase begins at `start_ns`, or when
    the flows are open if that is later, or at the job's slot. `on_iteration(record)` is called at the end of
    each iteration. The compute jitter is drawn from `seed`, job and rank. Until `keep_time` is called, its
    clock shows fabric time. With `copier` its bytes reach the NIC in pieces over a PCIe link that other jobs
    may use. `barrier` is that of all workers of the job; None: on hosts of their own they know of each other
    only by their bytes. Raises ValueError for a rank that the job does not have.
    """

    def __init__(
        self,
        spec: JobSpec,
        rank: int,
        clock: EventClock,
        start_ns: int,
        iterations: int,
        *,
        on_iteration: Callable[[IterationRecord], None],
        on_done: Callable[[EmulatedWorker], None],
        seed: int = 0,
        copier: PcieTransfer | None = None,
        barrier: PhaseBarrier | None = None,
    ) -> None:
        if not 0 <= rank < len(spec.hosts):
            raise ValueError(f"job {spec.name}: rank {rank} is not in 0-{len(spec.hosts) - 1}")
        self.spec = spec
        self.rank = rank
        self.start_ns = start_ns
        self.iterations = iterations
        self.index = 0
        self.running = False
        self.done = False
        self.flops = 0.0
        self._clock = clock
        self._fabric_time: ReadFabricTime = lambda: (clock.now, 0)
        self._on_iteration = on_iteration
        self._on_done = on_done
        self._random = Random(f"{seed}/{spec.name}/{rank}")
        self._copier = copier
        self._barrier = barrier
        self._schedule = UNSCHEDULED
        self._kept: Schedule | None = None
        self._slot = Slot()
        self._phases: tuple[PhaseSpec, ...] = spec.phases
        self._flops_per_down_ns = self._flops_at_end = 0.0
        self._compute = 0
        self._out: Sequence[SendQueue] = ()
        self._in: Sequence[ReceiveQueue] = ()
        self._token = 0
        self._ready_ns = -1
        self._start = 0
        self._phase = 0
        self._phase_start = 0
        self._unacked = 0
        self._communicating = False
        self._numbers: dict[str, int] = {}
        self._owed: dict[str, int] = {}
        self._spans: list[tuple[int, int]] = []
        self._wire: list[int] = []
        self._base = (0, 0, 0)
        self._wire_base = 0
        self._flops_base = 0.0
        self._began = (0, False)

    def open(self, out: Sequence[SendQueue], receive: Sequence[ReceiveQueue]) -> None:
        """The worker's flows are open: begin at the start time."""
        self._out, self._in = out, receive
        self._numbers = {name: number for number, (name, _, _) in enumerate(self.spec.flows())}
        self._owed = {queue.flow: 0 for queue in receive}
        self.running = True
        self._token += 1
        self._clock.call_at(max(self._clock.now, self.start_ns), self._ready, self._token)

    def keep_time(self, fabric_time: ReadFabricTime) -> None:
        """Use this fabric time for the job's slots."""
        self._fabric_time = fabric_time

    def set_schedule(self, schedule: Schedule) -> None:
        """Use a new schedule from the next iteration on. A worker that waits for a slot takes the new one at
        once.
        """
        self._schedule = schedule
        if self._ready_ns >= 0:
            self._gate()

    def set_level(self, level: int) -> None:
        """The job's priority level on the host's PCIe link."""
        if self._copier is not None:
            self._copier.set_level(level)

    def on_bytes(self, queue: ReceiveQueue, size: int) -> None:
        """Bytes of an incoming flow have arrived. They may belong to a phase that has not begun here yet."""
        if self._communicating and not self._unacked and queue.bytes >= self._owed[queue.flow]:
            self._check_bytes()

    def stop(self) -> None:
        """End the loop now. The iteration under way is not reported."""
        if self.done:
            return
        self._token += 1
        self.running = False
        self._communicating = False
        self._ready_ns = -1
        self.done = True
        if self._copier is not None:
            self._copier.close()
        self._on_done(self)

    def _ready(self, token: int) -> None:
        """The next iteration may begin: wait for the job's slot if it has one."""
        if token == self._token:
            self._ready_ns = self._clock.now
            self._gate()

    def _gate(self) -> None:
        self._token += 1
        now, error = self._fabric_time()
        kept = self._schedule == self._kept
        slot = self._slot = next_slot(now, self._schedule, error, kept=kept)
        if slot.delay_ns:
            self._clock.call_at(self._clock.now + slot.delay_ns, self._begin, self._token)
        else:
            self._begin(self._token)

    def _begin(self, token: int) -> None:
        if token != self._token:
            return
        now = self._clock.now
        held = now - self._ready_ns
        self._ready_ns = -1
        if self.index:
            self._report(now, held)
        # What a new schedule asks for at first is no drift.
        same = self._schedule == self._kept
        self._kept = self._schedule
        self._began = (self._slot.drift_ns, self._slot.realigned) if same else (0, False)
        self._begin_work()
        self._start = now
        self._spans = []
        self._wire = []
        self._base = self._counts()
        self._phase = 0
        self._begin_phase()

    def _begin_work(self) -> None:
        """Take the phases of this iteration, and the FLOPs of its GPUs."""
        self._phases, flops = self.spec.at(self.index)
        own = flops / len(self.spec.hosts)
        down = sum(phase.down_ns for phase in self._phases)
        # Without compute the work is done when the iteration is.
        self._flops_per_down_ns, self._flops_at_end = (own / down, 0.0) if down else (0.0, own)
        self._compute = 0
        self._flops_base = self.flops

    def _counts(self) -> tuple[int, int, int]:
        acked = sum(qp.bytes_acked for qp in self._out)
        return acked, sum(q.ecn_marks for q in self._in), sum(qp.retransmits for qp in self._out)

    def _report(self, end: int, held: int) -> None:
        acked, marks, retransmits = (a - b for a, b in zip(self._counts(), self._base, strict=True))
        record = IterationRecord(
            job=self.spec.name,
            rank=self.rank,
            index=self.index - 1,
            start_ns=self._start,
            end_ns=end,
            communication_ns=sum(stop - start for start, stop in self._spans),
            bytes_sent=acked,
            ecn_marks=marks,
            retransmits=retransmits,
            held_ns=held,
            phases=tuple(self._spans),
            wire_bytes=tuple(self._wire),
            compute_ns=self._compute,
            flops=self.flops - self._flops_base,
            drift_ns=self._began[0],
            realigned=self._began[1],
        )
        self._on_iteration(record)

    def _begin_phase(self) -> None:
        phase = self._phases[self._phase]
        self._phase_start = self._clock.now
        self._wire_base = sum(qp.wire_bytes for qp in self._out)
        self._communicating = True
        for name in self._owed:
            self._owed[name] += phase.bytes_of(self._numbers[name])
        sizes = [(qp, size) for qp in self._out if (size := phase.bytes_of(self._numbers[qp.flow]))]
        if sizes:
            self._unacked = len(sizes)
            token = self._token
            if self._copier is not None:
                self._copy(self._copier, sizes, phase.rate_bps, token)
            else:
                for qp, size in sizes:
                    qp.post(size, lambda: self._acked(token), phase.rate_bps)
        self._check_bytes()

    def _copy(
        self, copier: PcieTransfer, sizes: Sequence[tuple[SendQueue, int]], rate_bps: int, token: int
    ) -> None:
        """Move the bytes of every flow to the NIC in pieces, the flows one after another, and send each piece
        from there.
        """
        for sent in range(0, max(size for _, size in sizes), copier.piece_bytes):
            for qp, whole in sizes:
                piece = min(whole - sent, copier.piece_bytes)
                if piece > 0:
                    last = sent + piece == whole
                    copier.copy(piece, partial(self._copied, qp, piece, rate_bps, last=last, token=token))

    def _copied(self, qp: SendQueue, size: int, rate_bps: int, *, last: bool, token: int) -> None:
        """A piece is at the NIC. Messages stay in order: when the last is acknowledged, all are."""
        if token == self._token:
            qp.post(size, (lambda: self._acked(token)) if last else _unheeded, rate_bps)

    def _acked(self, token: int) -> None:
        if token == self._token:
            self._unacked -= 1
            self._check_bytes()

    def _check_bytes(self) -> None:
        if self._unacked or any(queue.bytes < self._owed[queue.flow] for queue in self._in):
            return
        self._communicating = False
        if self._barrier is None:
            self._end_phase(self._token)
        else:
            phase = self._phases[self._phase]
            self._barrier.wait(phase, self.rank, partial(self._end_phase, self._token))

    def _end_phase(self, token: int) -> None:
        if token != self._token:
            return
        now = self._clock.now
        phase = self._phases[self._phase]
        self._spans.append((self._phase_start - self._start, now - self._start))
        self._wire.append(sum(qp.wire_bytes for qp in self._out) - self._wire_base)
        jitter = self.spec.compute_jitter
        compute = phase.down_ns
        if jitter and compute:
            compute = round(compute * self._random.uniform(1 - jitter, 1 + jitter))
        self._compute += compute
        self._clock.call_at(now + compute, self._computed, self._token)

    def _computed(self, token: int) -> None:
        if token != self._token:
            return
        self.flops += self._flops_per_down_ns * self._phases[self._phase].down_ns
        self._phase += 1
        if self._phase < len(self._phases):
            self._begin_phase()
            return
        self.flops += self._flops_at_end
        self.index += 1
        if self.index == self.iterations:
            self._report(self._clock.now, 0)
            self.stop()
        else:
            self._ready(token)


def _unheeded() -> None:
    """A piece that is not the last has been acknowledged: nothing to do."""
