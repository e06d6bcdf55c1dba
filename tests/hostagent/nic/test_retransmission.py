# SPDX-License-Identifier: Apache-2.0
"""Time-outs of the emulated NIC: packets that only wait, a dead path, a repaired path, a new path."""

from __future__ import annotations

from itertools import pairwise

import pytest
from host_bench import FRAME, MS, PROFILE, RATE, Bench
from one_link import OneLink

from hostagent.nic.dcqcn import DcqcnProfile

WIRE_NS = FRAME * 8 * 10**9 // RATE
FIRST, LONGEST = PROFILE.retransmit_ns, PROFILE.ack_timeout_ns


def is_data(frame: bytes) -> bool:
    return frame[42] in (0, 1, 2, 4)


@pytest.mark.parametrize("packets_ahead", range(0, 16, 5))
def test_a_starved_flow_is_not_sent_again_and_resumes_at_full_rate(packets_ahead: int) -> None:
    link = OneLink(2)
    high, _ = link.flow(0, 2, "high/f", 0)
    low, queue = link.flow(1, 3, "low/f", 1)
    ends: list[int] = []
    if packets_ahead:
        # The oldest packet that waits is another one of the 16 between two requests for an acknowledgement.
        low.post(packets_ahead * 1024, lambda: None)
        link.run(link.heap.now + 20 * MS)
    start = link.heap.now
    high.post(8 * 1024 * round(1000 * MS / WIRE_NS), lambda: ends.append(link.heap.now))
    link.run(start + 5 * MS)
    low.post(300 * 1024, lambda: ends.append(link.heap.now))
    link.run(start + 9_000 * MS)
    starved = ends[0] - start
    assert starved > 7_900 * MS
    # Time-outs after 0.11, 0.33, 0.78, 1.66 and 3.4 s, and one after 3.5 s more: a packet each.
    assert low.timeouts <= 8
    assert low.retransmits <= 8 + 2
    assert ends[1] - ends[0] < 300 * WIRE_NS * 1.05 + 4 * MS
    assert queue.packets == packets_ahead + 300
    assert sum(q.drops for port in link.cable for q in port.queues) == 0


def test_time_outs_double_up_to_the_longest_and_an_acknowledged_window_halves_the_next() -> None:
    bench = Bench(2)
    sent: list[int] = []
    dead = [True]

    def tap(frame: bytes) -> bytes | None:
        if not is_data(frame):
            return frame
        sent.append(bench.heap.now)
        return None if dead[0] else frame

    bench.tap = tap
    qp, queue = bench.flow(0, 1)
    done: list[int] = []
    qp.post(1000 * 1024, lambda: done.append(bench.heap.now))
    bench.heap.run(25_000 * MS)
    again = sent[PROFILE.window_packets :]
    gaps = [b - a for a, b in pairwise(again)]
    assert again[0] - sent[PROFILE.window_packets - 1] == pytest.approx(FIRST, rel=0.01)
    assert gaps == pytest.approx([min(FIRST * 2**k, LONGEST) for k in range(1, len(gaps) + 1)], rel=0.01)
    assert len(gaps) > 8
    dead[0] = False
    bench.heap.run(30_000 * MS)
    assert queue.bytes == 1000 * 1024
    # The 40 lost packets are sent once more. 1,000 acknowledged packets are enough to come back to the first.
    assert qp.retransmits == qp.timeouts + PROFILE.window_packets - 1
    assert done[0] - sent[-1] < 5 * MS
    dead[0] = True
    qp.post(1024, lambda: None)
    first = len(sent)
    bench.heap.run(bench.heap.now + 4 * FIRST)
    assert sent[first + 1] - sent[first] == pytest.approx(FIRST, rel=0.01)


def test_a_dead_path_is_probed_with_one_packet_and_the_window_doubles_when_it_lives() -> None:
    bench = Bench(2)
    dead = [True]
    flight: list[int] = []

    def tap(frame: bytes) -> bytes | None:
        if is_data(frame) and dead[0]:
            return None
        if is_data(frame):
            flight.append(bench.heap.now)
        return frame

    bench.tap = tap
    qp, _ = bench.flow(0, 1)
    qp.post(200 * 1024, lambda: None)
    bench.heap.run(20 * MS)
    dead[0] = False
    bench.heap.run(1_000 * MS)
    # Rounds of 1 and 2 packets, a round trip apart. Later an acknowledgement may come in mid-round.
    pauses = [k for k in range(1, 40) if flight[k] - flight[k - 1] > 1.2 * WIRE_NS]
    assert pauses[:2] == [1, 3]
    assert len(pauses) <= 5
    assert qp.retransmits == PROFILE.window_packets


