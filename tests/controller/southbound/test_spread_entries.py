# SPDX-License-Identifier: Apache-2.0
"""The entries that spread classes over the groups of a switch."""

from controller.model.plan import SpreadClass, Spreading
from controller.routing.forwarding import forwarding
from controller.southbound.desired import Entry
from controller.southbound.spread_entries import spread_entries
from topo.generate import leaf_spine

FABRIC = leaf_spine(leaves=3, spines=4, hosts_per_leaf=1, host_bps=10**9, fabric_bps=10**9)


def entries(*classes, down=frozenset(), switch="leaf1"):
    return list(spread_entries(forwarding(FABRIC, down)[switch], classes))


def key(group, dscp):
    return (("group_id", group), ("dscp", dscp))


def test_each_group_and_class_has_its_own_turns():
    in_turn = Spreading("spray_in_turn")
    down = frozenset({("leaf2", "spine1")})
    assert entries(SpreadClass(26, in_turn), SpreadClass(30, in_turn)) == [
        Entry("spread", key(1, 26), "spray_in_turn", (0,)),
        Entry("spread", key(1, 30), "spray_in_turn", (1,)),
    ]
    found = entries(SpreadClass(26, in_turn), SpreadClass(30, in_turn), down=down)
    assert len(found) == len({e.params for e in found}) == 4


def test_flowlets_compare_each_member_once():
    flowlets = SpreadClass(26, Spreading("move_flowlets", 500, 6))
    assert entries(flowlets) == [Entry("spread", key(1, 26), "move_flowlets", (500, 6, 3, 0))]
    down = frozenset({("leaf1", "spine1"), ("leaf1", "spine2")})
    assert [e.params for e in entries(flowlets, down=down)] == [(500, 6, 1, 0)]


def test_random_spraying_needs_no_state():
    assert entries(SpreadClass(26, Spreading("spray_random"))) == [
        Entry("spread", key(1, 26), "spray_random")
    ]


def test_a_switch_without_groups_has_no_entries():
    assert entries(SpreadClass(26, Spreading("spray_random")), switch="spine1") == []
