# SPDX-License-Identifier: Apache-2.0
"""The emulated NIC over a bottleneck: line rate, loss, go-back-N, time-outs, DCQCN, fair shares."""

from __future__ import annotations

import dataclasses
import random

import pytest
from host_bench import FRAME, MS, PROFILE, RATE, Bench, EventHeap
from hypothesis import given, settings
from hypothesis import strategies as st

from hostagent.nic.dcqcn import ReactionPoint
from hostagent.nic.emulated import EmulatedNic

WIRE_NS = FRAME * 8 * 10**9 // RATE


def is_data(frame: bytes) -> bool:
    return frame[42] in (0, 1, 2, 4)


def test_a_lone_flow_runs_at_line_rate_without_marks() -> None:
    bench = Bench(2, trunk_bps=RATE)
    qp, queue = bench.flow(0, 1)
    ends: list[int] = []
    qp.post(346 * 1024, lambda: ends.append(bench.heap.now))
    bench.heap.run(500 * MS)
    ideal = 346 * WIRE_NS
    assert ideal <= ends[0] < ideal + 3 * MS
    assert queue.ecn_marks == qp.retransmits == bench.trunk.drops == 0
    assert bench.trunk.peak <= 1


@pytest.mark.parametrize("nominal", [42, 8, 1])
def test_the_application_and_the_controller_cap_the_rate(nominal: int) -> None:
    bench = Bench(2)
    qp, _ = bench.flow(0, 1)
    ends: list[int] = []
    cap = RATE * nominal // 50
    qp.post(50 * 1024, lambda: ends.append(bench.heap.now), cap)
    bench.heap.run(5_000 * MS)
    ideal = 50 * FRAME * 8 * 10**9 / cap
    assert ideal * 0.97 <= ends[0] <= ideal + 3 * MS
    qp.set_rate_cap(cap // 2)
    start = bench.heap.now
    qp.post(50 * 1024, lambda: ends.append(bench.heap.now), cap)
    bench.heap.run(start + 10_000 * MS)
    assert 2 * ideal * 0.97 <= ends[1] - start <= 2 * ideal + 3 * MS


def test_two_flows_of_one_nic_take_turns_and_acks_overtake_data() -> None:
    bench = Bench(3)
    ends: dict[str, int] = {}
    for dst in (1, 2):
        qp, _ = bench.flow(0, dst)
        qp.post(100 * 1024, lambda dst=dst: ends.setdefault(f"0>{dst}", bench.heap.now))
    back, _ = bench.flow(1, 0)
    back.post(100 * 1024, lambda: ends.setdefault("1>0", bench.heap.now))
    bench.heap.run(300 * MS)
    assert ends["0>1"] == pytest.approx(200 * WIRE_NS, rel=0.05)
    assert ends["0>2"] == pytest.approx(200 * WIRE_NS, rel=0.05)
    assert ends["1>0"] == pytest.approx(100 * WIRE_NS, rel=0.06)


def test_a_nic_sends_the_flows_of_the_highest_level_first_and_others_in_turn() -> None:
    bench = Bench(4)
    bench.nics[0].set_traffic_classes(48, 50, (30, 10))
    ends: dict[int, int] = {}
    flows = {dst: bench.flow(0, dst)[0] for dst in (1, 2, 3)}
    for dst, qp in flows.items():
        qp.post(100 * 1024, lambda dst=dst: ends.setdefault(dst, bench.heap.now))
    # While it sends, flow 2 is moved to the highest level; flow 3 gets a DSCP that belongs to no level.
    flows[3].repin(flows[3].source_port, 7)
    flows[2].repin(flows[2].source_port, 30)
    bench.heap.run(600 * MS)
    first, second, third = sorted(ends, key=ends.__getitem__)
    assert (first, second, third) == (2, 1, 3)
    assert ends[3] == pytest.approx(300 * WIRE_NS, rel=0.05)
    flows[1].post(100 * 1024, lambda: ends.update({4: bench.heap.now}))
    flows[2].post(100 * 1024, lambda: ends.update({5: bench.heap.now}))
    start = bench.heap.now
    bench.heap.run(start + 600 * MS)
    assert ends[5] - start == pytest.approx(100 * WIRE_NS, rel=0.06)
    assert ends[4] - start == pytest.approx(200 * WIRE_NS, rel=0.06)


@pytest.mark.parametrize("alone", [0, 20])
def test_a_flow_that_waits_behind_a_higher_level_leaves_with_its_new_one(alone: int) -> None:
    bench = Bench(3)
    bench.nics[0].set_traffic_classes(48, 50, (30, 10))
    high, low = bench.flow(0, 1)[0], bench.flow(0, 2)[0]
    high.repin(high.source_port, 30)
    low.repin(low.source_port, 10)
    ends: list[str] = []
    low.post(100 * 1024, lambda: ends.append("low"))
    bench.heap.run(alone * WIRE_NS)
    high.post(5_000 * 1024, lambda: ends.append("high"))
    bench.heap.run(bench.heap.now + 200 * WIRE_NS)
    assert low.packets < 2 * alone + 2
    low.repin(low.source_port, 30)
    bench.heap.run(bench.heap.now + 300 * WIRE_NS)
    assert ends == ["low"]


def test_one_lost_packet_brings_one_nak_and_goes_back() -> None:
    bench = Bench(2)
    naks: list[bytes] = []
    seen = [0]

    def tap(frame: bytes) -> bytes | None:
        if frame[42] == 0x11 and frame[54] == 0x60:
            naks.append(frame)
        if is_data(frame):
            seen[0] += 1
            if seen[0] == 20:
                return None
        return frame

    bench.tap = tap
    qp, queue = bench.flow(0, 1)
    ends: list[int] = []
    qp.post(100 * 1024, lambda: ends.append(bench.heap.now))
    bench.heap.run(300 * MS)
    assert len(naks) == 1
    assert qp.timeouts == 0
    assert 1 <= qp.retransmits <= 12
    assert queue.bytes == 100 * 1024
    assert queue.packets == 100
    assert ends[0] < (100 + qp.retransmits) * WIRE_NS + 4 * MS


def test_a_lost_tail_and_lost_acks_are_cured_by_the_timer() -> None:
    bench = Bench(2)
    lost = [0]

    def tap(frame: bytes) -> bytes | None:
        last = frame[42] == 2
        if (last or frame[42] == 0x11) and lost[0] < 3:
            lost[0] += 1
            return None
        return frame

    bench.tap = tap
    qp, queue = bench.flow(0, 1)
    ends: list[int] = []
    qp.post(20 * 1024, lambda: ends.append(bench.heap.now))
    bench.heap.run(1_000 * MS)
    assert len(ends) == 1
    assert 1 <= qp.timeouts <= 3
    assert ends[0] > PROFILE.retransmit_ns
    assert qp.retransmits <= qp.timeouts + 5
    assert queue.bytes == 20 * 1024


def test_a_path_that_is_only_slow_is_not_flooded() -> None:
    bench = Bench(2)
    held: list[bytes] = []
    stalled = [True]

    def tap(frame: bytes) -> bytes | None:
        if stalled[0] and is_data(frame):
            held.append(frame)
            return None
        return frame

    bench.tap = tap
    qp, queue = bench.flow(0, 1)
    qp.post(100 * 1024, lambda: None)
    bench.heap.run(4 * PROFILE.retransmit_ns)
    assert qp.packets <= PROFILE.window_packets + 4
    stalled[0] = False
    for frame in held:
        bench._to_host(frame)
    bench.heap.run(2_000 * MS)
    assert queue.bytes == 100 * 1024
    assert qp.retransmits <= 8


def test_a_dead_path_is_left_by_a_new_pin_in_mid_message() -> None:
    bench = Bench(2)
    bench.tap = lambda frame: None if is_data(frame) and frame[34:36] == b"\xc1\x23" else frame
    qp, queue = bench.flow(0, 1)
    done: list[int] = []
    qp.post(60 * 1024, lambda: done.append(1))
    bench.heap.run(10 * MS)
    qp.repin(0xC124, 10)
    bench.heap.run(500 * MS)
    assert done == [1]
    assert queue.bytes == 60 * 1024


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.0, 0.15), st.lists(st.integers(1, 40_000), min_size=1, max_size=3))
def test_any_loss_delivers_all_bytes_once_in_order(seed: int, loss: float, sizes: list[int]) -> None:
    bench = Bench(2)
    draw = random.Random(seed)
    bench.tap = lambda frame: None if draw.random() < loss else frame
    got: list[int] = []
    queue = bench.nics[1].listen("job/f", Bench.ip(0), lambda q, n: got.append(n))
    qp = bench.nics[0].open_qp("job/f", Bench.ip(1), 0xC001, 0)
    done: list[int] = []
    for index, size in enumerate(sizes):
        qp.post(size, lambda index=index: done.append(index))
    bench.heap.run(60_000 * MS)
    assert done == list(range(len(sizes)))
    assert sum(got) == queue.bytes == sum(sizes)
    expected = [min(1024, size - at) for size in sizes for at in range(0, size, 1024)]
    assert got == expected


