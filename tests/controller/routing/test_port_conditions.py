# SPDX-License-Identifier: Apache-2.0
"""Ports that fulfil the conditions of a path lead along it, and in a fabric of powers of two no others do."""

from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.routing.forwarding import forwarding
from controller.routing.paths import path_of, paths
from controller.routing.port_conditions import all_hold, port_conditions
from topo.generate import leaf_spine, three_tier
from topo.graph import UNKNOWN_HASH, HashSpec

TCP = 6
RATES = {"host_bps": 10**9, "fabric_bps": 10**9}
FABRICS = {
    "two spines": lambda: leaf_spine(2, 2, 2, **RATES),
    "eight spines": lambda: leaf_spine(2, 8, 2, **RATES),
    "three spines": lambda: leaf_spine(3, 3, 1, **RATES),
    "three tiers": lambda: three_tier(2, 2, 2, 2, 1, **RATES),
}
PORTS = st.integers(1, 65535)


@lru_cache
def built(name):
    return FABRICS[name]()


@pytest.mark.parametrize("name", FABRICS)
@given(data=st.data())
def test_ports_that_fulfil_the_conditions_lead_along_the_path(name, data):
    topology = built(name)
    src, dst = data.draw(st.permutations([h.name for h in topology.hosts]))[:2]
    table = forwarding(topology)
    path = data.draw(st.sampled_from(paths(topology, table, src, dst)))
    conditions = port_conditions(topology, table, path, TCP)
    ports = data.draw(st.lists(st.tuples(PORTS, PORTS), min_size=20, max_size=20))
    for own, other in ports:
        leads = path_of(topology, table, src, dst, own, protocol=TCP, dest_port=other) == path
        fulfils = all_hold(conditions, own, other)
        assert leads or not fulfils
        if name != "three spines":
            assert leads == fulfils


def test_conditions_can_be_fulfilled_for_every_port_of_the_peer():
    """In a group of three each next hop has a bucket of its own at least."""
    topology = built("three spines")
    table = forwarding(topology)
    for path in paths(topology, table, "h1", "h2"):
        conditions = port_conditions(topology, table, path, TCP)
        assert len(conditions) <= 8
        for other in (1, 29500, 65535):
            assert any(all_hold(conditions, own, other) for own in range(32768, 61000))


def test_without_a_known_hash_or_a_path_there_are_no_conditions():
    topology = built("two spines")
    table = forwarding(topology)
    assert port_conditions(topology, table, ("h1", "leaf1", "h2"), TCP) == ()
    assert port_conditions(topology, table, ("h1", "leaf1", "leaf2", "h3"), TCP) is None
    unknown = replace(topology, hash=HashSpec(UNKNOWN_HASH))
    assert port_conditions(unknown, table, paths(topology, table, "h1", "h3")[0], TCP) is None
