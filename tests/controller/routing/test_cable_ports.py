# SPDX-License-Identifier: Apache-2.0
"""Source ports where several cables join two switches: each cable counts for itself."""

from __future__ import annotations

from collections import Counter

import pytest
from bundles_rig import bundled

from controller.routing.assign import with_ports
from controller.routing.forwarding import forwarding
from controller.routing.from_topology import Failures, fabric_of, parse_failures
from controller.routing.greedy import Commodity
from controller.routing.hash import ecmp_hash
from controller.routing.paths import path_of, route_to
from topo.generate import leaf_spine
from topo.graph import Topology

FABRIC = bundled(leaf_spine(2, 2, 4, host_bps=10, fabric_bps=10), 3)


def cables(topology: Topology, failures: Failures, src: str, dst: str, port: int) -> list[tuple[str, int]]:
    """The egress ports of a flow by the switches' own tables, without those to hosts."""
    tables = forwarding(topology, failures.links, failures.switches)
    host, spec = topology.host, topology.hash
    value = ecmp_hash(host[src].ip, host[dst].ip, port, algorithm=spec.algorithm)
    here, found = host[src].leaf, []
    while here != host[dst].leaf:
        route = route_to(topology, tables, here, dst)
        assert route is not None
        hop = route.id
        if route.kind == "group":
            hop = tables[here].groups[hop][value >> spec.slices[route.tier] & 255]
        out = tables[here].next_hops[hop].port
        found.append((here, out))
        here = topology.ports[here][out].node
    return found


@pytest.mark.parametrize("words", [[], ["leaf1:5-spine1:1"], ["leaf1:5-spine1:1", "leaf2:7-spine1:4"]])
def test_flows_of_one_path_spread_over_its_cables(words: list[str]) -> None:
    failures = parse_failures(FABRIC, words)
    table = forwarding(FABRIC, failures.links)
    flows = [Commodity(f"f{i}", f"h{i + 1}", f"h{i + 5}", 5.0) for i in range(4)] * 3
    flows = [Commodity(f"f{i}", f.src, f.dst, f.weight) for i, f in enumerate(flows)]
    chosen = {f.name: (f.src, "leaf1", "spine1", "leaf2", f.dst) for f in flows}
    args = FABRIC, table, flows, chosen
    found = with_ports(*args, fabric=fabric_of(FABRIC, failures), down_links=failures.links)
    load: Counter[tuple[str, int]] = Counter()
    for f in flows:
        port = found[f.name].source_port
        assert port is not None
        assert path_of(FABRIC, table, f.src, f.dst, port) == chosen[f.name]
        load.update(cables(FABRIC, failures, f.src, f.dst, port))
    up = [n for (switch, _), n in load.items() if switch == "leaf1"]
    down = [n for (switch, _), n in load.items() if switch == "spine1"]
    assert sorted(up) == ([6, 6] if words else [4, 4, 4])
    assert sorted(down) == ([6, 6] if len(words) == 2 else [4, 4, 4])
    # Flows that stay keep their ports and count: six more make it even again.
    before = {n: (chosen[n], a.source_port) for n, a in found.items()}
    again = with_ports(*args, fabric=fabric_of(FABRIC, failures), previous=before)
    assert {n: a.source_port for n, a in again.items()} == {n: a.source_port for n, a in found.items()}


def test_a_word_names_one_cable_or_all_between_two_switches() -> None:
    assert parse_failures(FABRIC, ["spine1:1-leaf1:5"]).links == {("leaf1:5", "spine1:1")}
    assert parse_failures(FABRIC, ["spine1-leaf1"]).links == {("leaf1", "spine1")}
    with pytest.raises(ValueError, match="leaf1:5-spine2:1"):
        parse_failures(FABRIC, ["leaf1:5-spine2:1"])
