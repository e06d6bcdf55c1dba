# SPDX-License-Identifier: Apache-2.0
"""Two training jobs on packets: four emulated NICs, and a link of embedded P4 switches that both use."""

from __future__ import annotations

from random import Random

from controller.model import TRAFFIC_CLASSES
from hostagent.nic.driver import SendQueue
from hostagent.nic.mltcp import Mltcp, Shape, linear
from polyrhythm.paper.switch_link import FRAME_BYTES, MTU, RATE_BPS, SwitchLink

UP_MS, COMPUTE_MS = 120.0, 140.0
KMIN, KMAX = 20, 60
"""The marking ramp in packets: the default of the scenarios."""
_MS = 1_000_000


def run_pair(
    sender: str,
    start_ms: float,
    iterations: int,
    *,
    shape: Shape = linear,
    jitter_ms: float = 1.0,
    ramp: tuple[int, int] = (KMIN, KMAX),
    seed: int = 0,
) -> list[list[float]]:
    """The iteration times in ms of two VGG19 (period 260 ms, Up 120 ms at line rate), by job.

    The second job starts `start_ms` after the first. Each compute time differs by up to `jitter_ms`. Both
    jobs use the congestion control `sender`. `shape` is MLTCP's function F, where the NIC finds the iteration
    itself. `ramp` is the depth in packets from which the switch marks, and the depth above which it marks all
    packets.
    """
    link = SwitchLink(2, ramp=ramp, seed=seed)
    heap, ends = link.heap, link.nics
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

    size = int(UP_MS / 1e3 * RATE_BPS / 8 * MTU / FRAME_BYTES)
    for index in (0, 1):
        source, target, flow = ends[index], ends[index + 2], f"job{index}/ring"
        source.set_mltcp(f"job{index}", Mltcp(shape))
        source.set_sender(f"job{index}", sender)
        target.listen(flow, link.ips[index], lambda queue, count: None)
        qp = source.open_qp(flow, link.ips[index + 2], 0xC100 + index, TRAFFIC_CLASSES.equal)
        queue_pairs.append(qp)
        heap.call_at(round(start_ms * _MS) * index, begin, index)
    heap.run()
    return [[(b[k + 1] - b[k]) / _MS for k in range(iterations)] for b in begins]
