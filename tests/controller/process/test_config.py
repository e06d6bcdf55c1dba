# SPDX-License-Identifier: Apache-2.0
"""The fabric's description, the topology's JSON form, and the history file."""

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.process.config import load_fabric
from polyrhythm_files import ConfigError
from topo.generate import leaf_spine
from topo.jsonio import topology_from_json, topology_to_json

TOPOLOGY = leaf_spine(2, 1, 2, host_bps=10, fabric_bps=20)
GOOD = {
    "name": "x",
    "clock": "embedded",
    "control_delay_ns": 1,
    "topology": topology_to_json(TOPOLOGY),
    "switches": {s.name: {"address": "127.0.0.1:9559", "device_id": s.device_id} for s in TOPOLOGY.switches},
    "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
}
FLOW = {"src": "h1", "dst": "h3", "protocol": "tcp", "src_port": 40_000, "dst_port": 29_500}
BACK = {"src": "h3", "dst": "h1", "protocol": "tcp", "src_port": 29_500, "dst_port": 40_000}


@given(st.integers(1, 4), st.integers(0, 3), st.integers(1, 4))
def test_a_topology_survives_json(leaves, spines, hosts):
    topology = leaf_spine(leaves, spines, hosts, host_bps=7, fabric_bps=9)
    assert topology_from_json(json.loads(json.dumps(topology_to_json(topology)))) == topology


def test_a_good_description_has_its_defaults(tmp_path):
    file = tmp_path / "f.json"
    file.write_text(json.dumps(GOOD))
    fabric = load_fabric(file)
    assert fabric.topology == TOPOLOGY
    assert fabric.targets["leaf2"].device_id == 2
    assert (fabric.verify, fabric.poll_ns) == (True, 100_000_000)


def test_level_flows_are_read(tmp_path):
    """The same ports over UDP are another flow, and UDP has nothing that comes back."""
    file = tmp_path / "f.json"
    udp = [flow | {"protocol": "udp"} for flow in (FLOW, BACK)]
    file.write_text(json.dumps({**GOOD, "strays": "stop", "level_flows": [FLOW, *udp]}))
    guard = load_fabric(file).guard
    assert guard.strays == "stop"
    assert [len(flow.ways) for flow in guard.level_flows] == [2, 1, 1]
    assert guard.level_flows[0].ways[1] == ("h3", "h1", 6, 29_500, 40_000)


def test_a_description_may_name_a_generated_fabric(tmp_path):
    file = tmp_path / "f.json"
    kind = {"kind": "leaf_spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 2}
    file.write_text(json.dumps({**GOOD, "topology": {**kind, "host_gbps": 1e-8, "fabric_gbps": 2e-8}}))
    assert load_fabric(file).topology == replace(TOPOLOGY, name="x")


def test_a_description_nested_without_end_is_refused(tmp_path):
    file = tmp_path / "f.json"
    file.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"f\.json:1: nested deeper than 64 levels"):
        load_fabric(file)


