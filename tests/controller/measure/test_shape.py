# SPDX-License-Identifier: Apache-2.0
"""Profiles from byte counts: phases, rates and periods, clean and noisy, with and without iteration reports."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.measure.series import Series
from controller.measure.shape import discover, estimate, pieces, spans_of

MS = 1_000_000
BIN = 5 * MS
Span = tuple[float, float, float]


def counts(
    period_ms: float,
    spans: list[Span],
    iterations: int,
    *,
    start_ms: float = 17.3,
    noise: float = 0.0,
    jitter: float = 0.0,
    seed: int = 1,
) -> tuple[np.ndarray, list[float]]:
    """Bytes in each bin of packets of 1,082 bytes, `spans` being (start ms, end ms, Mbit/s); and when the
    iterations start, in ns."""
    rng = np.random.default_rng(seed)
    bins = int((start_ms + (iterations + 1) * period_ms) * MS // BIN)
    edges = np.arange(bins + 1) * float(BIN)
    total, starts, at = np.zeros(bins + 1), [], start_ms * MS
    for _ in range(iterations):
        starts.append(at)
        for begin, end, mbps in spans:
            total += np.clip(edges - at - begin * MS, 0, (end - begin) * MS) * mbps / 8e3
        at += period_ms * MS * (1 + jitter * rng.standard_normal())
    sent = np.diff(np.floor(total / 1082) * 1082)
    return np.maximum(0.0, sent + noise * sent.max() * rng.standard_normal(bins)), starts


CASES: list[tuple[float, list[Span]]] = [
    (260, [(0, 120, 25)]),
    (300, [(0, 148, 25)]),
    (168, [(0, 55, 4)]),
    (100, [(0, 15, 25)]),
    (170, [(0, 130, 25)]),
    (420, [(0, 60, 12.5), (100, 160, 12.5), (210, 300, 20)]),
    (200, [(0, 50, 20), (50, 120, 8)]),
    (1000, [(50 * i, 50 * i + 20, 20) for i in range(15)]),
]


@pytest.mark.parametrize(("period", "spans"), CASES)
@pytest.mark.parametrize("disturbed", [{}, {"noise": 0.05}, {"jitter": 0.005}])
def test_phases_are_found_to_a_fraction_of_a_bin(
    period: float, spans: list[Span], disturbed: dict[str, float]
) -> None:
    for seed in range(3):
        sent, starts = counts(period, spans, 6, seed=seed, **disturbed)
        profile = estimate(sent[None, :], BIN, spans_of(starts), period * MS)
        assert profile is not None
        assert len(profile.phases) == len(spans)
        for phase, (begin, end, mbps) in zip(profile.phases, spans, strict=True):
            assert phase.start_ns == pytest.approx(begin * MS, abs=2.5 * MS)
            assert phase.end_ns == pytest.approx(end * MS, abs=2.5 * MS)
            assert phase.rate_bps == pytest.approx(mbps * 1e6, rel=0.07)


@pytest.mark.parametrize(("period", "spans"), CASES[:6])
def test_without_reports_the_period_is_found_too(period: float, spans: list[Span]) -> None:
    for seed in range(3):
        sent, starts = counts(period, spans, 14, seed=seed, noise=0.02)
        found = discover(sent[None, :], BIN)
        assert found is not None
        profile, begins = found
        assert profile.period_ns == pytest.approx(period * MS, rel=2e-3)
        assert len(profile.phases) == len(spans)
        assert profile.up_ns == pytest.approx(sum(e - b for b, e, _ in spans) * MS, abs=3 * MS * len(spans))
        # Which phase opens an iteration nobody says: it is the one after the longest silence.
        first = begins[0] - starts[0]
        assert min(first % (period * MS), -first % (period * MS)) < 3 * MS


@pytest.mark.parametrize("mbps", [8, 25])
@pytest.mark.parametrize("gap", [9.4, 12.0, 14.0])
@pytest.mark.parametrize("short", [9.4, 20.0])
def test_a_gap_of_two_bins_is_found(mbps: int, gap: float, short: float) -> None:
    spans: list[Span] = [(75, 103, mbps), (103 + gap, 103 + gap + short, mbps)]
    for start_ms in (17.3, 19.0, 20.0, 21.6):
        sent, starts = counts(151, spans, 5, start_ms=start_ms)
        profile = estimate(sent[None, :], BIN, spans_of(starts), 151 * MS)
        assert profile is not None
        assert len(profile.phases) == 2
        for phase, (begin, end, _) in zip(profile.phases, spans, strict=True):
            assert phase.start_ns == pytest.approx(begin * MS, abs=3.5 * MS)
            assert phase.end_ns == pytest.approx(end * MS, abs=3.5 * MS)


def test_a_burst_beside_a_slow_phase_stays_a_burst() -> None:
    spans: list[Span] = [(20, 80, 3), (80, 88, 25)]
    sent, starts = counts(203, spans, 6)
    profile = estimate(sent[None, :], BIN, spans_of(starts), 203 * MS)
    assert profile is not None
    slow, burst = profile.phases
    assert slow.rate_bps == pytest.approx(3e6, rel=0.1)
    assert slow.end_ns == pytest.approx(80 * MS, abs=3 * MS)
    assert burst.rate_bps == pytest.approx(25e6, rel=0.2)
    assert burst.end_ns == pytest.approx(88 * MS, abs=3 * MS)


def test_each_flow_is_judged_by_itself() -> None:
    # Two GPUs of one server: one sends activations, both the all-reduce; a shared counter would add them.
    a, starts = counts(300, [(0, 40, 10), (100, 200, 20)], 6)
    b, _ = counts(300, [(100, 200, 20)], 6)
    profile = estimate(np.stack([a, b]), BIN, spans_of(starts), 300 * MS)
    assert profile is not None
    assert [round(p.rate_bps / 1e6) for p in profile.phases] == [10, 20]


def test_where_nothing_repeats_or_nothing_is_sent_there_is_no_profile() -> None:
    rng = np.random.default_rng(3)
    assert discover(rng.random((2, 600)), BIN) is None
    assert discover(np.zeros((2, 600)), BIN) is None
    assert discover(np.zeros((0, 600)), BIN) is None
    assert discover(np.full((1, 600), 7.0), BIN) is None
    assert estimate(np.ones((1, 10)), BIN, [(0.0, 100.0 * MS)], 100 * MS) is None
    silent = estimate(np.zeros((1, 100)), BIN, [(0.0, 100.0 * MS)], 100 * MS)
    assert silent is not None
    assert silent.phases == ()


@settings(max_examples=30, deadline=None)
@given(
    st.integers(150, 2000),
    st.lists(st.floats(0.02, 0.98), min_size=2, max_size=8, unique=True),
    st.integers(8, 40),
    st.integers(0, 2**31),
)
def test_any_profile_is_legal_and_carries_the_bytes(
    period: int, cuts: list[float], mbps: int, seed: int
) -> None:
    edges = sorted(cuts)[: len(cuts) // 2 * 2]
    # A limit of the estimate: of bursts of less than two bins, a part is lost in the noise of packets.
    assume(all((b - a) * period * MS >= 2 * BIN for a, b in zip(edges[::2], edges[1::2], strict=True)))
    spans = [(a * period, b * period, float(mbps)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    sent, starts = counts(period, spans, 5, seed=seed)
    for profile in (
        estimate(sent[None, :], BIN, spans_of(starts), period * MS),
        (discover(sent[None, :], BIN) or (None, ()))[0],
    ):
        if profile is None:
            continue
        end = 0
        for phase in profile.phases:
            assert end <= phase.start_ns < phase.end_ns <= profile.period_ns
            assert phase.rate_bps > 0
            end = phase.end_ns
    whole = estimate(sent[None, :], BIN, spans_of(starts), period * MS)
    assert whole is not None
    carried = sum(p.rate_bps * (p.end_ns - p.start_ns) / 8e9 for p in whole.phases)
    asked = sum((b - a) * mbps * 1e3 / 8 for a, b, _ in spans)
    assert carried == pytest.approx(asked, rel=0.12, abs=6 * 1082)


@given(st.lists(st.tuples(st.integers(5, 30), st.integers(0, 5)), min_size=1, max_size=8))
def test_pieces_of_a_clean_series_are_its_levels(levels: list[tuple[int, int]]) -> None:
    merged: list[tuple[int, int]] = []
    for length, level in levels:
        if merged and merged[-1][1] == level:
            merged[-1] = (merged[-1][0] + length, level)
        else:
            merged.append((length, level))
    series = np.concatenate([np.full(length, float(level)) for length, level in merged])
    found = pieces(series)
    assert [(b - a, round(rate)) for a, b, rate in found] == merged


def test_pieces_of_counts_may_come_twice_and_in_any_order() -> None:
    series = Series(BIN, kept=20)
    series.add("a", 3 * BIN, [3, 4, 5])
    series.add("a", 0, [0, 1, 2])
    series.add("a", 3 * BIN, [3, 4, 5])
    assert series.covered_until(2) == 0
    series.add("b", 2 * BIN, [20, 30])
    assert series.covered_until(2) == 4 * BIN
    table, start = series.window(BIN + 1, 5 * BIN)
    assert start == 2 * BIN
    assert table.tolist() == [[2, 3, 4], [20, 30, 0]]
    series.add("a", 6 * BIN, list(range(100)))
    table, _ = series.window(0, 106 * BIN)
    assert table[0].sum() == sum(range(80, 100))
    with pytest.raises(ValueError, match="must be positive"):
        Series(0)
