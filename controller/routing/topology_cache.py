# SPDX-License-Identifier: Apache-2.0
"""Keep the last results of a pure function of a topology, which seldom changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from topo.graph import Topology

P = ParamSpec("P")
T = TypeVar("T")

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
