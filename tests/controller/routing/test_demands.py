# SPDX-License-Identifier: Apache-2.0
"""Flows of a job, from its collective, parallelism and placement."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.routing.demands import (
    Collective,
    NicFlow,
    Parallelism,
    Volumes,
    elephants,
    needs,
    on_nics,
    place,
    split,
)
from topo.generate import leaf_spine, rail

BLOOM = Parallelism(4, 12, 4)


def test_rings_join_the_ranks_that_hold_the_same_parameters() -> None:
    assert BLOOM.ranks == 192
    found = needs(BLOOM, Volumes(gradient=800), Collective.RING, {r: str(r) for r in range(192)})
    assert len(found) == 192
    assert {n.bytes for n in found} == {2 * 3 * 800 // 4}
    assert all((n.dst - n.src) % 192 == 48 for n in found)
    assert len(set(Counter(n.src for n in found).values())) == 1


def test_a_server_keeps_its_own_traffic_to_itself() -> None:
    job = Parallelism(2, 2, 2)
    server = {r: f"s{r // 2}" for r in range(8)}
    found = needs(job, Volumes(100, activation=7, tensor=50), Collective.RING, server)
    assert not [n for n in found if n.kind == "tensor"]
    assert {(n.src, n.dst) for n in found if n.kind == "pipeline"} == {
        (0, 2), (2, 0), (1, 3), (3, 1), (4, 6), (6, 4), (5, 7), (7, 5),
    }  # fmt: skip
    spread = needs(job, Volumes(100, tensor=50), Collective.RING, {r: f"s{r}" for r in range(8)})
    assert sum(n.kind == "tensor" for n in spread) == 8


@pytest.mark.parametrize(
    ("collective", "flows", "total"),
    [
        (Collective.RING, 8, 8 * 2 * 7 * 800 // 8),
        (Collective.TREE, 14, 14 * 800),
        (Collective.ALL_TO_ALL, 56, 56 * 100),
        (Collective.HIERARCHICAL, 8, 8 * 600),
    ],
)
def test_collectives(collective: Collective, flows: int, total: int) -> None:
    # Two ranks a server, so the hierarchical ring runs twice over four servers with half the bytes each.
    server = {r: f"s{r // 2}" if collective is Collective.HIERARCHICAL else f"s{r}" for r in range(8)}
    found = needs(Parallelism(1, 1, 8), Volumes(800), collective, server)
    assert len(found) == flows
    assert sum(n.bytes for n in found) == total


def test_ranks_use_the_nic_of_their_rail() -> None:
    topology = rail(2, 4, 2, 3, host_bps=1, fabric_bps=1)
    nics = place(topology, ["h1", "h5"], 8)
    assert [n.name for n in nics[:8]] == ["h1.1", "h1.1", "h1.2", "h1.2", "h1.3", "h1.3", "h1.4", "h1.4"]
    found = needs(
        Parallelism(8, 1, 2), Volumes(100), Collective.RING, {r: nics[r].machine for r in range(16)}
    )
    flows = on_nics(found, nics)
    assert {(f.src, f.dst) for f in flows} == {
        (f"{a}.{r}", f"{b}.{r}") for a, b in (("h1", "h5"), ("h5", "h1")) for r in range(1, 5)
    }
    assert {f.bytes for f in flows} == {200}
    leaf = {h.name: h.leaf for h in topology.hosts}
    assert all(leaf[f.src][4:] != leaf[f.dst][4:] for f in flows)
    with pytest.raises(ValueError, match="no host"):
        place(topology, ["h99"], 8)
    with pytest.raises(ValueError, match="no NIC"):
        on_nics(found, nics[:3])


def test_mice_and_queue_pairs() -> None:
    topology = leaf_spine(2, 2, 1, host_bps=1, fabric_bps=1)
    assert [n.name for n in place(topology, ["h1", "h2"], 2)] == ["h1", "h1", "h2", "h2"]
    flows = [NicFlow("h1", "h2", 1001, "data"), NicFlow("h2", "h1", 3, "data")]
    large, mice = elephants(flows, 4)
    assert (large, mice) == (flows[:1], flows[1:])
    assert [(f.bytes, f.part) for f in split(large, 4)] == [(251, 0), (250, 1), (250, 2), (250, 3)]
    assert sum(f.bytes for f in split(mice, 8)) == 3
    with pytest.raises(ValueError, match="QP"):
        split(flows, 0)
    with pytest.raises(ValueError, match="dimension"):
        Parallelism(0, 1, 1)
