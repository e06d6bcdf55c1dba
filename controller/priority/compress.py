# SPDX-License-Identifier: Apache-2.0
"""Priority compression: many priorities on few levels, losing the least (CRUX, section 4.3)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True, slots=True)
class Compression:
    """`level` of each job, 0 the highest. `cut` is the weight of the contention that levels keep
    apart, `lost` of what fell on one level."""

    level: Mapping[str, int]
    cut: float
    lost: float


def compress(
    order: Sequence[str],
    edges: Mapping[tuple[str, str], float],
    levels: int,
    *,
    orders: int = 10,
    seed: int = 0,
) -> Compression:
    """Algorithm 1: the best K-cut of the contention DAG over a sample of its topological orders.

    `order` holds the jobs, highest priority first; `edges` (higher, lower) -> weight. Of the `orders`
    sampled ones the first is `order` itself. Parts of the DAG that do not touch are cut
    independently, each on as few levels as its best cut needs, counted from 0: a job without
    contention gets level 0.
    """
    if levels < 1:
        raise ValueError(f"levels must be at least 1, not {levels}")
    place = {name: i for i, name in enumerate(order)}
    for high, low in edges:
        if place[high] >= place[low]:
            raise ValueError(f"edge {high} -> {low} goes against the priority order")
    rng = random.Random(seed)
    level: dict[str, int] = {}
    for part in _parts(order, edges):
        inside = {e: w for e, w in edges.items() if e[0] in part}
        best, cuts = -1.0, [0]
        for sample in range(orders if len(part) > 2 else 1):
            names = list(part) if sample == 0 else _topological(part, inside, rng)
            value, blocks = _cut(names, inside, levels)
            if value > best * (1 + 1e-12) or best < 0:
                best, cuts = value, blocks
                level |= {name: cuts[i] for i, name in enumerate(names)}
    cut = sum(w for (a, b), w in edges.items() if level[a] < level[b])
    return Compression({name: level[name] for name in order}, cut, sum(edges.values()) - cut)


def _parts(order: Sequence[str], edges: Mapping[tuple[str, str], float]) -> list[tuple[str, ...]]:
    """Connected components, each in the order given."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)
    seen: set[str] = set()
    parts = []
    for name in order:
        if name in seen:
            continue
        part, todo = {name}, [name]
        while todo:
            fresh = neighbours[todo.pop()] - part
            part |= fresh
            todo.extend(fresh)
        seen |= part
        parts.append(tuple(n for n in order if n in part))
    return parts


def _topological(
    part: Sequence[str], edges: Mapping[tuple[str, str], float], rng: random.Random
) -> list[str]:
    """A random topological order: breadth first over the jobs whose superiors are all out."""
    waiting = dict.fromkeys(part, 0)
    below: dict[str, list[str]] = defaultdict(list)
    for high, low in edges:
        below[high].append(low)
        waiting[low] += 1
    ready = [n for n in part if waiting[n] == 0]
    result = []
    while ready:
        name = ready.pop(rng.randrange(len(ready)))
        result.append(name)
        for low in below[name]:
            waiting[low] -= 1
            if waiting[low] == 0:
                ready.append(low)
    return result


def _cut(
    names: Sequence[str], edges: Mapping[tuple[str, str], float], levels: int
) -> tuple[float, list[int]]:
    """The best cut of a sequence into at most `levels` blocks: its value and each position's block.

    f(i, k) = max over j <= i of f(j, k-1) + C(j, i), where C(j, i), the weight from the first j jobs
    to jobs j+1..i, is S(j, i) - S(j, j) for the 2-D prefix sums S of the weights. (The printed
    algorithm fills S only up to column K; it needs all n.)
    """
    n = len(names)
    place = {name: i + 1 for i, name in enumerate(names)}
    prefix = np.zeros((n + 1, n + 1))
    for (a, b), w in edges.items():
        prefix[place[a], place[b]] += w
    prefix = prefix.cumsum(axis=0).cumsum(axis=1)
    gain = prefix - np.diagonal(prefix)[:, None]
    gain[np.tril_indices(n + 1, -1)] = -np.inf
    value = np.zeros(n + 1)
    choices = []
    for _ in range(1, min(levels, n)):
        options = value[:, None] + gain
        choice = options.argmax(axis=0)
        better = options[choice, np.arange(n + 1)]
        if better[n] <= value[n] * (1 + 1e-12):
            break
        choices.append(choice)
        value = better
    ends = [n]
    for choice in reversed(choices):
        ends.append(int(choice[ends[-1]]))
    bounds = [0, *reversed(ends)]
    sizes = [b - a for a, b in pairwise(bounds) if b > a]
    return float(value[n]), [k for k, size in enumerate(sizes) for _ in range(size)]
