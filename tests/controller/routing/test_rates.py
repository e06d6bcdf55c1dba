# SPDX-License-Identifier: Apache-2.0
"""Max-min rates under strict priority: kernel, reference, and what max-min means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.routing.rates import caps, maxmin


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 12), st.integers(1, 60), st.integers(0, 10**6))
def test_kernel_reference_and_definition(links: int, flows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    paths = np.full((flows, 4), -1, dtype=np.int32)
    for f in range(flows):
        hops = rng.integers(1, min(links, 4) + 1)
        paths[f, :hops] = rng.choice(links, hops, replace=False)
    capacity = rng.choice([1.0, 3.0, 7.5, 100.0], links) * 1e9
    klass = rng.integers(0, 8, flows).astype(np.int8)
    rates = maxmin(paths, capacity, klass)
    np.testing.assert_allclose(rates, maxmin(paths, capacity, klass, plain=True), rtol=1e-9, atol=1e-3)
    for f in range(flows):
        bottleneck = False
        for link in paths[f][paths[f] >= 0]:
            on = (paths == link).any(axis=1)
            above = rates[on & (klass <= klass[f])].sum()
            assert above <= capacity[link] * (1 + 1e-9)
            same = rates[on & (klass == klass[f])]
            bottleneck |= above >= capacity[link] * (1 - 1e-9) and rates[f] >= same.max() * (1 - 1e-9)
        assert bottleneck


def test_higher_classes_first_and_nothing_left_is_nothing() -> None:
    paths = np.array([[0, -1], [0, 1], [1, -1], [-1, -1]], dtype=np.int32)
    klass = np.array([0, 3, 3, 7], dtype=np.int8)
    assert maxmin(paths, np.array([10.0, 4.0]), klass).tolist() == [10.0, 0.0, 4.0, float("inf")]
    with pytest.raises(ValueError, match="0 to 7"):
        maxmin(paths, np.array([10.0, 4.0]), np.array([0, 8, 1, 1], dtype=np.int8))


def test_caps_leave_room_to_notice_a_freed_link() -> None:
    assert caps(np.array([10.0, 20.0]), 0.1).tolist() == [11.0, 22.0]
    with pytest.raises(ValueError, match="epsilon"):
        caps(np.array([1.0]), -0.1)
