# SPDX-License-Identifier: Apache-2.0
"""Topology files: legal content, error messages for other content, and fabrics as networkx graphs."""

from __future__ import annotations

import json

import networkx as nx
import pytest

from controller.routing.fabric import two_tier
from controller.routing.three_tier import three_tier as arrays_of_three
from polyrhythm.cli import main
from polyrhythm_files import ConfigError, InvalidValueError, value_document
from topo.addresses import in_families
from topo.export import from_networkx, to_networkx
from topo.files import load_topology, read_topology
from topo.generate import leaf_spine, rail, three_tier
from topo.jsonio import topology_from_json, topology_to_json

GOOD = {
    "kind": "leaf_spine",
    "leaves": 2,
    "spines": 2,
    "hosts_per_leaf": 2,
    "host_gbps": 10,
    "fabric_gbps": 10,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "mesh"}, ["kind", "'mesh'", "three_tier"]),
        ({"leaves": 0}, ["leaves", "from 1"]),
        ({"leaves": 5000}, ["4096"]),
        ({"leaves": "2"}, ["leaves"]),
        ({"host_gbps": -1}, ["host_gbps", "above 0"]),
        ({"extra": 1}, ["extra: unknown key; legal: kind, name, hash, addresses, any_order, leaves"]),
        ({"hosts_per_leaf": 254}, ["253"]),
        ({"kind": ["leaf_spine"]}, ["kind"]),
    ],
)
def test_what_is_wrong_is_told(change: dict, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_topology(value_document(GOOD | change, "t.json"), (), "t")
    assert all(word in str(caught.value) for word in words), caught.value


def test_missing_keys_and_other_values_are_told() -> None:
    for data in ({k: v for k, v in GOOD.items() if k != "spines"}, [], {"leaves": 3}, None):
        with pytest.raises(ConfigError):
            read_topology(value_document(data, "t.json"), (), "t")


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("switches", [{"name": "x", "tier": "roof"}], ["tier", "'roof'"]),
        ("switches", [{"name": "x", "tier": "leaf"}] * 2, ["'x'", "already"]),
        ("hosts", [{"name": "x", "leaf": "x", "gbps": 1}], ["'x'", "switch"]),
        ("hosts", [{"name": "h", "leaf": "z", "gbps": 1}], ["'z'", "no leaf"]),
        ("links", [{"a": "x", "b": "x", "gbps": 1}], ["different"]),
        ("links", [{"a": "x", "b": "w", "gbps": 1}], ["'w'", "no switch"]),
        ("links", 3, ["links: 3 is wrong; legal: a list"]),
    ],
)
def test_explicit_fabrics_are_checked(part: str, value: object, words: list[str]) -> None:
    base = {"kind": "explicit", "switches": [{"name": "x", "tier": "leaf"}], "hosts": [], "links": []}
    with pytest.raises(ConfigError) as caught:
        read_topology(value_document(base | {part: value}, "t.json"), (), "t")
    assert all(word in str(caught.value) for word in words), caught.value


