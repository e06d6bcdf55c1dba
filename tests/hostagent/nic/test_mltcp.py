# SPDX-License-Identifier: Apache-2.0
"""MLTCP in the emulated NIC: the iteration found from acknowledgements, jobs that come to share a link in time."""

from __future__ import annotations

import random

import pytest
from host_bench import FRAME, MS, RATE, Bench

from hostagent.nic.driver import SendQueue
from hostagent.nic.mltcp import SHAPES, Mltcp, MltcpProgress, linear

UP_MS, COMPUTE_MS = 120, 140
SIZE = UP_MS * RATE // 8000 * 1024 // FRAME


def flow_of(bench: Bench, index: int, peer: int, settings: Mltcp | None) -> SendQueue:
    """The queue pair of a job's flow between two hosts, with MLTCP if there are `settings`."""
    if settings is not None:
        bench.nics[index].set_mltcp(f"job{index}", settings)
        bench.nics[index].set_sender(f"job{index}", "mltcp-dcqcn")
    return bench.flow(index, peer, name=f"job{index}/ring")[0]


def two_jobs(start_ms: float, settings: Mltcp | None, iterations: int, seed: int = 1) -> list[float]:
    """Two VGG19 (T = 260, Up 120 ms) over one trunk: the longer of both jobs' iteration times in ms."""
    bench = Bench(4, trunk_bps=RATE)
    rng = random.Random(seed)
    begins: list[list[int]] = [[], []]

    def job(index: int) -> None:
        qp = flow_of(bench, index, index + 2, settings)

        def done() -> None:
            pause = round((COMPUTE_MS + rng.uniform(-1, 1)) * MS)
            bench.heap.call_at(bench.heap.now + pause, begin)

        def begin() -> None:
            begins[index].append(bench.heap.now)
            qp.post(SIZE, done)

        bench.heap.call_at(round(start_ms * MS) if index else 0, begin)

    job(0)
    job(1)
    while min(len(b) for b in begins) <= iterations:
        bench.heap.run(bench.heap.now + 300 * MS)
    return [max(b[k + 1] - b[k] for b in begins) / MS for k in range(iterations)]


def iterations_to_interleave(times: list[float], alone_ms: float = 262) -> int:
    """The first iteration from which on none is over 10 % longer than alone."""
    return max((k + 1 for k, t in enumerate(times) if t > 1.1 * alone_ms), default=0)


@pytest.mark.parametrize("seed", range(5))
def test_two_vgg19_from_random_starts_take_turns_within_30_iterations(seed: int) -> None:
    start = random.Random(seed).uniform(1, 259)
    times = two_jobs(start, Mltcp(), 36, seed)
    assert iterations_to_interleave(times) <= 30
    assert sum(times[-5:]) / 5 < 1.05 * 262


@pytest.mark.parametrize("name", SHAPES)
def test_rising_shapes_take_turns_and_falling_ones_do_not(name: str) -> None:
    times = two_jobs(20, Mltcp(SHAPES[name]), 34)
    # Fair sharing stretches 262 ms to 380.
    if name.startswith("2-"):
        assert min(times[-5:]) > 1.3 * 262
    else:
        assert iterations_to_interleave(times) <= 30
        assert max(times[-4:]) < 1.05 * 262


def test_plain_dcqcn_stays_in_contention_where_mltcp_does_not() -> None:
    assert sum(two_jobs(20, None, 30)[-5:]) / 5 > 1.25 * 262


