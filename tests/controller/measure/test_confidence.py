# SPDX-License-Identifier: Apache-2.0
"""The half-widths of a measured profile."""

from __future__ import annotations

import numpy as np
import pytest

from controller.measure.confidence import (
    LEAST_EDGE_BINS,
    LEAST_PERIOD,
    confidence,
    half_width,
    slope_half_width,
)
from controller.model.job import Confidence, Phase, Profile

MS = 1_000_000
BIN = 5 * MS


def table(starts_ms: list[float], ups_ms: list[float]) -> np.ndarray:
    """Bytes of one flow that sends 1,000 bytes each ms, `ups_ms` long from each start on."""
    edges = np.arange(0, 3_000 * MS, BIN, dtype=float)
    total = sum(np.clip(edges - a * MS, 0, u * MS) for a, u in zip(starts_ms, ups_ms, strict=True))
    return np.diff(total)[None, :] / 1e3


def test_the_interval_of_a_median_holds_the_true_value_in_95_of_100_draws() -> None:
    rng = np.random.default_rng(1)
    draws = rng.normal(100, 5, (2_000, 6))
    held = [abs(float(np.median(d)) - 100) <= half_width(list(d)) for d in draws]
    assert 0.93 < np.mean(held) < 0.98
    assert half_width([7.0]) == float("inf")


def test_even_iterations_are_known_to_what_the_bins_resolve() -> None:
    starts = [100.0 + 250 * k for k in range(6)]
    spans = [(a * MS, (a + 250) * MS) for a in starts]
    found = confidence(Profile(250 * MS, (Phase(0, 100 * MS, 8),)), table(starts, [100] * 6), BIN, spans, 0.0)
    least = round(LEAST_EDGE_BINS * BIN)
    assert found == Confidence(round(LEAST_PERIOD * 250 * MS), ((least, least),))


def test_an_edge_that_varies_is_known_less_well_than_one_that_does_not() -> None:
    starts, ups = [100.0 + 250 * k for k in range(6)], [80.0, 120, 95, 105, 90, 110]
    spans = [(a * MS, (a + 250) * MS) for a in starts]
    profile = Profile(250 * MS, (Phase(0, 100 * MS, 8),))
    found = confidence(profile, table(starts, ups), BIN, spans, 0.0)
    assert found is not None
    ((start, end),) = found.edges_ns
    assert end > 3 * start
    assert end == pytest.approx(half_width([u * MS for u in ups]), rel=0.15)


def test_too_few_iterations_give_no_confidence() -> None:
    profile = Profile(250 * MS, (Phase(0, 100 * MS, 8),))
    spans = [(100.0 * MS, 350.0 * MS)]
    assert confidence(profile, table([100], [100]), BIN, spans, half_width([250.0 * MS])) is None
    assert slope_half_width([0.0, 250.0 * MS], 250.0 * MS) == float("inf")
    assert slope_half_width([k * 250.0 * MS for k in range(6)], 250.0 * MS) == pytest.approx(0.0, abs=1e-3)
