# SPDX-License-Identifier: Apache-2.0
"""The ECMP hash against zlib, and source ports against a plain walk of the tables."""

from __future__ import annotations

import ipaddress
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.routing.ecmp import draw_port
from controller.routing.forwarding import forwarding
from controller.routing.hash import bucket, destination_number, ecmp_hash, source_number, source_port_hashes
from controller.routing.paths import path_of, paths, port_for_path
from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from topo.generate import leaf_spine

G = 25_000_000
IPV6_ADDRESSES = st.integers(0, 2**128 - 1).map(lambda a: str(ipaddress.IPv6Address(a)))
ADDRESSES = st.integers(0, 2**32 - 1).map(lambda a: str(ipaddress.IPv4Address(a)))


@settings(max_examples=60)
@given(ADDRESSES, ADDRESSES, st.integers(0, 65535), st.sampled_from([6, 17]), st.integers(0, 65535))
def test_affine_table_equals_zlib(src: str, dst: str, port: int, protocol: int, dest: int) -> None:
    wire = ipaddress.IPv4Address(src).packed + ipaddress.IPv4Address(dst).packed
    wire += bytes([protocol]) + port.to_bytes(2, "big") + dest.to_bytes(2, "big")
    assert len(wire) == 13
    value = zlib.crc32(wire)
    assert ecmp_hash(src, dst, port, protocol=protocol, dest_port=dest) == value
    assert int(source_port_hashes(src, dst, protocol=protocol, dest_port=dest)[port]) == value


@settings(max_examples=60)
@given(IPV6_ADDRESSES, IPV6_ADDRESSES, st.integers(0, 65535), st.sampled_from([6, 17]), st.integers(0, 65535))
def test_affine_table_equals_zlib_for_ipv6(src: str, dst: str, port: int, protocol: int, dest: int) -> None:
    wire = ipaddress.IPv6Address(src).packed + ipaddress.IPv6Address(dst).packed
    wire += bytes([protocol]) + port.to_bytes(2, "big") + dest.to_bytes(2, "big")
    assert len(wire) == 37
    value = zlib.crc32(wire)
    assert ecmp_hash(src, dst, port, protocol=protocol, dest_port=dest) == value
    assert int(source_port_hashes(src, dst, protocol=protocol, dest_port=dest)[port]) == value


@settings(max_examples=100)
@given(IPV6_ADDRESSES, IPV6_ADDRESSES, st.integers(0, 65535), st.sampled_from(["crc32", "crc16"]))
def test_ipv4_numbers_with_the_hash_of_ipv6_addresses(src: str, dst: str, port: int, algorithm: str) -> None:
    """An IPv4 flow from the one number to the other hashes as the IPv6 flow does, whatever its port."""
    a = str(ipaddress.IPv4Address(source_number(src, algorithm)))
    b = str(ipaddress.IPv4Address(destination_number(dst, algorithm)))
    assert ecmp_hash(a, b, port, algorithm=algorithm) == ecmp_hash(src, dst, port, algorithm=algorithm)


@given(ADDRESSES, st.sampled_from(["crc32", "crc16"]))
def test_ipv4_addresses_stand_for_themselves(ip: str, algorithm: str) -> None:
    number = int(ipaddress.IPv4Address(ip))
    assert source_number(ip, algorithm) == destination_number(ip, algorithm) == number


def test_bucket_slices() -> None:
    assert [bucket(0xAABBCCDD, tier) for tier in range(3)] == [0xDD, 0xCC, 0xBB]


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.integers(1, 9), st.data())
def test_ports_lead_along_every_path(leaves: int, spines: int, data: st.DataObject) -> None:
    topology = leaf_spine(leaves, spines, 2, host_bps=G, fabric_bps=G)
    table = forwarding(topology)
    src, dst = data.draw(
        st.sampled_from([(a.name, b.name) for a in topology.hosts for b in topology.hosts if a != b])
    )
    every = paths(topology, table, src, dst)
    used: set[int] = set()
    for path in every:
        port = port_for_path(topology, table, path, used)
        assert port in ROCE_SOURCE_PORTS
        assert port not in used
        used.add(port)
        assert path_of(topology, table, src, dst, port) == path
    assert len(every) == (1 if topology.host[src].leaf == topology.host[dst].leaf else spines)


def test_port_for_path_gives_the_next_port_when_used_and_none_when_exhausted() -> None:
    topology = leaf_spine(2, 2, 1, host_bps=G, fabric_bps=G)
    table = forwarding(topology)
    path = ("h1", "leaf1", "spine2", "leaf2", "h2")
    first = port_for_path(topology, table, path)
    second = port_for_path(topology, table, path, {first} if first else ())
    assert first is not None
    assert second is not None
    assert second > first
    assert port_for_path(topology, table, path, ROCE_SOURCE_PORTS) is None
    # The slowest possible way to the same answer.
    assert first == next(p for p in ROCE_SOURCE_PORTS if path_of(topology, table, "h1", "h2", p) == path)


def test_no_port_for_a_path_that_is_down() -> None:
    topology = leaf_spine(2, 2, 1, host_bps=G, fabric_bps=G)
    table = forwarding(topology, frozenset({("leaf1", "spine2")}))
    assert port_for_path(topology, table, ("h1", "leaf1", "spine2", "leaf2", "h2")) is None


def test_draws_are_reproducible_legal_and_spread() -> None:
    ports = [draw_port(f"job/{i}", seed=7) for i in range(400)]
    assert ports == [draw_port(f"job/{i}", seed=7) for i in range(400)]
    assert ports != [draw_port(f"job/{i}", seed=8) for i in range(400)]
    assert all(p in ROCE_SOURCE_PORTS for p in ports)
    assert len(set(ports)) > 380
    assert draw_port("job/0", 7, {ports[0]}) != ports[0]


@pytest.mark.parametrize("tier", [0, 1])
def test_random_ports_spread_over_the_buckets(tier: int) -> None:
    values = source_port_hashes("10.0.1.1", "10.0.2.1")[0xC000:]
    counts = [0] * 256
    for value in values.tolist():
        counts[bucket(value, tier)] += 1
    assert min(counts) == max(counts) == 64
