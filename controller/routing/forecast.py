# SPDX-License-Identifier: Apache-2.0
"""Looking ahead: when flows end, when jobs' next flows begin, and the assignment for what is on then.

Routing paper, 3.2: a flow's end follows from the bytes it has left and the rate it has; the next start
from the job's period and phases.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from controller.model.job import Profile

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sending:
    """A flow that sends: `bytes_left` at the present rate in bit/s."""

    name: str
    bytes_left: int
    rate_bps: float

    def end_ns(self, now_ns: int) -> int | None:
        """When it will be done; None at rate 0."""
        if self.bytes_left <= 0:
            return now_ns
        if self.rate_bps <= 0:
            return None
        return now_ns + -int(-8e9 * self.bytes_left // self.rate_bps)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """A job's flows and its profile; its periods begin at `began_ns` plus whole periods."""

    flows: frozenset[str]
    profile: Profile
    began_ns: int

    def next_start_ns(self, now_ns: int) -> int | None:
        """The next begin of an Up phase after now; None for a job that never sends."""
        period = self.profile.period_ns
        if not self.profile.phases or period <= 0:
            return None
        into = (now_ns - self.began_ns) % period
        waits = [(p.start_ns - into) % period or period for p in self.profile.phases]
        return now_ns + min(waits)


@dataclass(frozen=True, slots=True)
class Change:
    """What will be different at `time_ns`, and the flows that send from then on."""

    time_ns: int
    ends: frozenset[str]
    starts: frozenset[str]
    active: frozenset[str]


def next_change(now_ns: int, sending: Iterable[Sending], rhythms: Iterable[Rhythm]) -> Change | None:
    """The first predicted end or start after now, everything of that instant together; None if none is."""
    flows = list(sending)
    now_active = frozenset(f.name for f in flows)
    ends = [(end, f.name) for f in flows if (end := f.end_ns(now_ns)) is not None]
    starts = [(start, r.flows) for r in rhythms if (start := r.next_start_ns(now_ns)) is not None]
    times = [time for time, _ in ends] + [time for time, _ in starts]
    if not times:
        return None
    first = min(times)
    ended = frozenset(name for time, name in ends if time == first)
    started = frozenset(name for time, names in starts if time == first for name in names)
    return Change(first, ended, started - now_active, (now_active - ended) | started)


class Prepared(Generic[T]):
    """Assignments worked out before they are needed, by the set of flows that will send.

    A prediction that comes true finds its assignment here; any other is worked out then. The newest
    `keep` are held, and `forget` drops them when the fabric or the flows' demands change.
    """

    def __init__(self, assign: Callable[[frozenset[str]], T], keep: int = 16) -> None:
        self._assign, self._keep = assign, keep
        self._held: OrderedDict[frozenset[str], T] = OrderedDict()

    def prepare(self, active: frozenset[str]) -> None:
        """Work out the assignment for these flows, unless it is there."""
        if active not in self._held:
            self._held[active] = self._assign(active)
        self._held.move_to_end(active)
        while len(self._held) > self._keep:
            self._held.popitem(last=False)

    def take(self, active: frozenset[str]) -> tuple[T, bool]:
        """The assignment for these flows, and whether it was ready."""
        ready = active in self._held
        return (self._held[active] if ready else self._assign(active)), ready

    def forget(self) -> None:
        """Drop everything that was prepared."""
        self._held.clear()
