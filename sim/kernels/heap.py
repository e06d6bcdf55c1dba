# SPDX-License-Identifier: Apache-2.0
"""A binary heap by key, then number, that knows where each entry is: of tasks by time, of links by level.
`heap` is an array of records (key, id), `place` each id's index in it, -1 for those not in it."""

from __future__ import annotations

from typing import Any

from sim.kernels.compiler import kernel


@kernel
def up(heap: Any, place: Any, i: int) -> None:
    """Move entry i towards the root until its parent goes before it."""
    key, what = heap[i].key, heap[i].id
    while i > 0:
        parent = (i - 1) >> 1
        other = heap[parent].key
        if other < key or (other == key and heap[parent].id <= what):
            break
        heap[i].key, heap[i].id = other, heap[parent].id
        place[heap[i].id] = i
        i = parent
    heap[i].key, heap[i].id = key, what
    place[what] = i


@kernel
def down(heap: Any, place: Any, size: int, i: int) -> None:
    """Move entry i away from the root until it goes before its children."""
    key, what = heap[i].key, heap[i].id
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            heap[right].key < heap[child].key
            or (heap[right].key == heap[child].key and heap[right].id < heap[child].id)
        ):
            child = right
        other = heap[child].key
        if key < other or (key == other and what < heap[child].id):
            break
        heap[i].key, heap[i].id = other, heap[child].id
        place[heap[i].id] = i
        i = child
    heap[i].key, heap[i].id = key, what
    place[what] = i


@kernel
def push(heap: Any, place: Any, size: int, what: int, key: Any) -> int:
    """Insert an id, or move it to another key; returns the heap's size."""
    i = place[what]
    if i < 0:
        heap[size].key, heap[size].id = key, what
        up(heap, place, size)
        return size + 1
    before = heap[i].key
    heap[i].key = key
    if key < before:
        up(heap, place, i)
    elif key > before:
        down(heap, place, size, i)
    return size


@kernel
def drop(heap: Any, place: Any, size: int, what: int) -> int:
    """Take an id out, if it is in; returns the heap's size."""
    i = place[what]
    if i < 0:
        return size
    place[what] = -1
    size -= 1
    if i < size:
        moved = heap[size].id
        before, key = heap[i].key, heap[size].key
        heap[i].key, heap[i].id = key, moved
        if key > before or (key == before and moved > what):
            down(heap, place, size, i)
        else:
            up(heap, place, i)
    return size
