# SPDX-License-Identifier: Apache-2.0
"""The use of links by jobs: the kernel against the plain reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.routing.backend import backend


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_the_kernel_adds_up_what_the_reference_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flows, hops, links, jobs = (
        int(rng.integers(low, high)) for low, high in ((0, 40), (1, 5), (1, 12), (1, 6))
    )
    given_ = (
        rng.integers(-1, links, (flows, hops), dtype=np.int32),
        np.sort(rng.integers(0, jobs, flows, dtype=np.int32)),
        rng.integers(0, 10**12, flows),
        rng.random(flows) < 0.5,
        links,
        jobs,
    )
    for ours, plain in zip(
        backend().use_of_links(*given_), backend(plain=True).use_of_links(*given_), strict=True
    ):
        assert ours.dtype == plain.dtype
        assert ours.tolist() == plain.tolist()


@pytest.mark.parametrize("plain", [False, True])
def test_entries_are_in_the_order_in_which_the_flows_meet_the_links(plain: bool) -> None:
    rows = np.array([[2, 0], [-1, 2], [2, -1]], dtype=np.int32)
    job, size = np.array([0, 0, 2], dtype=np.int32), np.array([10, 5, 7])
    found = backend(plain).use_of_links(rows, job, size, np.array([True, False, True]), 3, 3)
    assert [column.tolist() for column in found] == [
        [0, 0, 2],
        [2, 0, 2],
        [15.0, 10.0, 7.0],
        [1, 1, 1],
        [2, 0, 1],
    ]
