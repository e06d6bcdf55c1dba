# SPDX-License-Identifier: Apache-2.0
"""How much: the rate that agents hold each flow to, a little more than its max-min fair share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from controller.model import Flow
from controller.planner.priority_stage import PriorityStage
from controller.planner.routing_stage import RoutingStage
from controller.routing.assign import SMALL
from controller.routing.rates import CLASSES, caps, maxmin


def rate_caps(space: RoutingStage, order: PriorityStage) -> Mapping[str, int]:
    """Flow -> bit/s on the wire, (1 + epsilon) of its share among those it can meet in time; empty without
    the policy's `cap_epsilon`.

    A share is that of max-min fairness under strict priority, as if every flow wanted all it can get. A
    flow whose share is 0, for its betters fill a link, has no cap: the switches' queues hold it back, and it
    may have what they leave. Flows without a path of ours have none either.
    """
    epsilon = space.demands.inputs.policy.cap_epsilon
    if epsilon is None:
        return {}
    links_of = {name: space.links_of[name] for name, a in space.assignments.items() if a.path}
    flows: dict[str, list[Flow]] = defaultdict(list)
    for f in space.demands.elephants:
        if f.name in links_of:
            flows[f.job].append(f)
    level = {r.name: min(order.levels[r.name], CLASSES - 1) for r in order.ranked}
    result: dict[str, int] = {}
    for job, company in _companies(list(flows), order, space).items():
        members = [f for name in company for f in flows[name]]
        number: dict[tuple[str, str], int] = {}
        rows = [[number.setdefault(k, len(number)) for k in links_of[f.name]] for f in members]
        paths = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int32)
        for i, row in enumerate(rows):
            paths[i, : len(row)] = row
        capacity = np.array([space.demands.rates[k] for k in number], dtype=np.float64)
        klass = np.array([level[f.job] for f in members], dtype=np.int8)
        shares = caps(maxmin(paths, capacity, klass, plain=len(members) < SMALL), epsilon)
        for f, share in zip(members, shares.tolist(), strict=True):
            if f.job == job:
                result[f.name] = int(share)
    return result


def _companies(jobs: Sequence[str], order: PriorityStage, space: RoutingStage) -> Mapping[str, list[str]]:
    """For each job those it shares capacity with: whom it meets, whom these meet, and so on, but nobody
    that it takes turns with on a common link."""
    meet: dict[str, set[str]] = {name: set() for name in jobs}
    for a, b in order.rhythms.contending:
        if a in meet and b in meet:
            meet[a].add(b)
            meet[b].add(a)
    share = {p for k in space.shared for p in combinations(sorted(k.demands), 2)}
    companies: dict[str, list[str]] = {}
    for job in jobs:
        seen, todo = {job}, [job]
        while todo:
            news = meet[todo.pop()] - seen
            seen |= news
            todo += news
        turns = {x for x in seen if x not in meet[job] and (min(job, x), max(job, x)) in share}
        companies[job] = [name for name in jobs if name in seen and name not in turns]
    return companies
