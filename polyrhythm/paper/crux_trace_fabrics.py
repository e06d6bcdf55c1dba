# SPDX-License-Identifier: Apache-2.0
"""The fabrics of CRUX's trace simulation (sections 2.2 and 6.3), and the fabric of Lingjun's trace."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

from sim.cluster import Cluster, machines
from sim.network import Network
from sim.workload import check_connected
from topo.files import load_topology
from topo.generate import explicit, leaf_spine, three_tier
from topo.graph import Tier, Topology
from topo.lingjun import lingjun_topology

GPUS_A_HOST, HOSTS = 8, 346
_HOST_GBPS = 400
_CLOS_GBPS = 200
_TWO_SIDED_GBPS = 400
_GROUP, _CORES = 4, 8


def fabric(name: str, file: str) -> Topology:
    """A fabric by name. Hosts have 400 Gbit/s; the paper gives no rates for the first two.

    `clos`: 173 ToRs with 2 hosts each, 16 aggregation switches, 200 Gbit/s between each two (2 x 100 in the
    paper's testbed, Figure 18). `double_sided`: 6 ToRs, 12 aggregation switches, 32 cores; every host has
    half of its rate to each of the two ToRs of its pod; links between switches have 400 Gbit/s. `given`: the
    fabric of a file.

    Raises:
        TraceError, ConfigError: the file describes no fabric.
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
        return grouped(lingjun_topology(Path(file), host_bps=_HOST_GBPS * 10**9, fabric_bps=10**9))
    return load_topology(Path(file))


def grouped(labelled: Topology) -> Topology:
    """Lingjun's cluster, where each aggregation label is a group of 4 switches, without oversubscription.

    The file has one label for each host and tier, but no cables. The paper says that the cluster has 12
    aggregation switches and 32 cores (section 6.3; the file has 3 aggregation labels), and that it is not
    oversubscribed (section 2.2). So each ToR has a link to each of its 4 aggregation switches, with a quarter
    of the rate that the ToR with most hosts needs. Switch i of every group has a link to each of 8 cores,
    with an eighth of its rate downward.
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
    """Hosts with 8 GPUs each on the fabric.

    Raises:
        WorkloadError: the fabric is not connected.
    """
    topology = fabric(name, file)
    check_connected(topology)
    return machines(Network(topology), GPUS_A_HOST)
