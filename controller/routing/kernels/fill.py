# SPDX-License-Identifier: Apache-2.0
"""Max-min fair rates under strict priority classes, by progressive filling with a heap of shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.kernels.compiler import kernel

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]

_SAME = 1e-12


@kernel
def _sink(keys: Floats, what: Ints, size: int, i: int) -> None:
    key, link = keys[i], what[i]
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if key <= keys[child]:
            break
        keys[i], what[i] = keys[child], what[child]
        i = child
    keys[i], what[i] = key, link


@kernel
def maxmin(paths: Ints, klass: NDArray[np.int8], capacity: Floats, classes: int) -> Floats:
    """Rates of flows with links paths[f] (flows, hops; -1 pads); class 0 is served first.

    Each class shares what those above leave of each link. A link's share only grows while others freeze,
    so a stale key of the heap is too small: it is put back, never missed. A flow without links gets inf.
    """
    flows, hops = paths.shape
    room = capacity.copy()
    rate = np.full(flows, np.inf)
    count = np.zeros(len(capacity), dtype=np.int32)
    start = np.zeros(len(capacity), dtype=np.int32)
    used = np.empty(min(len(capacity), flows * hops), dtype=np.int32)
    keys = np.empty(len(used))
    heap = np.empty(len(used), dtype=np.int32)
    on = np.empty(flows * hops, dtype=np.int32)
    order = np.empty(flows, dtype=np.int32)
    begin = np.zeros(classes + 1, dtype=np.int32)
    for f in range(flows):
        begin[klass[f] + 1] += 1
    for c in range(classes):
        begin[c + 1] += begin[c]
    place = begin.copy()
    for f in range(flows):
        order[place[klass[f]]] = f
        place[klass[f]] += 1
    frozen = np.zeros(flows, dtype=np.bool_)
    for c in range(classes):
        links = 0
        for i in range(begin[c], begin[c + 1]):
            for h in range(hops):
                link = paths[order[i], h]
                if link < 0:
                    break
                if count[link] == 0:
                    used[links] = link
                    links += 1
                count[link] += 1
        total = 0
        for i in range(links):
            link = used[i]
            total += count[link]
            start[link] = total
            keys[i] = room[link] / count[link]
            heap[i] = link
        for i in range(begin[c], begin[c + 1]):
            for h in range(hops):
                link = paths[order[i], h]
                if link < 0:
                    break
                start[link] -= 1
                on[start[link]] = order[i]
        # `used` is in the order of `start`, so a link's flows end where the next one's begin.
        for i in range(links):
            keys[i] = room[used[i]] / count[used[i]]
        size = links
        for i in range(size // 2 - 1, -1, -1):
            _sink(keys, heap, size, i)
        # How many flows a link began with; `count` goes down as they freeze.
        left = begin[c + 1] - begin[c]
        while size > 0 and left > 0:
            link = heap[0]
            key = keys[0]
            if count[link] == 0:
                size -= 1
                keys[0], heap[0] = keys[size], heap[size]
                _sink(keys, heap, size, 0)
                continue
            share = room[link] / count[link]
            if share > key * (1 + _SAME):
                keys[0] = share
                _sink(keys, heap, size, 0)
                continue
            i = start[link]
            while count[link] > 0:
                f = on[i]
                i += 1
                if frozen[f]:
                    continue
                frozen[f] = True
                left -= 1
                rate[f] = share
                for h in range(hops):
                    other = paths[f, h]
                    if other < 0:
                        break
                    room[other] = max(room[other] - share, 0.0)
                    count[other] -= 1
            room[link] = 0.0
        for i in range(links):
            count[used[i]] = 0
    return rate
