# SPDX-License-Identifier: Apache-2.0
"""NICs that take packets in any order: what is delivered, and what is sent again."""

from __future__ import annotations

from random import Random

import pytest
from host_bench import HOP_NS, MS, Bench
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.wire.senders import PLAIN
from hostagent.nic.roce import ACKNOWLEDGE, SEND_ONLY
from hostagent.nic.selective_repeat import SelectiveRepeat

SIZE = 200_000
PACKETS = -(-SIZE // 1024)
HOUR = 3_600_000 * MS


class Network(Bench):
    """Two hosts. A data packet may be lost, doubled, or late by up to `late_ns`, each by a draw."""

    def __init__(self, any_order=(True, True), *, seed=0, loss=0.0, double=0.0, late_ns=0):
        super().__init__(2)
        self._rng = Random(seed)
        self.loss, self.double, self.late_ns = loss, double, late_ns
        for nic, able in zip(self.nics, any_order, strict=True):
            nic.any_order = able
        self.tap = self._disturb
        self.delivered, self.completed = 0, []
        self.receiver = self.nics[1].listen("job/h0>h1", self.ip(0), self._count)
        self.sender = self.nics[0].open_qp("job/h0>h1", self.ip(1), 0xC123, 10)

    def _count(self, queue, size):
        self.delivered += size

    def _disturb(self, frame):
        if frame[42] > SEND_ONLY and frame[42] != ACKNOWLEDGE:
            return frame
        for _ in range(1 + (self._rng.random() < self.double)):
            if self._rng.random() >= self.loss:
                late = round(self._rng.random() * self.late_ns) if frame[42] <= SEND_ONLY else 0
                self.heap.call_at(self.heap.now + HOP_NS + late, self._to_host, frame)
        return None

    def send(self, size=SIZE, until_ns=HOUR):
        before = len(self.completed)
        self.sender.post(size, lambda: self.completed.append(self.heap.now))
        self.heap.run(self.heap.now + until_ns)
        return len(self.completed) > before


@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.02, 0.3]),
    double=st.sampled_from([0.0, 0.2]),
    late_frames=st.sampled_from([0, 3, 40]),
    size=st.integers(1, 60_000),
    plain=st.sampled_from(sorted(PLAIN)),
)
@settings(max_examples=40, deadline=None)
def test_every_byte_arrives_once(seed, loss, double, late_frames, size, plain):
    network = Network(seed=seed, loss=loss, double=double, late_ns=late_frames * 350_000)
    network.nics[0].set_sender("job", plain)
    assert network.send(size)
    assert network.send(size)
    assert network.delivered == 2 * size
    assert network.receiver.bytes == 2 * size
    assert network.sender.bytes_acked == 2 * size


def test_packets_that_overtake_one_another_are_not_sent_again():
    """Late by up to three frames, over a path whose round trip is four."""
    network = Network(late_ns=1_000_000)
    assert network.send()
    assert network.sender.retransmits == 0
    ordered = Network((False, False), late_ns=1_000_000)
    assert ordered.send()
    assert ordered.sender.retransmits > 50
    assert network.completed[0] < ordered.completed[0]


@pytest.mark.parametrize("lost", [(50,), (50, 51, 52), (50, 80, 81)])
def test_lost_packets_alone_are_sent_again(lost):
    network = Network()
    data = iter(range(1_000_000))

    def tap(frame):
        return None if frame[42] <= SEND_ONLY and next(data) in lost else frame

    network.tap = tap
    assert network.send()
    assert network.sender.retransmits == len(lost)
    assert network.sender.timeouts == 0


def test_a_lost_tail_costs_a_timeout():
    network = Network()
    data = iter(range(1_000_000))
    network.tap = lambda frame: (
        None if frame[42] <= SEND_ONLY and PACKETS - 3 <= next(data) < PACKETS else frame
    )
    assert network.send()
    assert network.sender.timeouts == 1
    # And what had arrived without an acknowledgement.
    assert 3 <= network.sender.retransmits <= 3 + network.sender.congestion.ack_every


def test_a_dead_path_that_comes_back():
    network = Network(loss=1.0)
    assert not network.send(until_ns=2_000 * MS)
    network.loss = 0.0
    network.heap.run(HOUR)
    assert network.completed
    assert network.delivered == SIZE


@pytest.mark.parametrize("able", [(True, False), (False, True)])
def test_a_nic_that_keeps_order_gets_order(able):
    """One NIC that cannot is enough: both go back to go-back-N."""
    network = Network(able, seed=3, loss=0.02, late_ns=500_000)
    assert network.send()
    assert network.delivered == SIZE
    assert network.sender.retransmits > 0


def test_what_waits_only_is_not_called_lost():
    """A packet that left less than two round trips ago may still come."""
    repeat = SelectiveRepeat()
    for position in range(10):
        repeat.sent(position, 100 * position)
    assert not repeat.missing(2, 5, 600, 250)
    assert repeat.missing(2, 5, 800, 250)
    assert list(repeat.again) == [2, 3]
    assert not repeat.missing(2, 5, 850, 250)
    repeat.acknowledged(4, 4)
    assert not repeat.again
    repeat.all_again(4, 10)
    repeat.sent(4, 900)
    repeat.acknowledged(6, 2)
    assert list(repeat.again) == [6, 7, 8, 9]
