# SPDX-License-Identifier: Apache-2.0
"""The rate cap of each flow, which agents enforce: a little more than its max-min fair share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from controller.model import Flow
from controller.planner.candidate import Candidate
from controller.routing.backend import plain_suffices
from controller.routing.rates import CLASSES, caps, maxmin


def rate_caps(candidate: Candidate) -> Mapping[str, int]:
    """The rate cap of each flow in bit/s on the wire: (1 + cap_epsilon) times its share among the flows that
    can overlap with it in time. Empty if the routing has no `cap_epsilon`.

    The share is max-min fair under strict priority, for flows of unlimited demand. A flow whose share is 0,
    because flows of higher levels fill a link, has no cap: the switches' queues limit it to the remaining
    capacity. Flows without a path have no cap either.
    """
    routing, demands = candidate.routing, candidate.demands
    epsilon = demands.inputs.policy.routing.cap_epsilon
    if epsilon is None:
        return {}
    links_of = {name: routing.links_of[name] for name, a in routing.assignments.items() if a.path}
    flows: dict[str, list[Flow]] = defaultdict(list)
    for f in demands.elephants:
        if f.name in links_of:
            flows[f.job].append(f)
    level = {name: min(k, CLASSES - 1) for name, k in candidate.priorities.level.items()}
    result: dict[str, int] = {}
    for job, sharing in _jobs_sharing_capacity(list(flows), candidate).items():
        members = [f for name in sharing for f in flows[name]]
        number: dict[tuple[str, str], int] = {}
        rows = [[number.setdefault(k, len(number)) for k in links_of[f.name]] for f in members]
        paths = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int32)
        for i, row in enumerate(rows):
            paths[i, : len(row)] = row
        capacity = np.array([demands.rates[k] for k in number], dtype=np.float64)
        klass = np.array([level[f.job] for f in members], dtype=np.int8)
        shares = caps(maxmin(paths, capacity, klass, plain=plain_suffices(len(members))), epsilon)
        for f, share in zip(members, shares.tolist(), strict=True):
            if f.job == job:
                result[f.name] = int(share)
    return result


def _jobs_sharing_capacity(jobs: Sequence[str], candidate: Candidate) -> Mapping[str, list[str]]:
    """The jobs with which each job shares capacity: those that overlap with it in time, those that overlap
    with these, and so on. Jobs that share a link with it but never overlap with it are left out."""
    overlapping: dict[str, set[str]] = {name: set() for name in jobs}
    for a, b in candidate.shifts.contending:
        if a in overlapping and b in overlapping:
            overlapping[a].add(b)
            overlapping[b].add(a)
    on_a_link = {p for k in candidate.routing.shared for p in combinations(sorted(k.demands), 2)}
    sharing: dict[str, list[str]] = {}
    for job in jobs:
        seen, todo = {job}, [job]
        while todo:
            new = overlapping[todo.pop()] - seen
            seen |= new
            todo += new
        apart = {x for x in seen if x not in overlapping[job] and (min(job, x), max(job, x)) in on_a_link}
        sharing[job] = [name for name in jobs if name in seen and name not in apart]
    return sharing
