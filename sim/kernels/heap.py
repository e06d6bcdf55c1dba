# SPDX-License-Identifier: Apache-2.0
"""A binary heap of tasks by time, then number, that knows where each task is."""

from __future__ import annotations

from sim.kernels.compiler import kernel
from sim.kernels.state import HEAP, State


@kernel
def _up(s: State, i: int) -> None:
    key, task = s.heap[i].key, s.heap[i].task
    while i > 0:
        parent = (i - 1) >> 1
        other = s.heap[parent].key
        if other < key or (other == key and s.heap[parent].task <= task):
            break
        s.heap[i].key, s.heap[i].task = other, s.heap[parent].task
        s.tasks[s.heap[i].task].place = i
        i = parent
    s.heap[i].key, s.heap[i].task = key, task
    s.tasks[task].place = i


@kernel
def _down(s: State, i: int) -> None:
    key, task = s.heap[i].key, s.heap[i].task
    size = s.reg[HEAP]
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            s.heap[right].key < s.heap[child].key
            or (s.heap[right].key == s.heap[child].key and s.heap[right].task < s.heap[child].task)
        ):
            child = right
        other = s.heap[child].key
        if key < other or (key == other and task < s.heap[child].task):
            break
        s.heap[i].key, s.heap[i].task = other, s.heap[child].task
        s.tasks[s.heap[i].task].place = i
        i = child
    s.heap[i].key, s.heap[i].task = key, task
    s.tasks[task].place = i


@kernel
def put(s: State, task: int, key: int) -> None:
    """Insert a task, or move it to another time."""
    i = s.tasks[task].place
    if i < 0:
        i = s.reg[HEAP]
        s.reg[HEAP] += 1
        s.heap[i].key, s.heap[i].task = key, task
        _up(s, i)
        return
    before = s.heap[i].key
    s.heap[i].key = key
    if key < before:
        _up(s, i)
    else:
        _down(s, i)


@kernel
def remove(s: State, task: int) -> None:
    """Take a task out, if it is in."""
    i = s.tasks[task].place
    if i < 0:
        return
    s.tasks[task].place = -1
    s.reg[HEAP] -= 1
    last = s.reg[HEAP]
    if i == last:
        return
    moved = s.heap[last].task
    s.heap[i].key, s.heap[i].task = s.heap[last].key, moved
    s.tasks[moved].place = i
    _up(s, i)
    _down(s, s.tasks[moved].place)


@kernel
def pop(s: State) -> int:
    """Take out the first task and return it."""
    task = int(s.heap[0].task)
    remove(s, task)
    return task
