# SPDX-License-Identifier: Apache-2.0
"""Addresses of both families: their canonical form, and those of generated fabrics."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.addresses import (
    canonical_address,
    canonical_prefix,
    host_prefix,
    in_families,
    is_ipv6,
    number_of,
    packed,
    unpacked,
)
from topo.generate import leaf_spine, three_tier

ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


@given(ADDRESSES)
def test_text_number_and_bytes_agree(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    text = str(address)
    assert (number_of(text), packed(text), unpacked(packed(text))) == (int(address), address.packed, text)
    assert is_ipv6(text) == (address.version == 6)
    assert ipaddress.ip_network(host_prefix(text)).num_addresses == 1


def test_addresses_are_compared_by_their_canonical_form() -> None:
    assert canonical_address("FD00:0:0:0001:0:0:0:01") == "fd00:0:0:1::1"
    assert canonical_address("10.0.1.2") == "10.0.1.2"
    assert canonical_prefix("FD00:0:0:0::/48") == "fd00::/48"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("10.0.1", "does not appear to be"),
        ("fd00::1::2", "does not appear to be|At most one"),
        ("fe80::1", "beyond one cable"),
        ("fe80::1%eth0", "beyond one cable"),
        ("ff02::1", "beyond one cable"),
        ("::ffff:10.0.1.2", "write 10.0.1.2"),
        ("", "does not appear to be"),
    ],
)
def test_addresses_that_no_switch_forwards_to_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        canonical_address(text)


@pytest.mark.parametrize("families", ["ipv6", "ipv4+ipv6", "ipv6+ipv4"])
def test_each_host_is_in_a_prefix_of_its_leaf(families: str) -> None:
    topology = in_families(leaf_spine(300, 1, 3, host_bps=1, fabric_bps=1), families)
    for host in topology.hosts:
        ips = [ipaddress.ip_address(ip) for ip in (host.ip, *host.other_ips)]
        assert [f"ipv{ip.version}" for ip in ips] == families.split("+")
        prefixes = topology.prefixes[host.leaf], *topology.other_prefixes.get(host.leaf, ())
        assert all(ip in ipaddress.ip_network(prefix) for ip, prefix in zip(ips, prefixes, strict=True))
    every = [ip for host in topology.hosts for ip in (host.ip, *host.other_ips)]
    assert len(set(every)) == len(every)


def test_ipv4_alone_is_the_fabric_as_it_was() -> None:
    topology = three_tier(2, 2, 2, 2, 2, host_bps=1, fabric_bps=1)
    assert in_families(topology, "ipv4") == topology


def test_single_hosts_may_have_other_families() -> None:
    topology = leaf_spine(2, 1, 2, host_bps=1, fabric_bps=1)
    mixed = in_families(topology, "ipv4", {"h2": "ipv6", "h3": None})
    assert [is_ipv6(h.ip) for h in mixed.hosts] == [False, True, False, False]
    assert mixed.prefixes == topology.prefixes
    assert mixed.other_prefixes == {"leaf1": ("fd00:0:0:1::/64",)}
