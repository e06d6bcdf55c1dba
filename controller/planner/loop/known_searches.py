# SPDX-License-Identifier: Apache-2.0
"""Keep the searches of levels that were made for earlier plans.

Most jobs that come to a cluster, or leave it, have no flows that a plan places. The search of the plan then
has the same input as that of the plan before, and so the same result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from controller.interleave.joint.instance import Choice, Instance
from controller.planner.loop.objective import Objective
from controller.planner.loop.search import SearchLimits, SearchResult

_MOST = 8
"""How many searches are kept, those used last. Chosen: a job that leaves soon after it came brings back the
input from before, and the input of a search with 10,000 flows takes a few MiB."""

_Key = tuple[Instance, tuple[tuple[str, Choice], ...], Objective, SearchLimits, int]


class KnownSearches:
    """Results of searches by all that they follow from: instance, given plans, objective, limits and seed."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._found: OrderedDict[_Key, SearchResult | None] = OrderedDict()

    def result(
        self,
        instance: Instance,
        given: Mapping[str, Choice],
        objective: Objective,
        limits: SearchLimits,
        seed: int,
        search: Callable[[], SearchResult | None],
    ) -> SearchResult | None:
        """The result of `search`, which is called only if it is not known. A search that was stopped before
        its end is not kept."""
        key = instance, tuple(given.items()), objective, limits, seed
        if key in self._found:
            self._found.move_to_end(key)
            return self._found[key]
        found = search()
        if found is None or not found.stopped:
            self._found[key] = found
            if len(self._found) > self._most:
                self._found.popitem(last=False)
        return found


KNOWN_SEARCHES = KnownSearches()
"""Those of this process. A result follows from its key alone, so it does not matter who computed it."""