def test_losses_that_acknowledgements_show_do_not_lengthen_the_time_outs() -> None:
    """The last packets of a message are lost behind the first of them, so no NAK says so, again and again."""
    bench = Bench(2)
    sent: list[int] = []
    first_of_round: list[int] = []

    def tap(frame: bytes) -> bytes | None:
        if not is_data(frame):
            return frame
        alone = not sent or bench.heap.now - sent[-1] > FIRST // 2
        sent.append(bench.heap.now)
        if alone:
            first_of_round.append(bench.heap.now)
        return frame if alone else None

    bench.tap = tap
    qp, queue = bench.flow(0, 1)
    qp.post(12 * 1024, lambda: None)
    bench.heap.run(30 * FIRST)
    assert queue.packets == 12
    # A packet that asks for an acknowledgement anyway could have waited in a starved queue.
    gaps = [b - a for a, b in pairwise(first_of_round)]
    assert sorted(gaps)[:10] == pytest.approx([FIRST] * 10, rel=0.1)
    assert max(gaps) < 2.1 * FIRST
    # All are losses of one window.
    assert qp.congestion.window == PROFILE.window_packets // 2


def test_a_new_path_is_tried_after_the_first_time_out_again() -> None:
    bench = Bench(2)
    bench.tap = lambda frame: None if is_data(frame) and frame[34:36] == b"\xc1\x23" else frame
    qp, queue = bench.flow(0, 1)
    qp.post(60 * 1024, lambda: None)
    bench.heap.run(3_500 * MS)
    assert qp.timeouts == 5
    qp.repin(0xC124, 10)
    bench.heap.run(3_500 * MS + FIRST + 60 * WIRE_NS + 20 * MS)
    assert queue.bytes == 60 * 1024


@pytest.mark.parametrize("late", [1, 20])
def test_packets_that_wait_on_an_old_level_are_not_taken_for_lost(late: int) -> None:
    """A time-out moves a flow to a new level. Then the packet that is sent again arrives alone, or a part of
    those on the old level before it."""
    bench = Bench(2)
    waiting: list[bytes] = []

    def tap(frame: bytes) -> bytes | None:
        if is_data(frame) and frame[15] >> 2 == 10:
            waiting.append(frame)
            return None
        if is_data(frame) and late > 1 and len(waiting) == PROFILE.window_packets:
            for early in waiting[:late]:
                bench.down(1).enqueue(early)
            waiting.append(b"")
            return None
        return frame

    bench.tap = tap
    qp, queue = bench.flow(0, 1)
    done: list[int] = []
    qp.post(100 * 1024, lambda: done.append(bench.heap.now))
    bench.heap.run(60 * WIRE_NS)
    assert len(waiting) == PROFILE.window_packets
    qp.repin(0xC123, 30)
    bench.heap.run(FIRST + 300 * WIRE_NS)
    assert len(done) == 1
    assert queue.packets == 100
    assert qp.timeouts == 1
    assert qp.congestion.window == PROFILE.window_packets


@pytest.mark.parametrize("back", [False, True])
def test_a_new_level_does_not_wait_for_a_time_out_that_outlasts_deep_queues(back: bool) -> None:
    """A flow that leaves a starved level goes on after 160 frames. One that stays after all waits as before."""
    profile = DcqcnProfile.scaled(RATE, FRAME, queue_packets=1_024)
    bench = Bench(2, profile=profile)
    bench.tap = lambda frame: None if is_data(frame) and frame[15] >> 2 == 10 else frame
    qp, queue = bench.flow(0, 1)
    qp.post(60 * 1024, lambda: None)
    bench.heap.run(60 * WIRE_NS)
    qp.repin(0xC123, 30)
    if back:
        qp.repin(0xC123, 10)
    bench.heap.run(60 * WIRE_NS + profile.repin_ns + 100 * WIRE_NS)
    assert queue.packets == (0 if back else 60)
    bench.heap.run(profile.retransmit_ns + 30 * WIRE_NS)
    assert qp.timeouts == (0 if back else 1)
    bench.heap.run(profile.retransmit_ns + 60 * WIRE_NS)
    assert qp.timeouts == 1


def test_more_flows_than_a_queue_holds_windows_of_fill_the_link_all_the_same() -> None:
    """Eight windows of 40 packets are more than the 256 that the queue holds."""
    link = OneLink(8)
    flows = [link.flow(i, 8 + i, f"job{i}/f", 0) for i in range(8)]
    for qp, _ in flows:
        qp.post(10_000_000, lambda: None)
    link.run(500 * MS)
    before = [queue.packets for _, queue in flows]
    link.run(2_500 * MS)
    arrived = [queue.packets - early for early, (_, queue) in zip(before, flows, strict=True)]
    assert sum(q.drops for q in link.cable[0].queues) > 0
    assert sum(arrived) * WIRE_NS > 0.96 * 2_000 * MS
    assert min(arrived) > 0.9 * max(arrived)
