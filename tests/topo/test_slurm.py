# SPDX-License-Identifier: Apache-2.0
"""Slurm's topology.conf and topology.yaml as fabrics, and their mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm_files import ConfigError
from topo.files import load_topology
from topo.graph import Topology
from topo.slurm import expanded

CONF = """\
# Switch Configuration
SwitchName=s0 Nodes=tux[0-3],\\
gpu[01-02]n1 LinkSpeed=100G
switchname=s1 nodes=tux[4-7]   # lower case

SwitchName=s2 Switches=s[0-1]
"""
YAML = """\
---
- topology: blocks
  block:
    block_sizes: [2]
    blocks: [{block: b1, nodes: "node[01-02]"}]
- topology: topo1
  cluster_default: true
  tree:
    switches:
      - switch: sw_root
        children: s[1-2]
      - switch: s1
        nodes: node[01-02]
      - switch: s2
        nodes: node[03,05]
"""


def loaded(tmp_path: Path, name: str, text: str) -> Topology:
    path = tmp_path / name
    path.write_text(text)
    return load_topology(path, default_bps=10**11, fabric_bps=4 * 10**11)


def test_a_tree_of_topology_conf(tmp_path: Path) -> None:
    found = loaded(tmp_path, "topology.conf", CONF)
    assert {h.name: h.leaf for h in found.hosts} == {
        **{f"tux{i}": "s0" for i in range(4)}, "gpu01n1": "s0", "gpu02n1": "s0",
        **{f"tux{i}": "s1" for i in range(4, 8)},
    }  # fmt: skip
    assert {s.name: s.tier.value for s in found.switches} == {"s0": "leaf", "s1": "leaf", "s2": "spine"}
    assert [(k.a, k.b, k.rate_bps) for k in found.links] == [
        ("s0", "s2", 4 * 10**11),
        ("s1", "s2", 4 * 10**11),
    ]


def test_the_default_tree_of_topology_yaml(tmp_path: Path) -> None:
    found = loaded(tmp_path, "topology.yaml", YAML)
    assert found.name == "topo1"
    assert [(h.name, h.leaf) for h in found.hosts] == [
        ("node01", "s1"), ("node02", "s1"), ("node03", "s2"), ("node05", "s2")
    ]  # fmt: skip
    assert {frozenset((k.a, k.b)) for k in found.links} == {
        frozenset({"s1", "sw_root"}),
        frozenset({"s2", "sw_root"}),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SwitchName=s0 Nodes=a\nSwitchName=s0 Nodes=b\n", ":2: switch s0 is there already; legal: once"),
        (
            "SwitchName=s0 Nodes=a\n\nSwitchName=s1 Nodes=a\n",
            ":3: node a is below s0 already; legal: below one switch",
        ),
        ("SwitchName=s0 Nodes=a[3-1]\n", ":1: [3-1] is wrong; legal: numbers and ranges such as 01-16,20"),
        ("SwitchName=s0 Nodes=a[1-999999999]\n", ":1: [1-999999999] is wrong; legal: numbers"),
        (
            "SwitchName=s0 Nodes=a[1\n",
            ":1: 'a[1' is no list of names; legal: names such as n1 and n[01-16,20]",
        ),
        ("SwitchName=s0 Node=a\n", ":1: Node: unknown key; legal: SwitchName, Nodes, Switches, LinkSpeed"),
        ("SwitchName=s0\n", ":1: s0: legal: either Nodes or Switches"),
        (
            "SwitchName=s0 Nodes=a\nSwitchName=s1 Switches=s0,s9\n",
            ":2: s9 is no switch; legal: a name in the file",
        ),
        ("SwitchName=s0 Nodes=a\nSwitchName=s1 Switches=s1\n", ":2: switch s1 is below s1 already"),
        (
            "SwitchName=s0 Nodes=a\nSwitchName=s9 Switches=s8\nSwitchName=s8 Switches=s9\n",
            ":2: s9 is not within two",
        ),
        ("BlockName=b1 Nodes=a\n", ":1: BlockName: blocks have no switches; legal: a tree (topology/tree)"),
        ("Nodes=a\n", ":1: SwitchName is missing"),
        ("SwitchName=s0 Nodes=n[1-254]\n", ":1: s0 has 254 nodes; legal: at most 253"),
        ("", ":1: no switch has nodes; legal: one or more"),
    ],
)
def test_mistakes_in_topology_conf_have_a_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "topology.conf", text)
    assert str(caught.value).startswith(f"{tmp_path}/topology.conf{said}")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("node[03,05]", "node[03,05", ":15: [1].tree.switches[2].nodes: 'node[03' is no list of names"),
        ("s[1-2]", "s[1-3]", ":10: [1].tree.switches[0]: s3 is no switch; legal: a name in the file"),
        (
            "children:",
            "childs:",
            ":11: [1].tree.switches[0].childs: unknown key; legal: switch, nodes, children",
        ),
        ("switches:", "swiches:", ":8: [1].tree: has no switches; legal: a list `switches`"),
    ],
)
def test_mistakes_in_topology_yaml_have_line_and_path(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "topology.yaml", YAML.replace(old, new))
    assert str(caught.value).startswith(f"{tmp_path}/topology.yaml{said}")


def test_blocks_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[0\]\.block: blocks have no switches; legal: a tree"):
        loaded(tmp_path, "topology.yaml", YAML.partition("- topology: topo1")[0])


@given(
    prefix=st.sampled_from(["n", "rack-1-", "gpu2x"]),
    width=st.integers(1, 4),
    numbers=st.sets(st.integers(0, 999), min_size=1, max_size=20),
    tail=st.sampled_from(["", "-ib0"]),
)
def test_a_host_list_gives_its_names(prefix: str, width: int, numbers: set[int], tail: str) -> None:
    words = [str(n).zfill(width) for n in sorted(numbers)]
    listed = f"{prefix}[{','.join(words)}]{tail},last"
    assert expanded(listed) == [*(f"{prefix}{w}{tail}" for w in words), "last"]
    first, last = min(numbers), max(numbers)
    assert expanded(f"{prefix}[{first}-{last}]") == [f"{prefix}{n}" for n in range(first, last + 1)]
    assert len(expanded("r[1-3]n[01-04]")) == 12