def alone_ms(settings: Mltcp | None, up_ms: int) -> float:
    """The mean time of a phase of a job that is alone on the trunk, in ms."""
    bench = Bench(4, trunk_bps=RATE)
    qp = flow_of(bench, 0, 2, settings)
    took: list[int] = []

    def begin() -> None:
        began = bench.heap.now

        def done() -> None:
            took.append(bench.heap.now - began)
            bench.heap.call_at(bench.heap.now + 60 * MS, begin)

        qp.post(up_ms * RATE // 8000 * 1024 // FRAME, done)

    bench.heap.call_at(0, begin)
    bench.heap.run(1500 * MS)
    return sum(took[2:]) / len(took[2:]) / MS


@pytest.mark.parametrize("up_ms", [10, 30, 90])
def test_a_job_that_is_alone_loses_nothing_by_mltcp(up_ms: int) -> None:
    assert alone_ms(Mltcp(), up_ms) == pytest.approx(alone_ms(None, up_ms), abs=0.05)


@pytest.mark.parametrize(("least", "most", "share"), [(0.25, 2.0, 1 / 9), (0.6, 1.4, 0.3), (1.0, 1.0, 0.5)])
def test_flows_that_meet_for_long_share_a_link_by_their_weights(
    least: float, most: float, share: float
) -> None:
    bench = Bench(4, trunk_bps=RATE)
    sent = [0, 0]

    def flow(index: int, weight: float) -> None:
        settings = Mltcp(lambda _: weight, bytes_per_iteration=1 << 40, compute_ns=1 << 50)
        qp = flow_of(bench, index, index + 2, settings)

        def done() -> None:
            sent[index] += 1
            qp.post(10 * 1024, done)

        for _ in range(20):
            qp.post(10 * 1024, done)

    flow(0, least)
    flow(1, most)
    bench.heap.run(1000 * MS)
    before = list(sent)
    bench.heap.run(6000 * MS)
    got = [b - a for a, b in zip(before, sent, strict=True)]
    assert got[0] / sum(got) == pytest.approx(share, abs=0.04)


def test_it_is_off_by_default_and_chosen_per_job() -> None:
    bench = Bench(3)
    nic = bench.nics[0]
    first, _ = bench.flow(0, 1, name="a/x")
    nic.set_sender("a", "mltcp-dcqcn")
    nic.set_mltcp("a", Mltcp(bytes_per_iteration=64 * 1024, compute_ns=100 * MS))
    second, _ = bench.flow(0, 2, name="a/y", port=0xC124)
    other, _ = bench.flow(0, 2, name="b/y", port=0xC125)
    for qp in (first, second, other):
        assert qp.congestion.weight == 1.0
        qp.post(32 * 1024, lambda: None)
    bench.heap.run(50 * MS)
    # Half of the iteration is through: F(0.5).
    assert first.congestion.weight == second.congestion.weight == pytest.approx(linear(0.5))
    assert other.congestion.weight == 1.0
    nic.set_sender("a", "dcqcn")
    assert first.congestion.weight == 1.0


def feed(progress: MltcpProgress, at: int, acks: int, size: int = 1000) -> int:
    progress.on_send(at)
    for _ in range(acks):
        at += MS
        progress.on_ack(at, size)
    return at


def test_iterations_are_learnt_from_gaps() -> None:
    progress = MltcpProgress(Mltcp())
    at, ratios = 0, []
    for _ in range(6):
        at = feed(progress, at, 40)
        # A pause within the iteration, too short for its end.
        at = feed(progress, at + 25 * MS, 60)
        ratios.append(progress.ratio)
        at += 140 * MS
    assert progress.bytes_per_iteration == pytest.approx(100_000)
    assert ratios[-3:] == [1.0] * 3
    progress.on_send(at)
    assert progress.ratio == 0.0
    for k in range(1, 51):
        progress.on_ack(at + k * MS, 1000)
    assert progress.ratio == pytest.approx(0.5)


def test_given_figures_need_no_learning() -> None:
    progress = MltcpProgress(Mltcp(bytes_per_iteration=100_000, compute_ns=140 * MS))
    at = feed(progress, 0, 50)
    assert progress.ratio == 0.5
    assert progress.weight == linear(0.5)
    # 120 ms are less than 0.9 of the compute time, 130 are more.
    assert not progress.on_send(at + 120 * MS)
    assert progress.on_send(at + 130 * MS)
    assert (progress.ratio, progress.iterations) == (0.0, 1)


def test_weight_is_one_until_an_iteration_is_known() -> None:
    progress = MltcpProgress(Mltcp())
    assert not progress.on_send(5)
    at = feed(progress, 10, 30)
    assert progress.weight == 1.0
    assert progress.on_send(at + 140 * MS)
    assert progress.weight == linear(0.0)
