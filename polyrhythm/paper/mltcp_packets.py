# SPDX-License-Identifier: Apache-2.0
"""Two training jobs on packets: four emulated NICs, and one bottleneck that marks ECN by its depth."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.driver import SendQueue
from hostagent.nic.emulated import EmulatedNic
from hostagent.nic.mltcp import Mltcp, Shape
from hostagent.nic.roce import CE, OVERHEAD_BYTES, internet_checksum
from polyrhythm.fabric.heap import EventHeap

RATE_BPS = 25_000_000
"""50 Gbit/s at the scale of the scenarios, 2000."""
MTU = 1024
UP_MS, COMPUTE_MS = 120.0, 140.0
KMIN, KMAX = 20, 60
"""The marking ramp in packets: the default of the scenarios."""
_PMAX, _DEPTH = 0.2, 256
_CONTROL = 48
_DATA = 26
_MS = 1_000_000


class _Bottleneck:
    """One port with one queue. Control packets go first. The marking probability grows with the depth."""

    def __init__(
        self, heap: EventHeap, deliver: Callable[[bytes], None], ramp: tuple[int, int], seed: int
    ) -> None:
        self._heap = heap
        self._kmin, self._kmax = ramp
        self._deliver = deliver
        self._random = Random(seed)
        self._control: deque[bytes] = deque()
        self._data: deque[bytes] = deque()
        self._busy = False

    def enqueue(self, frame: bytes) -> None:
        """Enqueue a frame; it is lost if the queue is full."""
        if frame[15] >> 2 == _CONTROL:
            self._control.append(frame)
        elif len(self._data) < _DEPTH:
            chance = _PMAX * (len(self._data) - self._kmin) / (self._kmax - self._kmin)
            over = len(self._data) > self._kmax
            self._data.append(_marked(frame) if over or self._random.random() < chance else frame)
        if not self._busy:
            self._start()

    def _start(self) -> None:
        queue = self._control or self._data
        if queue:
            self._busy = True
            frame = queue.popleft()
            self._heap.call_at(self._heap.now + len(frame) * 8 * 10**9 // RATE_BPS, self._sent, frame)

    def _sent(self, frame: bytes) -> None:
        self._busy = False
        self._deliver(frame)
        self._start()


def _marked(frame: bytes) -> bytes:
    header = bytearray(frame[14:34])
    header[1] |= CE
    header[10:12] = b"\0\0"
    header[10:12] = internet_checksum(bytes(header)).to_bytes(2, "big")
    return frame[:14] + bytes(header) + frame[34:]


def run_pair(
    shape: Shape | None,
    start_ms: float,
    iterations: int,
    *,
    jitter_ms: float = 1.0,
    ramp: tuple[int, int] = (KMIN, KMAX),
    seed: int = 0,
) -> list[list[float]]:
    """The iteration times in ms of two VGG19 (period 260 ms, Up 120 ms at line rate), by job.

    The second job starts `start_ms` after the first. Each compute time differs by up to `jitter_ms`. `shape`
    is MLTCP's function F, where the NIC finds the iteration itself; None is plain DCQCN. `ramp` is the depth
    in packets from which the port marks, and the depth above which it marks all packets.
    """
    heap = EventHeap()
    nics: dict[bytes, EmulatedNic] = {}

    def deliver(frame: bytes) -> None:
        nic = nics[frame[30:34]]
        nic.receive(nic.macs[6:] + nic.macs[:6] + frame[12:])

    forth, back = (_Bottleneck(heap, deliver, ramp, seed) for _ in range(2))
    profile = DcqcnProfile.scaled(RATE_BPS, MTU + OVERHEAD_BYTES)
    for i in range(4):
        nic = EmulatedNic(
            f"h{i}",
            f"10.0.0.{i + 1}",
            f"02:00:00:00:00:{i + 1:02x}",
            "02:ff:00:00:00:01",
            RATE_BPS,
            clock=heap,
            transmit=(forth if i < 2 else back).enqueue,
            dcqcn=profile,
            mtu=MTU,
        )
        nics[nic.ip] = nic
    ends = list(nics.values())
    rng = Random(f"{seed}/compute")
    begins: list[list[int]] = [[], []]
    queue_pairs: list[SendQueue] = []

    def begin(index: int) -> None:
        begins[index].append(heap.now)
        heap.stop = min(map(len, begins)) > iterations
        queue_pairs[index].post(size, lambda: pause(index))

    def pause(index: int) -> None:
        compute = COMPUTE_MS + rng.uniform(-jitter_ms, jitter_ms)
        heap.call_at(heap.now + round(compute * _MS), begin, index)

    size = int(UP_MS / 1e3 * RATE_BPS / 8 * MTU / (MTU + OVERHEAD_BYTES))
    for index in (0, 1):
        sender, receiver, flow = ends[index], ends[index + 2], f"job{index}/ring"
        if shape is not None:
            sender.set_sender(f"job{index}", "mltcp", Mltcp(shape))
        receiver.listen(flow, f"10.0.0.{index + 1}", lambda queue, count: None)
        qp = sender.open_qp(flow, f"10.0.0.{index + 3}", 0xC100 + index, _DATA)

        queue_pairs.append(qp)
        heap.call_at(round(start_ms * _MS) * index, begin, index)
    heap.run()
    return [[(b[k + 1] - b[k]) / _MS for k in range(iterations)] for b in begins]
