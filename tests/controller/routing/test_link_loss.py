# SPDX-License-Identifier: Apache-2.0
"""After the loss of one link, Kempe chains reach the least possible largest load where a link carries one flow."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.routing.algorithms.base import Options, loads
from controller.routing.algorithms.optimal import optimal
from controller.routing.fabric import LeafDemand, TwoTier, UnsuitableError
from controller.routing.link_loss import LinkLosses

LEAVES, SPINES = 6, 4


def clos(rate: float = 1.0) -> TwoTier:
    leaves = tuple(f"leaf{n}" for n in range(LEAVES))
    return TwoTier(leaves, tuple(f"spine{n}" for n in range(SPINES)), np.full((LEAVES, SPINES), rate))


def permuted(seed: int, hosts: int) -> LeafDemand:
    """Each of `hosts` hosts of a leaf sends one flow and gets one; some flows stay inside their leaf."""
    rng = random.Random(seed)
    ends = [leaf for leaf in range(LEAVES) for _ in range(hosts)]
    to = rng.sample(ends, len(ends))
    return LeafDemand(np.array(ends, dtype=np.int32), np.array(to, dtype=np.int32))


@settings(max_examples=40)
@given(st.integers(0, 1_000_000), st.integers(1, 9), st.booleans())
def test_the_load_after_a_loss_is_the_least_possible(seed: int, hosts: int, plain: bool) -> None:
    fabric, demand = clos(2.0), permuted(seed, hosts)
    far = demand.src != demand.dst
    choice = np.zeros(len(demand), dtype=np.int32)
    choice[far] = optimal(fabric, demand.take(far), Options())
    try:
        losses = LinkLosses(fabric, demand, choice, plain=plain)
    except UnsuitableError:
        assert not far.any()
        return
    leaf, spine = seed % LEAVES, seed // LEAVES % SPINES
    found = losses.choices(leaf, spine)
    single = max(np.bincount(ends[far]).max() for ends in (demand.src, demand.dst)) < SPINES
    if found is None:
        # The answer is then the greedy one.
        assert not single
        return
    up = fabric.up.copy()
    up[leaf, spine] = 0.0
    after = replace(fabric, up=up)
    links = after.links(demand, found)
    assert (after.capacity[links[far]] > 0).all()
    assert (found[~far] == choice[~far]).all()
    load = loads(after, demand, found, demand.weights) / np.where(after.capacity > 0, after.capacity, 1)
    assert load.max() >= losses.least_load(leaf) - 1e-9
    assert load.max() == pytest.approx(losses.least_load(leaf)) or not single
    assert losses.least_load(leaf) == after.bound(demand) / 2.0
    # The assignment in force has not changed.
    assert (losses.choices(leaf, spine) == found).all()


def test_flows_that_differ_and_a_single_spine_are_refused() -> None:
    demand = replace(permuted(1, 2), weight=np.arange(1.0, 2 * LEAVES + 1))
    with pytest.raises(UnsuitableError, match="different weights"):
        LinkLosses(clos(), demand, np.zeros(len(demand), dtype=np.int32))
    one = TwoTier(("leaf0", "leaf1"), ("spine0",), np.ones((2, 1)))
    there = LeafDemand(np.array([0], dtype=np.int32), np.array([1], dtype=np.int32))
    with pytest.raises(UnsuitableError, match="no flow can take another spine"):
        LinkLosses(one, there, np.zeros(1, dtype=np.int32))
