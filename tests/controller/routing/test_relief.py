# SPDX-License-Identifier: Apache-2.0
"""The local search that lowers the largest load on links and flows that are not alike."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.kernel import available
from controller.routing.algorithms.base import Options, congestion
from controller.routing.algorithms.ecmp import ecmp
from controller.routing.algorithms.greedy import greedy
from controller.routing.algorithms.ilp import ilp, installed
from controller.routing.fabric import LeafDemand, TwoTier
from controller.routing.from_topology import Failures, fabric_of
from controller.routing.least_congested import OwnedDemand, congestion_of, least_congested
from controller.routing.relief import relieved
from topo.generate import three_tier

UNIT = 2**30
"""Rates and weights are multiples of it and the parts of overlap are quarters, so that sums are exact."""


def uneven(leaves: int, spines: int, rng: Random, *, dead: float = 0.1) -> TwoTier:
    """A leaf-spine with links of three rates, some of them dead."""
    rates = [0 if rng.random() < dead else UNIT * rng.choice((4, 8, 16)) for _ in range(leaves * spines)]
    up = np.array(rates, dtype=np.float64).reshape(leaves, spines)
    return TwoTier(tuple(f"l{i}" for i in range(leaves)), tuple(f"s{i}" for i in range(spines)), up)


def flows_of(leaves: int, count: int, rng: Random) -> LeafDemand:
    """Random flows between different leaves, with weights of three sizes."""
    ends = [rng.sample(range(leaves), 2) for _ in range(count)]
    weight = np.array([UNIT * rng.choice((1, 2, 4)) for _ in ends], dtype=np.float64)
    src, dst = (np.array([e[i] for e in ends], dtype=np.int32) for i in (0, 1))
    return LeafDemand(src, dst, weight)


@pytest.mark.skipif(not available(), reason="the kernels need Numba")
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    leaves=st.integers(2, 6),
    spines=st.integers(1, 5),
    count=st.integers(1, 16),
    owners=st.integers(1, 4),
)
def test_the_kernel_moves_as_the_reference_does(
    seed: int, leaves: int, spines: int, count: int, owners: int
) -> None:
    rng = Random(seed)
    fabric, demand = uneven(leaves, spines, rng), flows_of(leaves, count, rng)
    start = ecmp(fabric, demand, Options(seed=seed))
    owner = np.array([rng.randrange(owners) for _ in range(count)], dtype=np.int32)
    overlap = np.array(
        [[1.0 if i == j else rng.choice((0.25, 0.5, 1.0)) for j in range(owners)] for i in range(owners)]
    )
    kernel, plain = (relieved(fabric, demand, start, owner, overlap, plain=p) for p in (False, True))
    assert kernel.tolist() == plain.tolist()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(0, 30), owners=st.integers(1, 3))
def test_no_load_rises_and_no_flow_takes_a_dead_link(seed: int, count: int, owners: int) -> None:
    rng = Random(seed)
    fabric, demand = uneven(4, 4, rng, dead=0.3), flows_of(4, count, rng)
    start = greedy(fabric, demand, Options(plain=True))
    owner = np.array([rng.randrange(owners) for _ in range(count)], dtype=np.int32)
    overlap = np.where(np.eye(owners) > 0, 1.0, 0.25)
    found = relieved(fabric, demand, start, owner, overlap, plain=True)
    assert ((found < 0) == (start < 0)).all()
    links = fabric.links(demand, found)
    assert (fabric.capacity[links[links >= 0]] > 0).all()
    flows = OwnedDemand(demand, owner, start, overlap)
    before, after = (congestion_of(fabric, flows, c).max_load for c in (start, found))
    assert after <= before


def test_two_flows_that_block_each_other_are_exchanged() -> None:
    """The heavy flow came later and found only the slow link; the light one must make room."""
    fabric = TwoTier(("a", "b"), ("s", "t"), np.array([[4.0, 2.0], [4.0, 2.0]]) * UNIT)
    ends = np.zeros(2, dtype=np.int32)
    demand = LeafDemand(ends, ends + 1, np.array([2.0, 4.0]) * UNIT)
    start = np.array([0, 1], dtype=np.int32)
    assert congestion(fabric, demand, start) == 2
    found = relieved(fabric, demand, start, ends, plain=True)
    assert found.tolist() == [1, 0]
    assert congestion(fabric, demand, found) == 1


def test_time_sharing_counts() -> None:
    """Two owners that never meet may share the fast link, though together they load it most."""
    fabric = TwoTier(("a", "b"), ("s", "t"), np.array([[4.0, 2.0], [4.0, 2.0]]) * UNIT)
    demand = LeafDemand(np.zeros(2, dtype=np.int32), np.ones(2, dtype=np.int32), np.array([4.0, 4.0]) * UNIT)
    owner, start = np.array([0, 1], dtype=np.int32), np.array([0, 1], dtype=np.int32)
    assert relieved(fabric, demand, start, owner, np.eye(2), plain=True).tolist() == [0, 0]


def test_it_runs_on_three_tiers() -> None:
    topology = three_tier(4, 2, 2, 2, 2, host_bps=UNIT, fabric_bps=8 * UNIT)
    fabric = fabric_of(topology, Failures(frozenset({(topology.links[0].a, topology.links[0].b)})))
    demand = flows_of(len(fabric.leaves), 40, Random(3))
    start = ecmp(fabric, demand, Options(plain=True))
    found = relieved(fabric, demand, start, np.zeros(40, dtype=np.int32), plain=True)
    assert congestion(fabric, demand, found) < congestion(fabric, demand, start)


@pytest.mark.skipif(not installed(), reason="needs HiGHS")
@pytest.mark.parametrize("seed", range(3))
def test_the_balanced_routing_is_as_good_as_the_ilp(seed: int) -> None:
    """On links of three rates, some down, from the paths that the greedy algorithm finds."""
    rng = Random(seed)
    fabric, demand = uneven(8, 4, rng, dead=0.05), flows_of(8, 48, rng)
    none = np.full(len(demand), -1, dtype=np.int32)
    flows = OwnedDemand(demand, np.zeros(len(demand), dtype=np.int32), none)
    ours = congestion(fabric, demand, least_congested(fabric, flows, balance=True, plain=True))
    exact = congestion(fabric, demand, ilp(fabric, demand, Options(limit_s=2)))
    assert ours <= exact * 1.05


def test_a_limit_on_moves_holds() -> None:
    rng = Random(1)
    fabric, demand = uneven(6, 4, rng, dead=0), flows_of(6, 30, rng)
    held = ecmp(fabric, demand, Options(seed=2))
    flows = OwnedDemand(demand, np.zeros(30, dtype=np.int32), held)
    for most in (0, 2, 30):
        found = least_congested(fabric, flows, balance=True, max_moves=most, plain=True)
        assert (found != held).sum() <= most
    assert congestion(fabric, demand, found) < congestion(fabric, demand, held)
