# SPDX-License-Identifier: Apache-2.0
"""Whether sprayed packets can fill a link between switches: by hand, and against random loads."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.routing.forwarding import forwarding
from controller.routing.spray_load import spraying_fits
from controller.routing.spread_portions import spread_portions
from topo.generate import leaf_spine, three_tier
from topo.graph import Topology


def clos(hosts: int, spines: int, fabric_bps: int = 10**9) -> Topology:
    return leaf_spine(2, spines, hosts, host_bps=10**9, fabric_bps=fabric_bps)


def ring(topology: Topology) -> frozenset[tuple[str, str]]:
    names = [h.name for h in topology.hosts]
    return frozenset(zip(names, names[1:] + names[:1], strict=True))


def across(topology: Topology) -> frozenset[tuple[str, str]]:
    half = len(topology.hosts) // 2
    names = [h.name for h in topology.hosts]
    return frozenset(zip(names[:half], names[half:], strict=True))


@pytest.mark.parametrize(
    ("hosts", "spines", "fabric_bps", "fits"),
    [
        (4, 4, 10**9, True),
        (4, 3, 10**9, False),
        (3, 3, 10**9, False),
        (4, 2, 2 * 10**9, True),
        (1, 1, 10**9, True),
        (2, 1, 10**9, False),
    ],
)
def test_uplinks_of_the_rate_of_the_hosts_are_enough(
    hosts: int, spines: int, fabric_bps: int, fits: bool
) -> None:
    # 256 buckets over three spines: one gets a hundredth more than its third.
    topology = clos(hosts, spines, fabric_bps)
    assert spraying_fits(topology, across(topology)) is fits


def test_what_stays_in_a_leaf_needs_no_uplink() -> None:
    topology = clos(2, 1)
    assert spraying_fits(topology, frozenset({("h1", "h2"), ("h3", "h4"), ("h1", "h3")}))


def test_a_failure_leaves_too_little() -> None:
    topology = clos(4, 4)
    assert not spraying_fits(topology, across(topology), frozenset({("leaf1", "spine1")}), frozenset())
    assert not spraying_fits(topology, across(topology), frozenset(), frozenset({"spine4"}))
    alone = clos(1, 1)
    assert not spraying_fits(alone, across(alone), frozenset({("leaf2", "spine1")}), frozenset())


def test_one_slow_uplink_is_the_one_that_counts() -> None:
    topology = clos(4, 4)
    slow = replace(topology, links=(replace(topology.links[0], rate_bps=9 * 10**8), *topology.links[1:]))
    assert not spraying_fits(slow, across(slow))
    assert spraying_fits(slow, frozenset({("h1", "h5"), ("h2", "h6"), ("h3", "h7")}))


def test_receivers_bound_what_meets_at_their_leaf() -> None:
    # Two leaves send to one host: its NIC is what is short.
    topology = leaf_spine(3, 2, 2, host_bps=10**9, fabric_bps=10**9)
    assert spraying_fits(topology, frozenset({("h1", "h5"), ("h2", "h5"), ("h3", "h5"), ("h4", "h5")}))


def test_three_tiers() -> None:
    full = three_tier(2, 2, 2, 2, 2, host_bps=10**9, fabric_bps=10**9)
    assert spraying_fits(full, ring(full))
    thin = three_tier(2, 2, 2, 1, 2, host_bps=10**9, fabric_bps=10**9)
    assert not spraying_fits(thin, across(thin))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_load_fills_a_link_where_spraying_fits(data: st.DataObject) -> None:
    topology = leaf_spine(3, data.draw(st.integers(1, 3)), 2, host_bps=10**9, fabric_bps=10**9)
    names = st.sampled_from([h.name for h in topology.hosts])
    drawn = data.draw(st.lists(st.tuples(names, names), min_size=1, max_size=6))
    pairs = frozenset((a, b) for a, b in drawn if a != b)
    room = dict.fromkeys(topology.host, 1.0)
    receive = dict(room)
    load: dict[tuple[str, str], float] = {}
    for src, dst in sorted(pairs):
        rate = data.draw(st.floats(0, 1)) * min(room[src], receive[dst])
        room[src] -= rate
        receive[dst] -= rate
        for link, portion in spread_portions(topology, forwarding(topology), src, dst).items():
            load[link] = load.get(link, 0.0) + rate * portion
    if spraying_fits(topology, pairs):
        assert all(rate <= 1 + 1e-9 for rate in load.values())
