# SPDX-License-Identifier: Apache-2.0
"""Silent jobs watched by their bytes: what contention does is no change, what the job does is."""

from __future__ import annotations

import numpy as np
import pytest

from controller.measure.change import longest_silence, looks_changed
from controller.model.job import Phase, Profile

MS = 1_000_000
BIN = 5 * MS
RATE = 25_000_000


def series(iterations: list[list[tuple[float, float, float]]]) -> np.ndarray:
    """Bytes in bins; each iteration is a list of (ms of sending, part of the rate, ms of silence after)."""
    time, sent = [0.0], [0.0]
    for parts in iterations:
        for up, part, down in parts:
            time += [time[-1] + up, time[-1] + up + down]
            sent += [sent[-1] + up * part * RATE / 8e3] * 2
    edges = np.arange(0, time[-1], BIN / MS)
    return np.diff(np.interp(edges, time, sent))


def changed(iterations: list[list[tuple[float, float, float]]], up: float = 120, down: float = 140) -> bool:
    return looks_changed(series(iterations), BIN, up * RATE / 8e3, down * MS)


def test_the_same_pattern_is_none_however_it_is_stretched_or_torn() -> None:
    rng = np.random.default_rng(2)
    assert not changed([[(120, 1, 140)]] * 12)
    assert not changed([[(240, 0.5, 140)]] * 12)
    torn = []
    for _ in range(12):
        cut = rng.uniform(20, 100)
        torn.append([(cut, 1, rng.uniform(30, 200)), (120 - cut, 1, 140 + rng.uniform(-5, 5))])
    assert not changed(torn)


@pytest.mark.parametrize(
    "after",
    [
        [(70, 1, 140)],  # fewer bytes
        [(180, 1, 140)],  # half more
        [(120, 1, 90)],  # less compute
        [(120, 1, 220)],  # more compute
        [(60, 1, 40), (30, 1, 140)],  # another shape and fewer bytes
    ],
)
def test_another_pattern_is_a_change(after: list[tuple[float, float, float]]) -> None:
    assert changed([after] * 14)


def test_what_says_too_little_says_nothing() -> None:
    assert not changed([[(60, 1, 140)]] * 3)
    assert not changed([[(60, 1, 0)]] * 30)
    assert not looks_changed(np.zeros(500), BIN, 1e6, 100 * MS)
    assert not looks_changed(np.ones(500), BIN, 1e6, 2 * MS)


def test_several_phases_add_up_from_wherever_one_begins() -> None:
    assert not changed([[(60, 0.5, 90), (60, 0.5, 100), (60, 1, 95)]] * 10, up=120, down=100)


def test_the_longest_silence_goes_around_the_period() -> None:
    phases = (Phase(0, 20, 1), Phase(50, 60, 1), Phase(70, 80, 1))
    assert longest_silence(Profile(120, phases)) == 40
    assert longest_silence(Profile(90, phases)) == 30
    assert longest_silence(Profile(90, ())) == 90