def spoil(path, value):
    data = copy.deepcopy(GOOD)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("colour",), 1, "colour: unknown key; legal: name, clock"),
        (("clock",), "sundial", "embedded, host"),
        (("strays",), ["stop"], "remark, stop, trust"),
        (
            ("level_flows",),
            [FLOW | {"src": "mars"}],
            "level_flows[0].src: 'mars' is no host; legal: a name in",
        ),
        (
            ("level_flows",),
            [FLOW | {"dst": "h1"}],
            "level_flows[0].dst: 'h1' is src too; legal: another host",
        ),
        (
            ("level_flows",),
            [FLOW | {"protocol": "ip"}],
            "level_flows[0].protocol: 'ip' is wrong; legal: tcp, udp",
        ),
        (
            ("level_flows",),
            [FLOW | {"src_port": 0}],
            "level_flows[0].src_port: 0 is wrong; legal: a whole number",
        ),
        (("level_flows",), [FLOW, FLOW], "level_flows[1]: the same flow as one above; legal: each once"),
        (("level_flows",), [FLOW, BACK], "level_flows[1]: the same flow as one above; legal: each once"),
        (("read_back_ms",), 0, "read_back_ms: 0 is wrong; legal: a whole number from 1 to 1000000000"),
        (("grace_ms",), -1, "grace_ms: -1 is wrong; legal: a whole number from 0"),
        (("answer_deadline_ms",), 0, "answer_deadline_ms: 0 is wrong; legal: a number from 0.1 to 1000"),
        (
            ("answer_deadline_ms",),
            True,
            "answer_deadline_ms: true is wrong; legal: a number from 0.1 to 1000",
        ),
        (("tls",), {"cert": "c.pem", "key": "k.pem"}, "tls.ca: missing; legal: text"),
        (
            ("tls",),
            {"ca": "ca.pem", "cert": "c.pem"},
            "tls: one of cert and key is missing; legal: both or none",
        ),
        (("tls",), {"ca": 5}, "tls.ca: 5 is wrong; legal: text"),
        (("tls",), {"ca": "nowhere.pem"}, "tls.ca: "),
        (("control_delay_ns",), -1, "control_delay_ns"),
        (("poll_ms",), 0, "poll_ms"),
        (("verify",), "yes", "true or false"),
        (("switches",), {}, "leaf1"),
        (("switches", "leaf1", "address"), "nowhere", "HOST:PORT"),
        (("switches", "leaf1", "device_id"), 9, "9 is not the topology's; legal: 1"),
        (("ecn", "kmax"), 5, "kmin < kmax"),
        (("ecn", "pmax"), "high", "from 0 to 1"),
        (("ecn", "tcp"), {"kmin": 9, "kmax": 5, "pmax": 1}, "ecn.tcp: an ECN profile needs 0 <= kmin < kmax"),
        (("ecn", "tcp"), {"kmin": 9}, "ecn.tcp"),
        (
            ("topology", "hosts", 0, "leaf"),
            "mars",
            "topology.hosts[0].leaf: no switch is named 'mars'; legal: a name in switches",
        ),
        (("topology", "hosts", 0, "ip"), "300.1.1.1", "topology.hosts[0].ip"),
        (("topology", "hosts", 0, "ip"), "::ffff:10.0.1.1", "write 10.0.1.1; legal: an IPv4 or IPv6 address"),
        (("topology", "hosts", 0, "ip"), "fe80::1", "topology.hosts[0].ip: 'fe80::1' means nothing beyond"),
        (("topology", "hosts", 0, "ip"), "fd00::1", "topology.hosts[0].ip: leaf1 has no IPv6 prefix; legal:"),
        (
            ("topology", "hosts", 0, "other_ips"),
            ["fd00::1"],
            "topology.hosts[0].other_ips: leaf1 has no IPv6",
        ),
        (("topology", "other_prefixes"), {"mars": ["fd00::/64"]}, "topology.other_prefixes.mars: no switch"),
        (("topology", "other_prefixes"), {"leaf1": ["fd00::1/64"]}, "topology.other_prefixes.leaf1"),
        (("topology", "hosts", 0, "leaf_port"), 2, "port 2 of leaf1 is wired twice"),
        (("topology", "hosts", 0, "name"), "leaf1", "topology.switches[0].name: 2 nodes are named 'leaf1'"),
        (("topology", "switches", 0, "tier"), "attic", "leaf, spine, core"),
        (("topology", "links", 0, "rate_bps"), 0, "topology.links[0].rate_bps"),
        (("topology", "links"), 3, "topology.links: 3 is wrong; legal: a list"),
        (("topology", "prefixes"), {"leaf1": "10.0.0.0/99"}, "topology.prefixes.leaf1"),
    ],
)
def test_a_bad_description_names_file_and_place(tmp_path, path, value, words):
    file = tmp_path / "f.json"
    file.write_text(json.dumps(spoil(path, value)))
    with pytest.raises(ConfigError) as caught:
        load_fabric(file)
    assert str(caught.value).startswith(f"{file}:1: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_keys_are_named():
    with pytest.raises(ConfigError, match="links: missing; legal: a list"):
        topology_from_json({"name": "x", "hosts": [], "switches": []})
