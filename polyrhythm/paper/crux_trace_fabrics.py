# SPDX-License-Identifier: Apache-2.0
"""The fabrics of CRUX's trace simulation (sections 2.2 and 6.3), and Lingjun's, whose labels name groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

from sim.cluster import Cluster, machines
from sim.network import Network
from sim.readers import read_lingjun_topology
from sim.workload import check_connected
from topo.files import load_topology
from topo.generate import explicit, leaf_spine, three_tier
from topo.graph import Tier, Topology

GPUS_A_HOST, HOSTS = 8, 346
_HOST_GBPS = 400
_CLOS_GBPS = 200
_TWO_SIDED_GBPS = 400
_GROUP, _CORES = 4, 8


def fabric(name: str, file: str) -> Topology:
    """A fabric by name; hosts have 400 Gbps, the paper gives no rates for these two.

    `clos`: 173 ToRs of 2 hosts, 16 aggregation switches, 200 Gbps between each two (as 2 x 100 in the
    paper's testbed, Figure 18). `double_sided`: 6 ToRs, 12 aggregation switches, 32 cores, every host on
    both ToRs of its pod by half of its rate, switches joined by 400 Gbps each. `given`: a file.

    Raises:
        TraceError, TopologyError: for a file that is none.
    """
    giga = 1_000_000_000
    if name == "clos":
        return leaf_spine(
            173, 16, 2, host_bps=_HOST_GBPS * giga, fabric_bps=_CLOS_GBPS * giga, name="crux_clos"
        )
    if name == "double_sided":
        pod = -(-HOSTS // 3)
        wired = three_tier(
            3,
            2,
            4,
            8,
            pod,
            host_bps=_HOST_GBPS * giga // 2,
            fabric_bps=_TWO_SIDED_GBPS * giga,
            name="crux_double_sided",
        )
        hosts = [
            replace(h, name=f"h{p * pod + i + 1}.{side + 1}", server=f"h{p * pod + i + 1}")
            for n, h in enumerate(wired.hosts)
            for p, side, i in [(n // (2 * pod), n // pod % 2, n % pod)]
        ]
        return replace(wired, hosts=tuple(sorted(hosts, key=lambda h: (int(h.machine[1:]), h.name))))
    if Path(file).suffix == ".csv":
        return grouped(read_lingjun_topology(Path(file), host_gbps=_HOST_GBPS, fabric_gbps=1))
    return load_topology(Path(file))


def grouped(labelled: Topology) -> Topology:
    """Lingjun's cluster with each label of aggregation as a group of 4 switches, 1:1 throughout.

    The file has one label a host and tier, but no cables; the paper says of the cluster that it has 12
    aggregation switches and 32 cores (section 6.3; the file has 3 labels of aggregation) and is not
    oversubscribed (section 2.2). So each ToR has a link to each of its 4 aggregation switches, each of a
    quarter of what the ToR with most hosts needs, and switch i of every group one to each of 8 cores, each
    of an eighth of what it has downward.
    """
    tier = {s.name: s.tier for s in labelled.switches}
    below = Counter(h.leaf for h in labelled.hosts)
    rate = max(below.values()) * labelled.hosts[0].rate_bps // _GROUP
    group: dict[str, str] = {}
    for link in labelled.links:
        low, high = sorted((link.a, link.b), key=lambda name: tier[name].level)
        if tier[low] is Tier.LEAF:
            group[low] = high
    size = Counter(group.values())
    switches = [(leaf, Tier.LEAF) for leaf in group]
    switches += [(f"{name}-{i}", Tier.SPINE) for name in size for i in range(_GROUP)]
    links = [(leaf, f"{name}-{i}", rate) for leaf, name in group.items() for i in range(_GROUP)]
    if len(size) > 1:
        cores = [(i, f"core-{i * _CORES + j}") for i in range(_GROUP) for j in range(_CORES)]
        switches += [(core, Tier.CORE) for _, core in cores]
        links += [(f"{name}-{i}", core, rate * size[name] // _CORES) for name in size for i, core in cores]
    hosts = [(h.name, h.leaf, h.rate_bps) for h in labelled.hosts]
    return explicit(labelled.name, switches, hosts, links)


@cache
def cluster(name: str, file: str) -> Cluster:
    """Hosts of 8 GPUs on the fabric. Raises WorkloadError for one that is not connected."""
    topology = fabric(name, file)
    check_connected(topology)
    return machines(Network(topology), GPUS_A_HOST)