def test_packet_numbers_wrap() -> None:
    heap = EventHeap()
    ends: dict[bytes, EmulatedNic] = {}

    def transmit(frame: bytes) -> None:
        nic = ends[frame[30:34]]
        numbers.append(int.from_bytes(frame[51:54], "big"))
        heap.call_at(heap.now + 1000, nic.receive, nic.macs[6:] + nic.macs[:6] + frame[12:])

    numbers: list[int] = []
    seed = 535143  # the first packet number of this flow is within 60 of the wrap
    nics = [
        EmulatedNic(
            f"h{i}", Bench.ip(i), Bench.mac(i), Bench.mac(9), RATE,
            clock=heap, transmit=transmit, dcqcn=PROFILE, seed=seed,
        )
        for i in range(2)
    ]  # fmt: skip
    ends.update({nic.ip: nic for nic in nics})
    queue = nics[1].listen("job/wrap", Bench.ip(0), lambda q, n: None)
    qp = nics[0].open_qp("job/wrap", Bench.ip(1), 0xC001, 0)
    done: list[int] = []
    qp.post(200 * 1024, lambda: done.append(1))
    heap.run(500 * MS)
    assert done == [1]
    assert queue.bytes == 200 * 1024
    assert max(numbers) == 2**24 - 1
    assert 0 in numbers
    assert qp.retransmits == 0


