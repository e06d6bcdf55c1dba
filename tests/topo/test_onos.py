# SPDX-License-Identifier: Apache-2.0
"""ONOS's netcfg.json as a fabric, and its mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyrhythm_files import ConfigError
from topo.files import load_topology
from topo.graph import Topology

# The form of the configurations of SD-Fabric and Trellis, with links.
NETCFG = """\
{
 "devices": {
  "device:leaf1": {
   "basic": {"managementAddress": "grpc://10.0.0.1:9559?device_id=11", "driver": "stratum-tofino"},
   "segmentrouting": {"isEdgeRouter": true}},
  "device:leaf2": {
   "basic": {"managementAddress": "grpc://10.0.0.2:9559?device_id=12"},
   "segmentrouting": {"isEdgeRouter": true}},
  "device:spine-1": {
   "basic": {"managementAddress": "grpc://10.0.0.3:9559?device_id=13"},
   "segmentrouting": {"isEdgeRouter": false}}
 },
 "ports": {
  "device:leaf1/[3/0](264)": {"interfaces": [{"name": "leaf1-3", "ips": ["10.0.2.254/23"]}]}
 },
 "hosts": {
  "00:00:00:00:00:1A/None": {
   "basic": {"name": "h1", "ips": ["10.0.3.1"], "locations": ["device:leaf1/[3/0](264)"]}},
  "00:00:00:00:00:2B/None": {
   "basic": {"name": "h2", "ips": ["10.0.5.1", "fd00:5::1"], "locations": ["device:leaf2/3"]}}
 },
 "links": {
  "device:leaf1/1-device:spine-1/1": {"basic": {"type": "DIRECT", "bandwidth": 100000}},
  "device:spine-1/1-device:leaf1/1": {"basic": {"type": "DIRECT"}},
  "device:spine-1/3-device:leaf1/9": {"basic": {"isAllowed": false}},
  "device:leaf2/1-device:spine-1/2": {"basic": {}}
 }
}
"""


def loaded(tmp_path: Path, text: str) -> Topology:
    path = tmp_path / "netcfg.json"
    path.write_text(text)
    return load_topology(path, default_bps=10**11, fabric_bps=4 * 10**11)


def test_ids_ports_rates_and_addresses_are_those_of_the_file(tmp_path: Path) -> None:
    found = loaded(tmp_path, NETCFG)
    assert [(s.name, s.tier.value, s.device_id) for s in found.switches] == [
        ("leaf1", "leaf", 11), ("leaf2", "leaf", 12), ("spine-1", "spine", 13)
    ]  # fmt: skip
    assert [(h.name, h.ip, h.other_ips, h.mac, h.leaf, h.leaf_port) for h in found.hosts] == [
        ("h1", "10.0.3.1", (), "00:00:00:00:00:1a", "leaf1", 264),
        ("h2", "10.0.5.1", ("fd00:5::1",), "00:00:00:00:00:2b", "leaf2", 3),
    ]
    # The prefix of the port's interface, or else the usual size.
    assert dict(found.prefixes) == {"leaf1": "10.0.2.0/23", "leaf2": "10.0.5.0/24"}
    assert dict(found.other_prefixes) == {"leaf2": ("fd00:5::/64",)}
    assert [(k.a, k.a_port, k.b, k.b_port, k.rate_bps) for k in found.links] == [
        ("leaf1", 1, "spine-1", 1, 10**11), ("leaf2", 1, "spine-1", 2, 4 * 10**11)
    ]  # fmt: skip


def test_hosts_without_addresses_and_names_get_them(tmp_path: Path) -> None:
    text = NETCFG.replace('"name": "h1", "ips": ["10.0.3.1"], ', "")
    found = loaded(tmp_path, text)
    assert [(h.name, h.ip) for h in found.hosts] == [("00:00:00:00:00:1a", "10.0.1.1"), ("h2", "10.0.2.1")]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"device:leaf2/3"', '"device:leaf9/3"', ":20: hosts.00:00:00:00:00:2B/None.basic.locations: 'device:leaf9/3' is wrong; legal: DEVICE/PORT"),
        ("device:leaf2/1-device", "device:leaf2-device", ":26: links.device:leaf2-device:spine-1/2: 'device:leaf2-device:spine-1/2' is no link; legal"),
        ("device:leaf2/1-device", "device:leaf2/3-device", ":26: links.device:leaf2/3-device:spine-1/2: port 3 of leaf2 has a cable already"),
        ("00:00:00:00:00:2B", "00:00:00:00:2B", ":19: hosts.00:00:00:00:2B/None: '00:00:00:00:2B/None' is no host; legal: MAC/VLAN"),
        ('"bandwidth": 100000', '"bandwidth": 0', ".basic.bandwidth: 0 is wrong; legal: Mbit/s above 0"),
        ('"10.0.5.1"', '"10.0.3.1"', "10.0.3.1 is also the address of h1; legal: of one host"),
        ('"10.0.5.1"', '"10.0.2.9"', "leaf2 has 10.0.2.0/24 and leaf1 has 10.0.2.0/23; legal: prefixes of one leaf each"),
        ('"10.0.2.254/23"', '"10.0.2.300/23"', ":14: ports.device:leaf1/[3/0](264).interfaces: "),
        ('["10.0.2.254/23"]', "7", ".interfaces: ips: 7 is wrong; legal: a list"),
        ('"name": "h2"', '"name": "leaf1"', "another node is named leaf1; legal: a name of its own"),
    ],
)  # fmt: skip
def test_mistakes_have_line_and_path(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in NETCFG
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, NETCFG.replace(old, new, 1))
    assert str(caught.value).startswith(f"{tmp_path}/netcfg.json:")
    assert said in str(caught.value)


@pytest.mark.parametrize("part", ["links", "hosts"])
def test_a_file_without_links_or_hosts_says_what_is_missing(tmp_path: Path, part: str) -> None:
    value = json.loads(NETCFG)
    del value[part]
    with pytest.raises(ConfigError, match=f"no {part}.*; legal: `{part}` with"):
        loaded(tmp_path, json.dumps(value))
