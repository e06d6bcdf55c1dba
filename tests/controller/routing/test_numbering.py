# SPDX-License-Identifier: Apache-2.0
"""The numbers of links, by a table on fabrics of usual size and by a search on larger ones; and of hosts."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from controller.routing import numbering
from controller.routing.affine_hash import bases
from topo.generate import leaf_spine, three_tier
from topo.graph import Topology

RATE = 100_000_000_000
TWO = leaf_spine(4, 3, 2, host_bps=RATE, fabric_bps=RATE)
THREE = three_tier(2, 2, 2, 2, 1, host_bps=RATE, fabric_bps=RATE)


@pytest.mark.parametrize("fabric", [TWO, THREE])
@pytest.mark.parametrize("most", [numbering.MOST_IN_TABLE, 0])
def test_each_link_between_switches_has_the_number_of_its_name(fabric: Topology, most: int) -> None:
    numbers = replace(numbering.numbering(fabric))
    size = len(numbers.switches)
    a, b = (some.astype(np.int32) - 1 for some in np.divmod(np.arange((size + 1) ** 2), size + 1))
    with patch.object(numbering, "MOST_IN_TABLE", most):
        found = numbers.links.of(a, b).tolist()
    switch, number = (*numbers.switches, "none"), numbers.links.number
    assert found == [number.get((switch[i], switch[j]), -1) for i, j in zip(a, b, strict=True)]


def test_a_hosts_cable_is_a_link_each_way() -> None:
    numbers = numbering.numbering(TWO)
    names = numbers.links.names
    for host, (out, into) in zip(TWO.hosts, numbers.access_links.tolist(), strict=True):
        assert (names[out], names[into]) == ((host.name, host.leaf), (host.leaf, host.name))


@pytest.mark.parametrize("algorithm", ["crc32", "crc16"])
def test_the_parts_of_two_hosts_make_the_base_of_their_flows(algorithm: str) -> None:
    topology = replace(TWO, hash=replace(TWO.hash, algorithm=algorithm))
    numbers = numbering.numbering(topology)
    pairs = [(a, b) for a in range(len(numbers.hosts)) for b in range(len(numbers.hosts)) if a != b]
    src, dst = np.array(pairs).T
    of_source, of_destination = numbers.base_parts
    wanted = bases(topology.hash, numbers.source[src], numbers.destination[dst])
    assert (of_source[src] ^ of_destination[dst]).tolist() == wanted.tolist()
