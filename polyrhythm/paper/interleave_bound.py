# SPDX-License-Identifier: Apache-2.0
"""What no plan can exceed: jobs at their own pace at most, and no cut of the fabric over its capacity."""

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
    """x >= 0 with rows @ x <= limit (limit >= 0) of the largest gain @ x, by the simplex method.

    Bland's rule, so it ends. Raises ValueError if nothing bounds x.
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

    The rates of iterations that maximise it, under x_j <= 1 / T_j, where T_j is the job's iteration if jitter
    shortens every compute as far as it may, and, for every cable of a server, every ToR's and every pod's
    cables upward together, what its flows send through it each way. Jobs begin within an iteration of the
    run's begin, so what is counted may exceed a cable's rate by one part in as many as a run has.
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
            # In iterations alone: x_j T_j.
            row[j] = bits / alone[j] * 1e9 / room[cut]
        if row.sum() > 1:
            rows.append(row)
            limit.append(1 / (1 - 1 / ITERATIONS))
    weight = np.array([p.weight for p in instance.jobs])
    gain = weight * np.array([p.compute_ns for p in instance.jobs]) / alone / weight.sum()
    return float(gain @ best_rates(gain, np.array(rows), np.array(limit)))


def _pods(case: InterleaveCase) -> dict[str, str]:
    """Each leaf's pod: the leaves that share a switch above them; on two tiers each is its own."""
    topology = case.topology
    above = {s.name: topology.upward.get(s.name, ()) for s in topology.switches}
    tiers = {s.name: s.tier.level for s in topology.switches}
    if max(tiers.values()) < 2:
        return {h.leaf: h.leaf for h in topology.hosts}
    return {h.leaf: f"pod {min(above[h.leaf])}" for h in topology.hosts}


def _room(case: InterleaveCase, pod: dict[str, str]) -> dict[tuple[str, str], float]:
    """bit/s of every cut."""
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
