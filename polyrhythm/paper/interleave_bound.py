# SPDX-License-Identifier: Apache-2.0
"""An upper bound of the utilisation: no job is faster than alone, and no cut of the fabric is overloaded."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from polyrhythm.paper.interleave_cases import InterleaveCase
from polyrhythm.paper.interleave_sim import ITERATIONS

Floats = NDArray[np.float64]
_EPS = 1e-11
_PIVOTS = 10_000


def best_rates(gain: Floats, rows: Floats, limit: Floats) -> Floats:
    """Maximise gain @ x under x >= 0 and rows @ x <= limit (limit >= 0), by the simplex method.

    Bland's rule guarantees that it ends.

    Raises:
        ValueError: x is unbounded.
    """
    count, size = rows.shape
    table = np.zeros((count + 1, size + count + 1))
    table[:count, :size], table[:count, size : size + count], table[:count, -1] = rows, np.eye(count), limit
    table[-1, :size] = -gain
    basis = list(range(size, size + count))
    for _ in range(_PIVOTS):
        entering = np.flatnonzero(table[-1, :-1] < -_EPS)
        if not len(entering):
            break
        column = int(entering[0])
        positive = np.flatnonzero(table[:count, column] > _EPS)
        if not len(positive):
            raise ValueError("nothing bounds the rates")
        ratio = table[positive, -1] / table[positive, column]
        tied = positive[ratio <= ratio.min() + _EPS]
        row = int(min(tied, key=lambda i: basis[i]))
        table[row] /= table[row, column]
        for i in range(count + 1):
            if i != row:
                table[i] -= table[i, column] * table[row]
        basis[row] = column
    found = np.zeros(size + count)
    found[basis] = table[:count, -1]
    return found[:size]


def bound_of(case: InterleaveCase) -> float:
    """The utilisation that no plan exceeds.

    It maximises the utilisation over the iteration rates x_j of the jobs. x_j <= 1 / T_j, where T_j is the
    iteration time alone if jitter makes every compute as short as it can. For every cable of a server, and
    for the upward cables of every ToR and of every pod together, the traffic each way must not exceed the
    capacity. Jobs begin within the first iteration of a run, so the counted traffic may exceed a cable's rate
    by one part in the number of iterations.
    """
    instance, topology = case.instance, case.topology
    pod = _pods(case)
    load: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    flows = zip(case.commodities, instance.flows, strict=True)
    for c, (j, _) in flows:
        bits = sum(s.up_ns * s.rate_bps / 1e9 for s in instance.jobs[j].steps)
        src, dst = topology.host[c.src].leaf, topology.host[c.dst].leaf
        cuts = [("from", c.src), ("to", c.dst)]
        if src != dst:
            cuts += [("up", src), ("down", dst)]
        if pod[src] != pod[dst]:
            cuts += [("up", pod[src]), ("down", pod[dst])]
        for cut in sorted(set(cuts)):
            load[cut][j] += bits
    room = _room(case, pod)
    jobs = len(instance.jobs)
    alone = np.array([p.alone_ns - instance.jitter * p.compute_ns for p in instance.jobs], dtype=np.float64)
    rows, limit = [np.eye(jobs)[j] for j in range(jobs)], [1.0] * jobs
    for cut, users in sorted(load.items()):
        row = np.zeros(jobs)
        for j, bits in users.items():
            # The variable is x_j T_j: the rate as a fraction of the rate alone.
            row[j] = bits / alone[j] * 1e9 / room[cut]
        if row.sum() > 1:
            rows.append(row)
            limit.append(1 / (1 - 1 / ITERATIONS))
    weight = np.array([p.weight for p in instance.jobs])
    gain = weight * np.array([p.compute_ns for p in instance.jobs]) / alone / weight.sum()
    return float(gain @ best_rates(gain, np.array(rows), np.array(limit)))


def _pods(case: InterleaveCase) -> dict[str, str]:
    """The pod of each leaf: leaves with a common switch above. With two tiers each leaf is a pod."""
    topology = case.topology
    above = {s.name: topology.upward.get(s.name, ()) for s in topology.switches}
    tiers = {s.name: s.tier.level for s in topology.switches}
    if max(tiers.values()) < 2:
        return {h.leaf: h.leaf for h in topology.hosts}
    return {h.leaf: f"pod {min(above[h.leaf])}" for h in topology.hosts}


def _room(case: InterleaveCase, pod: dict[str, str]) -> dict[tuple[str, str], float]:
    """The capacity of every cut in bit/s."""
    topology = case.topology
    room: dict[tuple[str, str], float] = defaultdict(float)
    for host in topology.hosts:
        room["from", host.name] = room["to", host.name] = float(host.rate_bps)
    under: dict[str, str] = {}
    for leaf, name in pod.items():
        for switch in topology.upward[leaf]:
            under[switch] = name
    for link in topology.links:
        for low, high in ((link.a, link.b), (link.b, link.a)):
            if high in topology.upward.get(low, ()):
                name = low if low in pod else under[low]
                for way in ("up", "down"):
                    room[way, name] += float(link.rate_bps)
    return room
