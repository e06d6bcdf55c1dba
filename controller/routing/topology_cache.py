# SPDX-License-Identifier: Apache-2.0
"""Keep the results of pure functions of a topology and of its jobs, which seldom change."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from topo.graph import Topology

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

RESULTS = 4
"""Chosen: the fabric as it is, as it was, intact, and with a failure that an answer is prepared for."""


def cached_by_topology(
    function: Callable[Concatenate[Topology, P], T],
) -> Callable[Concatenate[Topology, P], T]:
    """The same function, which keeps its last RESULTS results. Callers must not change them.

    The topology is compared by identity, because comparing 2,000 hosts takes longer than many plans; the
    other arguments by value.
    """
    results: deque[tuple[Topology, object, T]] = deque(maxlen=RESULTS)

    @wraps(function)
    def remembered(topology: Topology, *args: P.args, **kwargs: P.kwargs) -> T:
        rest = args, kwargs
        for known, others, result in tuple(results):
            if known is topology and others == rest:
                return result
        result = function(topology, *args, **kwargs)
        results.appendleft((topology, rest, result))
        return result

    return cast(Callable[Concatenate[Topology, P], T], remembered)


MOST_ITEMS = 300_000
"""How many flows of jobs results are kept for. Chosen: three times those of a large cluster."""


def cached_by_part(
    function: Callable[Concatenate[Topology, tuple[T, ...], P], R],
) -> Callable[Concatenate[Topology, tuple[T, ...], P], R]:
    """The same function of a topology, a part of a cluster and further arguments, with its last results.

    Such a part is the tuple of the flows of a job. It is frozen and stays from one plan to the next, so a
    plan costs what has changed. Topology and part are compared by identity, the other arguments by value. The
    results used last are kept, for parts of MOST_ITEMS items together.
    """
    return kept_by_part(function, MOST_ITEMS)


def kept_by_part(
    function: Callable[Concatenate[Topology, tuple[T, ...], P], R], most_items: int
) -> Callable[Concatenate[Topology, tuple[T, ...], P], R]:
    """`cached_by_part` with another limit, for results that take more memory."""
    results: OrderedDict[tuple[object, ...], tuple[Topology, tuple[T, ...], R]] = OrderedDict()
    items = 0

    @wraps(function)
    def remembered(topology: Topology, part: tuple[T, ...], *args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal items
        if type(part) is not tuple:
            # It may change, so its identity says nothing.
            return function(topology, part, *args, **kwargs)
        key = id(topology), id(part), args, tuple(kwargs.items())
        known = results.get(key)
        if known is not None:
            results.move_to_end(key)
            return known[2]
        result = function(topology, part, *args, **kwargs)
        # Topology and part are kept too, so that no other object gets the identity of one of them.
        results[key] = topology, part, result
        items += len(part) + 1
        while items > most_items and len(results) > 1:
            items -= len(results.popitem(last=False)[1][1]) + 1
        return result

    return cast(Callable[Concatenate[Topology, tuple[T, ...], P], R], remembered)
