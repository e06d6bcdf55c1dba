# SPDX-License-Identifier: Apache-2.0
"""Flows of one sender on a link of embedded P4 switches: they fill it, share it, and hear of the switch's marks."""

from __future__ import annotations

import pytest

from controller.model import TRAFFIC_CLASSES
from controller.wire.senders import PLAIN
from polyrhythm.paper.switch_link import FRAME_BYTES, MTU, RATE_BPS, SwitchLink

PACKETS = 700
WIRE_NS = FRAME_BYTES * 8 * 10**9 // RATE_BPS


def share(sender: str, flows: int, **options: int) -> tuple[SwitchLink, list[int], list[int]]:
    """The link, when each flow ended, and the bytes of each when the link had carried the half of all."""
    link = SwitchLink(flows, ramp=(20, 60), seed=3, **options)
    ends: list[int] = []
    queues, halfway = [], []
    for index in range(flows):
        source, target, flow = link.nics[index], link.nics[flows + index], f"job{index}/x"
        source.set_sender(f"job{index}", sender)
        queues.append(target.listen(flow, link.ips[index], lambda queue, count: None))
        qp = source.open_qp(flow, link.ips[flows + index], 0xC100 + index, TRAFFIC_CLASSES.equal)
        qp.post(PACKETS * MTU, lambda: ends.append(link.heap.now))
    link.heap.call_at(flows * PACKETS * WIRE_NS // 2, lambda: halfway.extend(q.bytes for q in queues))
    link.heap.run()
    return link, ends, halfway


@pytest.mark.parametrize("sender", PLAIN)
def test_two_flows_of_one_sender_fill_a_switchs_link_and_share_it(sender: str) -> None:
    link, ends, halfway = share(sender, 2)
    assert 2 * PACKETS * WIRE_NS / max(ends) >= 0.97
    assert min(ends) / max(ends) >= 0.8
    assert min(halfway) / max(halfway) >= 0.6
    counters = [nic.counters() for nic in link.nics]
    assert all(c.retransmits == 0 for c in counters)
    # The switch marks, and the receivers count what it has marked.
    marked = sum(c.ecn_marks for c in counters)
    counted = sum(packets for s in link.switches.values() for packets, _ in s.read_counter("ecn_marks"))
    assert 10 < marked == counted
    assert (sum(c.cnps_received for c in counters) > 0) == (sender == "dcqcn")


@pytest.mark.parametrize("sender", ["reno", "cubic", "dctcp"])
def test_losses_in_a_shallow_queue_hold_the_window(sender: str) -> None:
    # Below the ramp nothing is marked: only losses tell of the full queue.
    link, ends, _ = share(sender, 3, queue_packets=20)
    counters = [nic.counters() for nic in link.nics]
    assert len(ends) == 3
    assert sum(c.ecn_marks for c in counters) == 0
    assert sum(c.retransmits for c in counters) > 20
    assert 3 * PACKETS * WIRE_NS / max(ends) >= 0.6
