# SPDX-License-Identifier: Apache-2.0
"""Source ports: the switches' own forwarding takes each flow where the ports should lead."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_rig import clos, host_pairs

from controller.routing.affine_hash import bases, contributions, polarisation
from controller.routing.algorithms import Options, solve
from controller.routing.algorithms.ecmp import ecmp
from controller.routing.algorithms.greedy import greedy
from controller.routing.forwarding import forwarding
from controller.routing.from_topology import Failures, demand_of, fabric_of
from controller.routing.hash import crc16, source_port_hashes
from controller.routing.paths import path_of
from controller.routing.port_learning import learn
from controller.routing.ports import (
    destinations,
    leads,
    ports_for,
    ports_of_all_paths,
    repeats,
    sources,
    stages,
)
from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from topo.generate import rail, three_tier
from topo.graph import OUR_HASH, HashSpec, Link, Topology


def lopsided() -> Topology:
    whole = three_tier(3, 3, 4, 4, 4, host_bps=1, fabric_bps=1)
    return replace(whole, links=whole.links[:-3])


def doubled() -> Topology:
    """Two cables from leaf1 to spine1."""
    one = clos(3, 2, 3)
    return replace(one, links=(*one.links, Link("leaf1", 60, "spine1", 60, one.links[0].rate_bps)))


@pytest.mark.parametrize(
    ("topology", "failures"),
    [
        (clos(6, 5, 4), Failures()),
        (clos(6, 5, 4), Failures(switches=frozenset({"spine3"}))),
        (clos(6, 5, 4), Failures(links=frozenset({("leaf2", "spine1"), ("leaf3", "spine4")}))),
        (three_tier(3, 3, 4, 2, 4, host_bps=1, fabric_bps=1), Failures()),
        (
            three_tier(3, 3, 4, 4, 4, host_bps=1, fabric_bps=1),
            Failures(frozenset({("leaf2", "spine1"), ("core3", "spine1")}), frozenset({"core9", "spine7"})),
        ),
        (rail(2, 3, 4, 4, host_bps=1, fabric_bps=1), Failures()),
        (lopsided(), Failures()),
        (doubled(), Failures()),
    ],
)
def test_ports_lead_along_the_paths(topology: Topology, failures: Failures) -> None:
    pairs = host_pairs(topology, 120, random.Random(2))
    pairs += pairs[:20] * 3
    fabric = fabric_of(topology, failures)
    flows = demand_of(fabric, pairs)
    choice = solve(greedy, fabric, flows)
    assert (choice >= 0).all()
    src, dst = sources((a.ip for a, _ in pairs), OUR_HASH), destinations((b.ip for _, b in pairs), OUR_HASH)
    wanted = stages(topology, fabric, flows, choice)
    skip = repeats(src, dst, choice)
    ports = ports_for(src, dst, wanted, skip=skip)
    assert ports.tolist() == ports_for(src, dst, wanted, skip=skip, plain=True).tolist()
    assert leads(src, dst, ports, wanted).all()
    table = forwarding(topology, failures.links, failures.switches)
    for f, (a, b) in enumerate(pairs):
        assert ports[f] in ROCE_SOURCE_PORTS
        nodes = fabric.nodes(int(flows.src[f]), int(flows.dst[f]), int(choice[f]))
        assert path_of(topology, table, a.name, b.name, int(ports[f])) == (a.name, *nodes, b.name)
    used = [(a.name, b.name, port) for (a, b), port in zip(pairs, ports.tolist(), strict=True)]
    assert len(set(used)) == len(used)


def test_paths_beyond_the_hash_have_no_port() -> None:
    topology = clos(3, 1, 2)
    fabric = fabric_of(
        replace(topology, links=(*topology.links, Link("leaf1", 9, "leaf2", 9, 1))), shortest=2
    )
    pairs = [(topology.hosts[0], topology.hosts[2])]
    flows = demand_of(fabric, pairs)
    across = np.zeros(1, dtype=np.int32)
    assert fabric.nodes(0, 1, 0) == ("leaf1", "leaf2")
    src, dst = sources(["10.0.1.1"], OUR_HASH), destinations(["10.0.2.1"], OUR_HASH)
    assert ports_for(src, dst, stages(fabric.topology, fabric, flows, across)).tolist() == [0xC000]
    # Switches forward along the shortest way only, so no port leads through the spine.
    way = across + 1
    assert fabric.nodes(0, 1, 1) == ("leaf1", "spine1", "leaf2")
    assert ports_for(src, dst, stages(fabric.topology, fabric, flows, way)).tolist() == [-1]


def test_flows_take_turns_where_ports_run_out() -> None:
    topology = clos(2, 2, 1)
    fabric = fabric_of(topology)
    pairs = [(topology.hosts[0], topology.hosts[1])] * 20_000
    flows = demand_of(fabric, pairs)
    choice = np.zeros(len(pairs), dtype=np.int32)
    src, dst = sources((a.ip for a, _ in pairs), OUR_HASH), destinations((b.ip for _, b in pairs), OUR_HASH)
    wanted = stages(topology, fabric, flows, choice)
    ports = ports_for(src, dst, wanted, skip=repeats(src, dst, choice))
    assert leads(src, dst, ports, wanted).all()
    counts = np.unique(ports, return_counts=True)[1]
    assert len(counts) == 8192
    assert counts.max() - counts.min() <= 1


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_hash_of_many_is_the_hash_of_one(a: int, b: int) -> None:
    src, dst = np.array([a], dtype=np.uint32), np.array([b], dtype=np.uint32)
    value = bases(OUR_HASH, src, dst) ^ contributions("crc32")
    dotted = [".".join(str(x >> s & 255) for s in (24, 16, 8, 0)) for x in (a, b)]
    assert (value == source_port_hashes(*dotted)[0xC000:]).all()
    packet = a.to_bytes(4) + b.to_bytes(4) + bytes([17]) + (0xC123).to_bytes(2) + (4791).to_bytes(2)
    assert value[0x123] == zlib.crc32(packet)
    other = bases(HashSpec("crc16"), src, dst) ^ contributions("crc16")
    assert other[0x123] == crc16(packet)


def test_crc16_is_arc() -> None:
    assert crc16(b"123456789") == 0xBB3D


@pytest.mark.parametrize("spec", [OUR_HASH, HashSpec("crc16", (4, 0, 8)), HashSpec("crc32", (24, 0, 8))])
@pytest.mark.parametrize("paths", [1, 5, 32])
def test_all_paths_at_once(spec: HashSpec, paths: int) -> None:
    rng = np.random.default_rng(1)
    src, dst = (rng.integers(0, 2**32, 50, dtype=np.uint32) for _ in range(2))
    table = np.array([(b * 7) % paths for b in range(256)], dtype=np.int32)
    ports = ports_of_all_paths(src, dst, table, spec=spec)
    assert ports.shape == (50, paths)
    value = bases(spec, src, dst)[:, None] ^ contributions(spec.algorithm)
    chosen = table[(value >> spec.slices[0]) & 255]
    for f in range(50):
        first = [0xC000 + int(np.argmax(chosen[f] == p)) for p in range(paths)]
        assert ports[f].tolist() == first


def test_polarisation_is_seen() -> None:
    assert polarisation(OUR_HASH, (8, 8)).reached == 64
    same = polarisation(HashSpec("crc32", (0, 0)), (8, 8))
    assert (same.reached, same.possible, same.polarised) == (8, 64, True)
    assert not polarisation(OUR_HASH, (5, 7, 2)).polarised


def test_a_linear_hash_is_learnt_in_few_probes() -> None:
    rng = np.random.default_rng(4)
    src, dst = (rng.integers(0, 2**32, 60, dtype=np.uint32) for _ in range(2))
    counts = []
    for base in bases(OUR_HASH, src, dst):
        chosen = (base ^ contributions("crc32")) & 31
        found = learn(lambda port, chosen=chosen: int(chosen[port - 0xC000]), 32)
        assert found.linear
        assert sorted(found.ports) == list(range(32))
        assert all(chosen[port - 0xC000] == path for path, port in found.ports.items())
        counts.append(found.probes)
    assert sum(counts) / len(counts) <= 20


@pytest.mark.parametrize("paths", [6, 8])
def test_any_other_hash_is_learnt_by_collecting(paths: int) -> None:
    rng = random.Random(9)
    chosen = [rng.randrange(paths) for _ in ROCE_SOURCE_PORTS]
    found = learn(lambda port: chosen[port - 0xC000], paths)
    assert not found.linear
    assert {path: chosen[port - 0xC000] for path, port in found.ports.items()} == {p: p for p in range(paths)}


def test_a_path_that_no_port_reaches_is_left_out() -> None:
    found = learn(lambda port: port % 2, 3, limit=200)
    assert sorted(found.ports) == [0, 1]
    assert found.probes == 200


def test_ecmp_is_spread_evenly() -> None:
    topology = clos(2, 4, 1)
    fabric = fabric_of(topology)
    flows = demand_of(fabric, [(topology.hosts[0], topology.hosts[1])] * 4000)
    share = np.bincount(solve(ecmp, fabric, flows, Options(seed=1)), minlength=4)
    assert share.min() > 900
