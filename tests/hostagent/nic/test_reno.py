# SPDX-License-Identifier: Apache-2.0
"""Reno, CUBIC and DCTCP against plain references of their RFCs, and on packets over a shared link."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from host_bench import FRAME, MS, RATE, Bench
from hypothesis import given, settings
from hypothesis import strategies as st

from hostagent.nic.congestion import Acknowledgement
from hostagent.nic.cubic import Cubic
from hostagent.nic.dctcp import Dctcp
from hostagent.nic.reno import Reno

MOST, IDLE_NS = 1000, 55 * MS
WINDOWS = {"reno": Reno, "cubic": Cubic, "dctcp": Dctcp}
PLAIN = tuple(WINDOWS)
ALL = ("dcqcn", *PLAIN)
WIRE_NS = FRAME * 8 * 10**9 // RATE


@dataclass
class Reference:
    """The formulas of RFC 5681, 3168, 9438 and 8257 on a whole history, with no state but these variables.

    `high` is the packet up to which one reaction counts (a reaction a round trip).
    """

    kind: str
    weight: float
    cwnd: float = 10.0
    ssthresh: float = math.inf
    high: int = -1
    alpha: float = 1.0
    acks: list[tuple[int, bool]] = field(default_factory=list)
    observed_to: int = -1
    w_max: float = 0.0
    cwnd_prior: float = 0.0
    epoch: tuple[float, float, float] | None = None
    w_est: float = 0.0

    def ack(
        self, now_s: float, acked: int, marked: bool, una: int, end: int, flight: int, rtt_s: float
    ) -> None:
        self.acks.append((acked, marked))
        if self.kind == "dctcp" and una > self.observed_to:
            total = sum(n for n, _ in self.acks)
            part = sum(n for n, m in self.acks if m) / total
            self.alpha = 15 / 16 * self.alpha + part / 16
            self.observed_to = end
            self.acks = []
        if marked:
            if una > self.high:
                self.high = end
                if self.kind == "dctcp":
                    self.ssthresh = self.cwnd = max(2.0, self.cwnd * (1 - self.alpha / 2))
                elif self.kind == "cubic":
                    self.cut(flight)
                else:
                    self.ssthresh = self.cwnd = max(2.0, self.cwnd / 2)
        elif self.cwnd < self.ssthresh:
            self.cwnd += min(2, acked)
        elif self.kind == "cubic":
            self.cubic(now_s, acked, rtt_s)
        else:
            self.cwnd += self.weight * acked / self.cwnd

    def cubic(self, now_s: float, acked: int, rtt_s: float) -> None:
        if self.epoch is None:
            self.w_est = self.cwnd
            if self.cwnd >= self.w_max:
                self.w_max = self.cwnd
            self.epoch = (now_s, math.cbrt((self.w_max - self.cwnd) / 0.4), self.w_max)
        began, k, w_max = self.epoch
        t = now_s - began
        reno = 3 * 0.3 / 1.7 if self.w_est < self.cwnd_prior else 1.0
        self.w_est += self.weight * reno * acked / self.cwnd
        if 0.4 * (t - k) ** 3 + w_max < self.w_est:
            self.cwnd = max(self.cwnd, self.w_est)
        else:
            target = 0.4 * (t + rtt_s - k) ** 3 + w_max
            target = self.cwnd if target < self.cwnd else min(target, 1.5 * self.cwnd)
            self.cwnd += self.weight * acked * (target - self.cwnd) / self.cwnd

    def cut(self, flight: int) -> None:
        if self.kind == "cubic":
            self.cwnd_prior = self.cwnd
            self.w_max = self.cwnd * 1.7 / 2 if self.cwnd < self.w_max else self.cwnd
            self.epoch = None
            self.ssthresh = self.cwnd = max(2.0, 0.7 * flight)
        else:
            self.ssthresh = self.cwnd = max(2.0, flight / 2)

    def lost(self, una: int, end: int, flight: int) -> None:
        if una >= self.high:
            self.high = end
            self.cut(flight)

    def timeout(self, una: int, end: int, flight: int) -> None:
        if una >= self.high or self.cwnd > 1:
            self.cut(flight)
        self.high = end
        self.cwnd = 1.0
        self.epoch = None


EVENTS = st.lists(
    st.tuples(st.sampled_from("aaaaaaaaammlt"), st.integers(1, 3), st.integers(1, 40)),
    max_size=120,
)


@pytest.mark.parametrize("kind", PLAIN)
@settings(max_examples=60, deadline=None)
@given(EVENTS, st.floats(0.25, 2.0), st.floats(0.002, 2.0))
def test_each_window_follows_the_formulas_of_its_rfc(
    kind: str, events: list[tuple[str, int, int]], weight: float, rtt_s: float
) -> None:
    ours, plain = WINDOWS[kind](MOST, IDLE_NS), Reference(kind, weight)
    ours.weigh(weight, 0.5)
    now, una, end = 0, 0, 0
    for what, most_acked, wait in events:
        now += wait * MS
        # A sender that its window limits: what it may send is in flight.
        end = max(end, una + max(1, int(plain.cwnd)))
        flight = end - una
        if what in "am":
            acked = min(most_acked, flight)
            una += acked
            marked = what == "m"
            ours.on_ack(Acknowledgement(now, acked, marked, una, end, flight, int(rtt_s * 1e9)))
            plain.ack(now / 1e9, acked, marked, una, end, flight, int(rtt_s * 1e9) / 1e9)
        elif what == "l":
            ours.on_loss(now, una, end, flight)
            plain.lost(una, end, flight)
        else:
            ours.on_timeout(now, una, end, flight)
            plain.timeout(una, end, flight)
        plain.cwnd = min(plain.cwnd, float(MOST))
        assert ours.cwnd == pytest.approx(plain.cwnd, rel=1e-6), what
        assert ours.ssthresh == pytest.approx(plain.ssthresh, rel=1e-6)
        assert 1 <= ours.window == int(ours.cwnd) <= MOST
        if isinstance(ours, Dctcp):
            assert ours.alpha == pytest.approx(plain.alpha)


@pytest.mark.parametrize("kind", PLAIN)
def test_an_idle_time_and_an_iteration_restart_the_window(kind: str) -> None:
    control = WINDOWS[kind](MOST, IDLE_NS)
    for una in range(2, 60, 2):
        control.on_ack(Acknowledgement(una * MS, 2, False, una, una + 60, 60, 2 * MS))
    grown = control.cwnd
    assert grown > 60
    control.restart(IDLE_NS, iteration=False)
    assert control.cwnd == grown
    control.restart(IDLE_NS + 1, iteration=False)
    assert control.cwnd == 10
    control.on_timeout(0, 100, 200, 50)
    control.restart(IDLE_NS + 1, iteration=False)
    assert control.cwnd == 1
    control.restart(IDLE_NS + 1, iteration=True)
    assert control.cwnd == 10


@pytest.mark.parametrize("kind", PLAIN)
def test_a_window_that_limits_nothing_does_not_grow(kind: str) -> None:
    control = WINDOWS[kind](MOST, IDLE_NS)
    for una in range(2, 400, 2):
        control.on_ack(Acknowledgement(una * MS, 2, False, una, una + 6, 6, 2 * MS))
    assert control.cwnd <= 2 * 6 + 2
    control.on_loss(0, 400, 406, 6)
    for una in range(408, 800, 2):
        control.on_ack(Acknowledgement(una * MS, 2, False, una, una + 6, 6, 2 * MS))
    assert control.cwnd < 6 + 4


def contend(sender: str, flows: int, packets: int, *, red: tuple[int, int, float], depth: int = 256) -> tuple:
    bench = Bench(2 * flows, trunk_bps=RATE, depth=depth)
    bench.trunk.kmin, bench.trunk.kmax, bench.trunk.pmax = red
    ends: list[int] = []
    queues = []
    for index in range(flows):
        bench.nics[index].set_sender("job", sender)
        qp, queue = bench.flow(index, flows + index)
        queues.append(queue)
        qp.post(packets * 1024, lambda: ends.append(bench.heap.now))
    bench.heap.run(packets * WIRE_NS)
    halfway = [queue.bytes for queue in queues]
    bench.heap.run(20_000 * MS)
    return bench, ends, halfway


@pytest.mark.parametrize("red", [(10, 40, 0.2), (5, 25, 0.5), (20, 60, 0.2)])
@pytest.mark.parametrize("sender", PLAIN)
def test_two_flows_of_one_sender_share_a_link_and_fill_it(sender: str, red: tuple[int, int, float]) -> None:
    bench, ends, halfway = contend(sender, 2, 700, red=red)
    assert 2 * 700 * WIRE_NS / max(ends) >= 0.97
    assert min(ends) / max(ends) >= 0.8
    assert min(halfway) / max(halfway) >= 0.6
    assert bench.trunk.drops == 0
    # Marks come back in acknowledgements only.
    assert bench.trunk.marks > 10
    assert all(nic.counters().cnps_sent == 0 for nic in bench.nics)


@pytest.mark.parametrize("sender", PLAIN)
def test_without_marks_losses_hold_the_window(sender: str) -> None:
    bench, ends, _ = contend(sender, 3, 400, red=(900, 901, 0.0), depth=40)
    assert len(ends) == 3
    assert bench.trunk.drops > 20
    assert 3 * 400 * WIRE_NS / max(ends) >= 0.6
    assert min(ends) / max(ends) >= 0.6


@pytest.mark.parametrize("sender", PLAIN)
def test_an_echo_acknowledges_marked_packets_only(sender: str) -> None:
    bench = Bench(3)
    bench.nics[0].set_sender("job", sender)
    qp, queue = bench.flow(0, 1)
    seen: list[Acknowledgement] = []

    class Watched(type(qp.congestion)):  # type: ignore[misc]
        def on_ack(self, ack: Acknowledgement) -> None:
            seen.append(ack)
            super().on_ack(ack)

    qp.congestion = Watched(MOST, IDLE_NS)
    bench.down(1).kmin, bench.down(1).kmax, bench.down(1).pmax = 2, 8, 0.5
    other, _ = bench.flow(2, 1, name="other/x")
    other.post(300 * 1024, lambda: None)
    qp.post(300 * 1024, lambda: None)
    bench.heap.run(2000 * MS)
    assert queue.bytes == 300 * 1024
    assert sum(ack.acked for ack in seen) == 300
    # Receivers count marks by packet, senders hear of the same number.
    assert sum(ack.acked for ack in seen if ack.marked) == queue.ecn_marks > 0
    assert queue.cnps_sent == 0


def test_a_change_of_sender_takes_effect_between_two_packets() -> None:
    bench = Bench(3)
    bench.down(1).kmin, bench.down(1).kmax = 2, 8
    qp, queue = bench.flow(0, 1, name="job/x")
    other, _ = bench.flow(2, 1, name="other/x")
    other.post(900 * 1024, lambda: None)
    done: list[int] = []
    qp.post(600 * 1024, lambda: done.append(1))
    for sender in ("reno", "mltcp-reno", "dcqcn", "mltcp-cubic", "dctcp"):
        before = queue.cnps_sent
        bench.nics[0].set_sender("job", sender)
        bench.heap.run(bench.heap.now + 60 * MS)
        assert (queue.cnps_sent > before + 2) == (sender == "dcqcn")
    bench.heap.run(2000 * MS)
    assert done == [1]
    assert queue.bytes == 600 * 1024
    with pytest.raises(ValueError, match="sender 'tcp'; legal"):
        bench.nics[0].set_sender("job", "tcp")
