# SPDX-License-Identifier: Apache-2.0
"""Which cables are down, where several join two switches: each for itself."""

from __future__ import annotations

from bundles_rig import bundled

from controller.live.link_state import LinkState
from controller.model import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.routing.forwarding import forwarding
from controller.routing.hash import ecmp_hash
from controller.routing.paths import path_of
from controller.southbound.table_writes import FabricCondition
from topo.generate import leaf_spine

FABRIC = bundled(leaf_spine(2, 2, 2, host_bps=10, fabric_bps=10), 2)
CUT = ("leaf1:5", "spine1:3")


def test_a_cut_cable_leaves_its_likes_in_use() -> None:
    links = LinkState(FABRIC)
    links.ports_seen("leaf1", {5: False})
    assert links.condition == FabricCondition(frozenset({CUT}))
    tables = forwarding(FABRIC, links.condition.down_links)
    group = tables["leaf1"].routes[FABRIC.prefixes["leaf2"]]
    assert set(tables["leaf1"].groups[group.id]) == {3, 4, 6}
    links.ports_seen("leaf1", {5: True})
    assert links.condition == FabricCondition()


def test_what_was_down_is_taken_up_again_by_the_cable() -> None:
    links = LinkState(FABRIC)
    links.restore(FabricCondition(frozenset({CUT, ("h1", "leaf1"), ("leaf9", "spine1")})))
    assert links.condition == FabricCondition(frozenset({CUT, ("h1", "leaf1")}))
    assert ("leaf1", 5) in links.down_ports
    assert ("spine1", 3) in links.down_ports
    assert ("leaf1", 3) not in links.down_ports


def test_a_plan_uses_the_cables_that_are_left() -> None:
    """Three flows of full rate: three cables are left, and each carries one of them."""
    pairs = [("h1", "h3"), ("h2", "h4"), ("h1", "h4")]
    flows = tuple(Flow(f"j/{i}", "j", a, b, 10**9) for i, (a, b) in enumerate(pairs))
    profile = Profile(10**9, (Phase(0, 10**9, 10),))
    job = Job("j", "m", 2, ("h1", "h2", "h3", "h4"), profile, 1e12, flows)
    made = plan(PlanInput(FABRIC, (job,), POLICIES["polyrhythm"], 0, down_links=frozenset({CUT})))
    tables = forwarding(FABRIC, frozenset({CUT}))
    out = set()
    for flow in flows:
        planned = made.flows[flow.name]
        assert planned.path is not None
        assert planned.source_port is not None
        value = ecmp_hash(FABRIC.host[flow.src].ip, FABRIC.host[flow.dst].ip, planned.source_port)
        group = tables["leaf1"].groups[tables["leaf1"].routes[FABRIC.prefixes["leaf2"]].id]
        out.add(group[value & 255])
        assert path_of(FABRIC, tables, flow.src, flow.dst, planned.source_port) == planned.path
    assert out == {3, 4, 6}