def test_a_cnp_cuts_the_rate_and_timers_bring_it_back() -> None:
    profile = dataclasses.replace(PROFILE, initial_alpha=1.0, fast_recovery_steps=5)
    tick = profile.increase_timer_ns
    point = ReactionPoint(RATE, profile)
    assert not point.limited
    point.on_cnp(0)
    assert point.limited
    assert point.rate == RATE / 2
    point.advance(tick)
    assert point.rate == RATE * 0.75
    point.advance(2 * tick)
    assert point.rate == RATE * 0.875
    point.on_cnp(2 * tick)
    alpha = (1 - profile.g) ** (2 * tick // profile.alpha_timer_ns)
    assert point.rate == pytest.approx(RATE * 0.875 * (1 - alpha / 2))
    assert point.alpha == pytest.approx((1 - profile.g) * alpha + profile.g)
    cut = point.rate
    point.advance(7 * tick)
    recovered = RATE * 0.875 - (RATE * 0.875 - cut) / 2**5
    assert point.rate == pytest.approx(recovered)
    point.advance(8 * tick)
    assert point.rate == pytest.approx((recovered + RATE * 0.875 + profile.additive_bps) / 2)
    point.advance(140 * MS)
    assert not point.limited
    assert point.rate == RATE


def test_the_rate_never_falls_under_the_least_and_bytes_raise_it_too() -> None:
    point = ReactionPoint(RATE, PROFILE)
    for step in range(40):
        point.on_cnp(step * 1000)
    assert point.rate == PROFILE.min_rate_bps
    patient = dataclasses.replace(PROFILE, increase_timer_ns=10**15)
    point = ReactionPoint(RATE, patient)
    point.on_cnp(0)
    before = point.rate
    point.advance(1, patient.byte_counter)
    assert point.rate > before
    targets = []
    for _ in range(patient.fast_recovery_steps + 2):
        point.advance(2, patient.byte_counter)
        targets.append(point.rate)
    assert targets == sorted(targets)


def contend(
    flows: int, packets: int, red: tuple[int, int, float], depth: int = 128
) -> tuple[Bench, list[int], list[int]]:
    bench = Bench(2 * flows, trunk_bps=RATE, depth=depth)
    bench.trunk.kmin, bench.trunk.kmax, bench.trunk.pmax = red
    ends: list[int] = []
    queues = []
    for index in range(flows):
        qp, queue = bench.flow(index, flows + index)
        queues.append(queue)
        qp.post(packets * 1024, lambda: ends.append(bench.heap.now))
    bench.heap.run(packets * WIRE_NS)
    halfway = [queue.bytes for queue in queues]
    bench.heap.run(20_000 * MS)
    return bench, ends, halfway


@pytest.mark.parametrize("red", [(10, 40, 0.2), (5, 25, 0.5), (5, 20, 1.0), (20, 60, 0.2)])
def test_two_flows_share_a_bottleneck_fairly_and_fill_it(red: tuple[int, int, float]) -> None:
    bench, ends, halfway = contend(2, 347, red)
    assert len(ends) == 2
    assert 2 * 347 * WIRE_NS / max(ends) >= 0.9
    assert min(ends) / max(ends) >= 0.85
    assert min(halfway) / max(halfway) >= 0.75
    assert bench.trunk.marks > 50
    assert bench.trunk.drops == 0
    cuts = [bench.nics[i].counters().cnps_received for i in range(2)]
    assert min(cuts) >= 5


@pytest.mark.parametrize(("depth", "least"), [(256, 0.9), (128, 0.5)])
def test_four_flows_starve_nobody_even_where_the_buffer_overflows(depth: int, least: float) -> None:
    bench, ends, halfway = contend(4, 347, (5, 25, 0.5), depth)
    assert len(ends) == 4
    assert min(ends) / max(ends) >= 0.75
    assert min(halfway) >= 0.1 * sum(halfway)
    assert 4 * 347 * WIRE_NS / max(ends) >= least
    assert (bench.trunk.drops > 0) == (depth == 128)


def test_a_phase_after_an_idle_time_starts_at_line_rate() -> None:
    bench, _, _ = contend(2, 347, (10, 40, 0.2))
    start = bench.heap.now
    qp = bench.nics[0].open_qp("job/again", Bench.ip(2), 0xC001, 10)
    bench.nics[2].listen("job/again", Bench.ip(0), lambda q, n: None)
    ends: list[int] = []
    qp.post(100 * 1024, lambda: ends.append(bench.heap.now))
    for _ in range(5):
        qp.congestion.on_cnp(bench.heap.now)
    bench.heap.run(start + 300 * MS)
    slowed = ends[0] - start
    again = bench.heap.now
    qp.post(100 * 1024, lambda: ends.append(bench.heap.now))
    bench.heap.run(again + 300 * MS)
    assert slowed > ends[1] - again + MS
    assert ends[1] - again < 100 * WIRE_NS + 3 * MS