def test_files_that_are_no_json(capsys, tmp_path) -> None:
    for name, content in (("a", b"{"), ("b", b"\xff\xfe"), ("c", b"[" * 100_000)):
        (tmp_path / name).write_bytes(content)
        assert main(["topo", "show", str(tmp_path / name)]) == 2
        assert str(tmp_path / name) in capsys.readouterr().err
    assert main(["topo", "show", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    "topology",
    [
        leaf_spine(3, 2, 2, host_bps=10, fabric_bps=20),
        three_tier(2, 2, 3, 2, 2, host_bps=10, fabric_bps=20),
        rail(2, 2, 2, 2, host_bps=10, fabric_bps=20),
        in_families(leaf_spine(2, 1, 2, host_bps=10, fabric_bps=20, name="ipv6"), "ipv6"),
        in_families(
            leaf_spine(2, 1, 2, host_bps=10, fabric_bps=20, name="both"), "ipv4+ipv6", {"h1": "ipv6"}
        ),
    ],
    ids=lambda t: t.name,
)
def test_fabrics_survive_json_and_graphs(capsys, tmp_path, topology) -> None:
    again = topology_from_json(json.loads(json.dumps(topology_to_json(topology))))
    assert again == topology
    (tmp_path / "t.json").write_text(json.dumps(topology_to_json(topology)))
    assert main(["topo", "show", str(tmp_path / "t.json")]) == 0
    assert f"{len(topology.hosts)} NICs" in capsys.readouterr().out
    graph = to_networkx(topology)
    assert nx.is_connected(graph)
    assert graph.number_of_edges() == len(topology.hosts) + len(topology.links)
    back = from_networkx(graph)
    assert [(h.name, h.leaf, h.server, h.rate_bps) for h in back.hosts] == [
        (h.name, h.leaf, h.server, h.rate_bps) for h in topology.hosts
    ]
    assert main(["topo", "show", str(tmp_path / "t.json"), "--graphml"]) == 0
    (tmp_path / "t.graphml").write_text(capsys.readouterr().out)
    read = load_topology(tmp_path / "t.graphml")
    assert read == back
    assert nx.is_isomorphic(nx.Graph(graph), nx.Graph(to_networkx(back)))
    ends = [(s, p) for s in topology.ports for p in topology.ports[s]]
    assert len(ends) == len(topology.hosts) + 2 * len(topology.links)
    assert len({h.ip for h in topology.hosts}) == len({h.mac for h in topology.hosts}) == len(topology.hosts)


def test_graphs_that_are_no_fabric() -> None:
    graph = nx.Graph()
    graph.add_node("x", tier="roof")
    with pytest.raises(InvalidValueError, match="roof"):
        from_networkx(graph)
    graph.nodes["x"]["tier"] = "host"
    with pytest.raises(InvalidValueError, match="one cable, to a leaf"):
        from_networkx(graph)
    graph.add_edge("x", "y")
    graph.nodes["y"]["tier"] = "leaf"
    with pytest.raises(InvalidValueError, match="rate_bps"):
        from_networkx(graph)
    graph.edges["x", "y"]["rate_bps"] = "fast"
    with pytest.raises(InvalidValueError, match=r"rate_bps 'fast' is wrong; legal: 1 to"):
        from_networkx(graph)
    graph.edges["x", "y"]["rate_bps"] = 5
    assert from_networkx(graph).hosts[0].leaf == "y"
    with pytest.raises(InvalidValueError, match="directed"):
        from_networkx(graph.to_directed())
    graph.add_edge("y", "y", rate_bps=5)
    with pytest.raises(InvalidValueError, match="two different"):
        from_networkx(graph)


@pytest.mark.parametrize("text", ["", "<a/>", "<graphml><graph/></graphml>", "{}", "<!DOCTYPE x [", "\0"])
def test_graphml_that_is_none_is_one_line(tmp_path, capsys, text) -> None:
    path = tmp_path / "g.graphml"
    path.write_text(text)
    assert main(["topo", "show", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{path}:1: ")
    assert error.count("\n") == 1


def test_what_kind_of_clos_a_fabric_is() -> None:
    two = leaf_spine(3, 2, 2, host_bps=10, fabric_bps=20)
    three = three_tier(2, 3, 2, 4, 2, host_bps=10, fabric_bps=20)
    assert two_tier(three) is None
    assert arrays_of_three(two) is None
    arrays = arrays_of_three(three)
    assert arrays is not None
    assert (arrays.up.shape, arrays.over.shape, arrays.per_pod) == ((6, 2), (2, 2, 4), 3)
    assert (two_tier(two).up == 20).all()


def test_the_families_of_a_fabric_and_of_single_hosts() -> None:
    rows = [
        {"name": "h1", "leaf": "a", "gbps": 1},
        {"name": "h2", "leaf": "a", "gbps": 1, "addresses": "ipv4"},
    ]
    given = {"kind": "explicit", "switches": [{"name": "a", "tier": "leaf"}], "hosts": rows, "links": []}
    topology = read_topology(value_document(given | {"addresses": "ipv6"}, "t.json"), (), "t")
    assert [h.ip for h in topology.hosts] == ["fd00:0:0:1::1", "10.0.1.2"]
    assert (topology.prefixes, topology.other_prefixes) == ({"a": "fd00:0:0:1::/64"}, {"a": ("10.0.1.0/24",)})
    for wrong in ({"addresses": "ipv5"}, {"hosts": [rows[0] | {"addresses": ["ipv6"]}]}):
        with pytest.raises(ConfigError, match="addresses"):
            read_topology(value_document(given | wrong, "t.json"), (), "t")


LAB = """topology:
  nodes: {leaf1: {kind: x}, gpu1: {kind: linux}, gpu2: {kind: linux}}
  links:
    - endpoints: ["gpu1:eth1", "leaf1:INTERFACE"]
    - endpoints: ["gpu2:eth1", "leaf1:e1-2"]
"""
P4LANG = """{"hosts": {"h1": {"mac": "08:00:00:00:00:01"}, "h2": {"mac": "08:00:00:00:00:0A"}},
"switches": {"s1": {}},
"links": [["h1", "s1-p1"], ["h2", "s1-p2"]]}"""
ROW = "ip,DSW,PSW,ASW\n"
ODD = "'h\\x1b[31m' is wrong; legal: printable text"
MANY = "1" * 5000


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.conf", f"SwitchName=a Nodes=n[{MANY}-2]\n", ":1: [111"),
        ("t.conf", "SwitchName=a Nodes=n1\nSwitchName=b Nodes=h\x1b[31m\n", ":2: "),
        (
            "t.conf",
            "SwitchName=a Nodes=n1,h\u202e\n",
            ":1: the name 'h\\u202e' is wrong; legal: printable text",
        ),
        ("t.csv", ROW + "a,G1,P1,S1\nb,h\x1b[31m,P1,S1\n", f":3: DSW: {ODD}"),
        ("t.json", P4LANG.replace("h1", "h\\u001b[31m"), f":1: hosts.'h\\x1b[31m': the name {ODD}"),
        (
            "t.json",
            P4LANG.replace("0A", "01"),
            ":1: hosts.h2.mac: '08:00:00:00:00:01' is also the MAC address of",
        ),
        ("t.json", P4LANG.replace('"s1": {}', ""), ":2: switches: an empty table is wrong"),
        ("t.yaml", LAB.replace("gpu1", '"g\\e1"').replace('""', '"'), ":"),
        ("t.json", P4LANG.replace("hosts", "host"), "ONOS"),
        ("t.json", "{}", ":1: kind: missing; legal: leaf_spine, three_tier, rail, explicit; or the form of"),
        ("t.yaml", "", ":1: nothing (null) is wrong; legal: a table with leaf_spine"),
        ("t.json", "[]", ":1: an empty list is wrong; legal: "),
    ],
)
def test_a_file_of_another_program_that_is_none_is_one_line(tmp_path, capsys, name, text, said) -> None:
    path = tmp_path / name
    path.write_text(text)
    for action in ("show", "import"):
        assert main(["topo", action, str(path)]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(f"{path}:")
        assert said in shown.err
        assert shown.err.count("\n") == 1
        assert "digits" not in shown.err


def test_an_interface_may_have_a_number_that_no_port_has(tmp_path) -> None:
    path = tmp_path / "lab.clab.yaml"
    path.write_text(LAB.replace("INTERFACE", f"e1-{MANY}"))
    assert {h.name: h.leaf_port for h in load_topology(path).hosts} == {"gpu1": 2, "gpu2": 1}
