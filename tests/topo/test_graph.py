# SPDX-License-Identifier: Apache-2.0
"""Names of cables, where one and where several join two switches."""

from __future__ import annotations

import pickle

from bundles_rig import bundled

from topo.generate import leaf_spine

PLAIN = leaf_spine(2, 2, 1, host_bps=10, fabric_bps=10)
BUNDLE = bundled(PLAIN, 2)
FIRST, SECOND = ("leaf1:2", "spine1:1"), ("leaf1:4", "spine1:3")


def test_a_cable_is_named_by_its_ends_with_ports_only_where_needed() -> None:
    assert set(PLAIN.cables) == {
        ("h1", "leaf1"), ("h2", "leaf2"),
        ("leaf1", "spine1"), ("leaf2", "spine1"), ("leaf1", "spine2"), ("leaf2", "spine2"),
    }  # fmt: skip
    assert PLAIN.bundles == {}
    assert {FIRST, SECOND, ("h1", "leaf1")} < set(BUNDLE.cables)
    assert ("leaf1", "spine1") not in BUNDLE.cables
    assert len(BUNDLE.cables) == 2 + 8
    assert BUNDLE.bundles["leaf1", "spine1"] == (FIRST, SECOND)
    assert set(BUNDLE.cables[FIRST]) == {("leaf1", 2), ("spine1", 1)}
    assert BUNDLE.cable_at["spine1", 3] == SECOND
    assert BUNDLE.cable_at["leaf1", 1] == ("h1", "leaf1")
    assert pickle.loads(pickle.dumps(BUNDLE)).cables == BUNDLE.cables


def test_one_cable_or_all_between_two_switches_are_down() -> None:
    one, both = frozenset({SECOND}), frozenset({FIRST, SECOND})
    named = frozenset({("leaf1", "spine1")})
    down = {d: [k for k in BUNDLE.links if BUNDLE.is_down(k, d)] for d in (one, both, named, frozenset())}
    assert [(k.a_port, k.b_port) for k in down[one]] == [(4, 3)]
    assert len(down[both]) == len(down[named]) == 2
    assert down[frozenset()] == []
    assert BUNDLE.split_bundles(one)
    assert not any(BUNDLE.split_bundles(d) for d in (both, named, frozenset()))
    assert ("leaf1", "spine1") in BUNDLE.down_pairs(both)
    assert ("leaf1", "spine1") not in BUNDLE.down_pairs(one)
    assert PLAIN.down_pairs(named) == named
