# SPDX-License-Identifier: Apache-2.0
"""Iterations from byte counters: clean, noisy, uneven and hopeless series."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.measure.periodicity import iteration_length

STEP = 0.01


def counter(
    period: float,
    up: float,
    samples: int = 3000,
    *,
    noise: float = 0.0,
    jitter: float = 0.0,
    parts: tuple[float, ...] = (0.0,),
    seed: int = 1,
) -> np.ndarray:
    """Bytes in each 10 ms of a job that sends 1 GB/s for `up` s of each period, in parts at these phases."""
    rng = np.random.default_rng(seed)
    fine = 20
    time = np.arange(samples * fine) * STEP / fine
    rate = np.zeros(len(time))
    begin = -period * rng.random()
    while begin < time[-1]:
        for part in parts:
            first = begin + part * period
            rate[(time >= first) & (time < first + up / len(parts))] = 1e9
        begin += period * (1 + jitter * rng.standard_normal())
    sent = rate.reshape(samples, fine).mean(axis=1) * STEP
    return np.maximum(0.0, sent + noise * 1e9 * STEP * rng.standard_normal(samples))


@pytest.mark.parametrize(
    ("period", "up", "options", "within"),
    [
        (0.26, 0.12, {}, 1e-4),
        (0.26, 0.12, {"noise": 0.3}, 1e-3),
        (0.2557, 0.01, {"noise": 0.1}, 1e-3),
        (0.5, 0.45, {"noise": 0.2}, 1e-3),
        (9.7, 2.0, {"noise": 0.3}, 0.01),
        (1.53, 0.4, {"noise": 0.3, "jitter": 0.02}, 0.02),
        (0.3, 0.1, {"noise": 0.1, "parts": (0.0, 0.3, 0.45)}, 1e-3),
        (0.26, 0.12, {"samples": 90}, 0.01),
    ],
)
def test_the_period_is_found(period: float, up: float, options: dict[str, float], within: float) -> None:
    for seed in range(5):
        found = iteration_length(counter(period, up, seed=seed, **options), STEP)
        assert found is not None
        assert found[0] == pytest.approx(period, rel=within)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.08, 3.0), st.floats(0.1, 0.9), st.integers(0, 10**6))
def test_any_period_is_found(period: float, part: float, seed: int) -> None:
    found = iteration_length(counter(period, part * period, seed=seed, noise=0.1), STEP)
    assert found is not None
    assert found[0] == pytest.approx(period, rel=0.005)


def test_where_nothing_repeats_there_is_no_period() -> None:
    rng = np.random.default_rng(4)
    for hopeless in (
        np.zeros(100),
        np.full(100, 7.0),
        np.arange(3000.0),
        np.array([]),
        np.array([1.0]),
        np.array([0.0, np.nan] * 50),
    ):
        assert iteration_length(hopeless, STEP) is None
    assert all(iteration_length(rng.random(3000), STEP) is None for _ in range(20))
    assert iteration_length(counter(0.0253, 0.012), STEP) is None
    # Two iterations could be chance.
    assert iteration_length(counter(1.0, 0.3, samples=200), STEP) is None


def test_an_interval_must_be_positive() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        iteration_length(np.ones(10), 0.0)
