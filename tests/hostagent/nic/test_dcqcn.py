# SPDX-License-Identifier: Apache-2.0
"""DCQCN of NICs of several rates on one link."""

from __future__ import annotations

import pytest
from host_bench import FRAME, MS, RATE
from one_link import OneLink


def test_flows_of_slow_and_fast_nics_get_equal_shares() -> None:
    """Two NICs of half the rate of a cable, and one of its rate. Each flow could send more than a third."""
    link = OneLink(3, rates_bps=[RATE // 2, RATE // 2, RATE])
    flows = [link.flow(i, 3 + i, f"job{i}/f", 0) for i in range(3)]
    for qp, _ in flows:
        qp.post(100_000_000, lambda: None)
    link.run(1_000 * MS)
    before = [queue.bytes for _, queue in flows]
    link.run(6_000 * MS)
    sent = [queue.bytes - early for early, (_, queue) in zip(before, flows, strict=True)]
    assert max(sent) < 1.35 * min(sent)
    assert sum(qp.retransmits for qp, _ in flows) == 0


@pytest.mark.parametrize("ratio", [2, 16])
def test_flows_of_slow_nics_share_a_slow_link_beside_faster_nics(ratio: int) -> None:
    """The link to the first host on the right has the rate of the slow NICs."""
    slow = RATE // ratio
    link = OneLink(5, rates_bps=[slow] * 4 + [RATE])
    flows = [link.flow(i, 5, f"job{i}/f", 0) for i in range(4)]
    for qp, _ in flows:
        qp.post(100_000_000, lambda: None)
    link.run(ratio * 500 * MS)
    before = [queue.bytes for _, queue in flows]
    link.run(ratio * 2_500 * MS)
    sent = [queue.bytes - early for early, (_, queue) in zip(before, flows, strict=True)]
    assert sum(sent) * 8 * FRAME / 1024 > 0.97 * slow * ratio * 2
    assert max(sent) < 1.1 * min(sent)
    assert sum(qp.timeouts for qp, _ in flows) == 0
