# SPDX-License-Identifier: Apache-2.0
"""Lookahead: predict when the next flow ends or starts, and which flows send after that.

"Routing for Large ML Models", section 3.2. The end of a flow follows from its bytes left and its rate.
The next start follows from the period and the Up phases of the job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.model.job import Profile


@dataclass(frozen=True, slots=True)
class ActiveFlow:
    """A flow that sends now. It has `bytes_left` to send at `rate_bps`."""

    name: str
    bytes_left: int
    rate_bps: float

    def end_ns(self, now_ns: int) -> int | None:
        """The time at which the flow ends, in ns; None if its rate is 0."""
        if self.bytes_left <= 0:
            return now_ns
        if self.rate_bps <= 0:
            return None
        return now_ns + -int(-8e9 * self.bytes_left // self.rate_bps)


@dataclass(frozen=True, slots=True)
class PeriodicFlows:
    """The flows of a job and its profile. Its periods begin at `began_ns` plus a whole number of periods."""

    flows: frozenset[str]
    profile: Profile
    began_ns: int

    def next_start_ns(self, now_ns: int) -> int | None:
        """The start of the next Up phase after `now_ns`; None if the job never sends."""
        period = self.profile.period_ns
        if not self.profile.phases or period <= 0:
            return None
        into = (now_ns - self.began_ns) % period
        waits = [(p.start_ns - into) % period or period for p in self.profile.phases]
        return now_ns + min(waits)


@dataclass(frozen=True, slots=True)
class ForeseenChange:
    """The flows that end and start at `time_ns`, and the flows that are `active` after that."""

    time_ns: int
    ends: frozenset[str]
    starts: frozenset[str]
    active: frozenset[str]


def next_change(
    now_ns: int, active: Iterable[ActiveFlow], periodic: Iterable[PeriodicFlows]
) -> ForeseenChange | None:
    """Predict the first end or start of a flow after `now_ns`.

    All ends and starts at that instant are in one result. Returns None when nothing is predicted.
    """
    flows = list(active)
    now_active = frozenset(f.name for f in flows)
    ends = [(end, f.name) for f in flows if (end := f.end_ns(now_ns)) is not None]
    starts = [(start, r.flows) for r in periodic if (start := r.next_start_ns(now_ns)) is not None]
    times = [time for time, _ in ends] + [time for time, _ in starts]
    if not times:
        return None
    first = min(times)
    ended = frozenset(name for time, name in ends if time == first)
    started = frozenset(name for time, names in starts if time == first for name in names)
    return ForeseenChange(first, ended, started - now_active, (now_active - ended) | started)
