# SPDX-License-Identifier: Apache-2.0
"""Which measured periods are one period, and what that period is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_rig import job
from hypothesis import given
from hypothesis import strategies as st

from controller.measure.common_periods import MOST_NOISE, with_common_periods
from controller.measure.confidence import BEYOND
from controller.model.job import Confidence, Job, Measurement, Phase, Profile

MS = 1_000_000


def known(name: str, period_ms: float, width_ms: float, up_ms: float = 80) -> Job:
    sure = Confidence(round(width_ms * MS), ((MS, MS),))
    return replace(
        job(name, "h1", "h3"),
        profile=Profile(round(period_ms * MS), (Phase(0, round(up_ms * MS), 25),)),
        measured=Measurement(6, round(up_ms * MS), None, None, "iterations", sure),
    )


def periods(*jobs: Job) -> list[float]:
    return [j.profile.period_ns / MS for j in with_common_periods(jobs)]


def test_noisy_periods_become_their_weighted_mean() -> None:
    a, b = periods(known("a", 293, 6), known("b", 301, 12))
    assert a == b == pytest.approx((293 * 4 + 301) / 5, abs=1e-3)


def test_of_exact_periods_that_agree_the_longest_counts() -> None:
    assert periods(known("a", 260, 0.65), known("b", 261, 0.65)) == [261, 261]
    assert periods(known("a", 260, 0.65), known("b", 262, 0.65)) == [260, 262]


def test_multiples_keep_their_ratio() -> None:
    a, b, c = periods(known("a", 388, 7), known("b", 202, 5), known("c", 611, 9))
    assert a == pytest.approx(2 * b, abs=1e-3)
    assert c == pytest.approx(3 * b, abs=1e-3)
    assert 195 < b < 205


def test_different_periods_and_unknown_ones_stay() -> None:
    declared = replace(known("c", 260, 9), measured=None)
    unsure = known("d", 261, 9)
    assert unsure.measured is not None
    unsure = replace(unsure, measured=replace(unsure.measured, confidence=None))
    assert periods(known("a", 200, 4), known("b", 260, 5), declared, unsure) == [200, 260, 260, 261]
    assert with_common_periods([]) == ()


def test_no_period_becomes_shorter_than_its_phases() -> None:
    a, b = periods(known("a", 262, 5, up_ms=261.5), known("b", 255, 4))
    assert a == 261.5
    assert b < 260


@given(st.lists(st.tuples(st.floats(100, 900), st.floats(0.001, 0.03)), min_size=1, max_size=12))
def test_every_period_stays_within_what_it_may_be_off(parts: list[tuple[float, float]]) -> None:
    drawn = [(period, part * period) for period, part in parts]
    jobs = [known(f"j{n}", period, width, up_ms=1) for n, (period, width) in enumerate(drawn)]
    widest = max(width for _, width in drawn)
    for (period, width), found in zip(drawn, periods(*jobs), strict=True):
        # It may differ from the mean of its group so far by both errors, and the mean may move on by as much.
        assert abs(found - period) <= 2 * max(BEYOND * (width + 4 * widest), MOST_NOISE * period) + 1e-3
    assert periods(*jobs) == [*reversed(periods(*reversed(jobs)))]
