# SPDX-License-Identifier: Apache-2.0
"""containerlab topologies as fabrics, and their mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyrhythm_files import ConfigError
from topo.files import load_topology
from topo.graph import Topology

CLOS = """\
name: clos
topology:
  kinds:
    nokia_srlinux: {image: ghcr.io/nokia/srlinux}
  groups:
    servers: {kind: linux}
  nodes:
    spine1: {kind: nokia_srlinux, type: ixr-d3}
    spine2: {kind: nokia_srlinux}
    leaf1: {kind: nokia_srlinux}
    leaf2: {kind: nokia_srlinux}
    gpu1: {group: servers}
    gpu2: {kind: linux}
    prometheus: {kind: linux}
  links:
    - endpoints: ["leaf1:e1-49", "spine1:e1-1"]
    - endpoints: ["leaf1:e1-50", "spine2:e1-1"]
    - endpoints: ["leaf2:e1-49", "spine1:e1-2"]
    - type: veth
      endpoints:
        - {node: leaf2, interface: e1-50}
        - {node: spine2, interface: e1-2}
    - endpoints: ["gpu1:eth1", "leaf1:e1-1"]
    - endpoints: ["leaf2:e1-1", "gpu2:eth1"]
    - endpoints: ["gpu2:eth2", "leaf1:e1-2"]
    - endpoints: ["spine1:mgmt0", "mgmt-net:spine1"]
    - type: dummy
      endpoint: {node: spine1, interface: dummy0}
"""


def loaded(tmp_path: Path, text: str) -> Topology:
    path = tmp_path / "clos.clab.yml"
    path.write_text(text)
    return load_topology(path, default_bps=10**11, fabric_bps=4 * 10**11)


def test_nodes_ports_and_tiers_are_those_of_the_file(tmp_path: Path) -> None:
    found = loaded(tmp_path, CLOS)
    assert found.name == "clos"
    assert [(s.name, s.tier.value) for s in found.switches] == [
        ("spine1", "spine"), ("spine2", "spine"), ("leaf1", "leaf"), ("leaf2", "leaf")
    ]  # fmt: skip
    assert [(h.name, h.machine, h.leaf, h.leaf_port) for h in found.hosts] == [
        ("gpu1", "gpu1", "leaf1", 1), ("gpu2.1", "gpu2", "leaf2", 1), ("gpu2.2", "gpu2", "leaf1", 2)
    ]  # fmt: skip
    assert [(k.a, k.a_port, k.b, k.b_port, k.rate_bps) for k in found.links] == [
        ("leaf1", 49, "spine1", 1, 4 * 10**11), ("leaf1", 50, "spine2", 1, 4 * 10**11),
        ("leaf2", 49, "spine1", 2, 4 * 10**11), ("leaf2", 50, "spine2", 2, 4 * 10**11),
    ]  # fmt: skip


def test_interfaces_without_numbers_of_their_own_are_counted(tmp_path: Path) -> None:
    # Two lanes of one socket: the last number says nothing.
    text = CLOS.replace("leaf1:e1-49", "leaf1:e1-1-2").replace("leaf1:e1-50", "leaf1:e1-10-1")
    found = loaded(tmp_path, text)
    # In natural order: e1-1, e1-1-2, e1-2, e1-10-1.
    assert {k.b: k.a_port for k in found.links if k.a == "leaf1"} == {"spine1": 2, "spine2": 4}
    assert {h.name: h.leaf_port for h in found.hosts} == {"gpu1": 1, "gpu2.1": 1, "gpu2.2": 3}


def test_a_label_decides_what_a_node_is(tmp_path: Path) -> None:
    # A switch in a Linux container, above all others.
    text = CLOS.replace("prometheus: {kind: linux}", "frr: {kind: linux, labels: {polyrhythm-tier: core}}")
    text += '    - endpoints: ["frr:eth1", "spine1:e1-30"]\n    - endpoints: ["frr:eth2", "spine2:e1-30"]\n'
    assert loaded(tmp_path, text).switch["frr"].tier.value == "core"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"spine1:e1-1"]', '"spine9:e1-1"]', ":16: topology.links[0].endpoints[1]: 'spine9' is no node; legal: a name"),
        ('"spine1:e1-2"]', '"spine1:e1-1"]', ":18: topology.links[2].endpoints[1]: spine1:e1-1 has a cable already"),
        ('"leaf2:e1-1", "gpu2', '"gpu1:eth9", "gpu2', ":24: topology.links[5].endpoints[1]: joins the hosts gpu1 and gpu2"),
        ('"spine2:e1-1"]', '"spine2"]', ":17: topology.links[1].endpoints[1]: 'spine2' is wrong; legal: NODE:INTERFACE"),
        ('["gpu1:eth1", "leaf1:e1-1"]', "[leaf1]", ":23: topology.links[4].endpoints: a list is wrong; legal: two endpoints"),
        ("leaf1: {kind: nokia_srlinux}", "leaf1: {}", ":10: topology.nodes.leaf1: kind is missing; legal: a kind"),
        (
            "leaf1: {kind: nokia_srlinux}", "leaf1: {kind: x, labels: {polyrhythm-tier: roof}}",
            ":10: topology.nodes.leaf1.labels.polyrhythm-tier: 'roof' is wrong; legal: host, leaf, spine, core",
        ),
        (
            "leaf1: {kind: nokia_srlinux}", "leaf1: {kind: x, labels: {polyrhythm-tier: core}}",
            ":23: topology.links[4].endpoints[0]: leaf1 has a host and tier core; legal: leaf",
        ),
        (
            '    - type: dummy', '    - endpoints: ["prometheus:eth1", "a1:e1-1"]\n    - type: dummy',
            ":27: topology.links[8].endpoints[1]: 'a1' is no node",
        ),
        ("  links:", "  wires:", ":2: topology.links: is missing; legal: a list of links"),
    ],
)  # fmt: skip
def test_mistakes_have_line_and_path(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in CLOS
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, CLOS.replace(old, new, 1))
    assert str(caught.value).startswith(f"{tmp_path}/clos.clab.yml{said}"), caught.value
