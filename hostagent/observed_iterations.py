# SPDX-License-Identifier: Apache-2.0
"""The profile and the iterations of a job, from its communication intervals as they arrive. Pure
functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hostagent.phases import ObservedProfile, binned, borne_out, fold
from hostagent.records import CommunicationInterval

_BINS = 512
"""The most bins of a search. Chosen: it then takes a few ms of the processor that the agent needs."""
_SPANS_NS = (2_000_000_000, 8_000_000_000, 30_000_000_000, 120_000_000_000, 600_000_000_000)
_PERIODS = 4
"""A span must hold this many periods for its period to count; the profile is then taken from twice as
many."""
_LONGER = 4
"""A period must be borne out over so many times the span in which it was found. Chosen."""
_CHANGED = 0.15
"""A period that differs by more than this part is another one. Chosen."""
_AGREEING = 3
"""So many searches in a row must find a period before it is believed. Chosen: one may be wrong by chance."""
_BINS_OF_PERIOD = 256
_LEAST_DOWN = 0.04
"""The longest Down phase must be at least this part of the period to separate iterations. Chosen."""


@dataclass(frozen=True, slots=True)
class ObservedIteration:
    """One iteration: from its first Up phase to the next iteration's, in the record's time."""

    start_ns: int
    end_ns: int
    communication_ns: int
    size: int


def find_profile(busy: Sequence[CommunicationInterval]) -> ObservedProfile | None:
    """The profile of the last iterations of a record; None if it shows no period (yet).

    It takes the shortest recent time span that holds enough periods, because the job may have changed before.
    A period that a longer span does not bear out is none: in a long burst the rounds of TCP have a period.
    """
    if not busy:
        return None
    newest, oldest = max(b.end_ns for b in busy), min(b.start_ns for b in busy)
    for span in _SPANS_NS:
        if span > 2 * (newest - oldest):
            return None
        found = _fold(busy, newest - span)
        if found is None or _PERIODS * found.period_ns > min(span, newest - oldest):
            continue
        if borne_out(busy, found.period_ns, max(oldest, newest - _LONGER * span), newest):
            again = _fold(busy, newest - 2 * _PERIODS * found.period_ns)
            return again if again is not None and _near(again, found) else found
    return None


class BelievedProfile:
    """What is believed of a job's profile: what several searches in a row have found alike.

    `profile` is None until then. It stays where a search finds nothing.
    """

    def __init__(self) -> None:
        self.profile: ObservedProfile | None = None
        self._other: ObservedProfile | None = None
        self._agreeing = 0

    def forget(self) -> None:
        """The job has ended."""
        self.profile = self._other = None
        self._agreeing = 0

    @property
    def doubted(self) -> bool:
        """Whether the last search found another period than is believed, or none is believed."""
        return self.profile is None or self._agreeing > 0

    def found(self, profile: ObservedProfile | None) -> bool:
        """A search has found this. True if another profile is believed from now on."""
        if profile is None:
            return False
        if self.profile is not None and _near(profile, self.profile):
            self._other, self._agreeing = None, 0
            return False
        again = self._other is not None and _near(profile, self._other)
        self._other, self._agreeing = profile, self._agreeing + 1 if again else 1
        if self._agreeing < _AGREEING:
            return False
        self.profile, self._other, self._agreeing = profile, None, 0
        return True


def _near(one: ObservedProfile, other: ObservedProfile) -> bool:
    return abs(one.period_ns - other.period_ns) <= _CHANGED * other.period_ns


def _fold(busy: Sequence[CommunicationInterval], since: int) -> ObservedProfile | None:
    try:
        return fold([b for b in busy if b.start_ns >= since], _BINS)
    except ValueError:
        return None


def iterations(
    busy: Sequence[CommunicationInterval], profile: ObservedProfile, since: int, until: int, *, begins: bool
) -> list[ObservedIteration]:
    """The whole iterations with that profile between two times of the record.

    An iteration begins where the job communicates after a Down phase of at least half the longest one.
    `begins`: one begins at `since`. Times are exact to a 256th of the period.
    """
    down = profile.period_ns - profile.phases[-1][1]
    if down < _LEAST_DOWN * profile.period_ns:
        return []
    bin_ns = max(1, profile.period_ns // _BINS_OF_PERIOD)
    # Bytes before `since` belong to the iteration that ended there.
    within = [
        CommunicationInterval(max(b.start_ns, since), min(b.end_ns, until), b.size)
        for b in busy
        if b.end_ns > since and b.start_ns < until
    ]
    count = (until - since) // bin_ns + 1
    sizes = binned(within, since, bin_ns, count) if within else []
    up = [size * 1e9 / bin_ns >= profile.up_rate for size in sizes]
    starts, quiet = [], profile.period_ns if begins else 0
    for index, is_up in enumerate(up):
        if is_up and 2 * quiet >= down:
            starts.append(index)
        quiet = 0 if is_up else quiet + bin_ns
    return [
        ObservedIteration(
            since + first * bin_ns,
            since + last * bin_ns,
            sum(up[first:last]) * bin_ns,
            round(sum(sizes[first:last])),
        )
        for first, last in pairwise(starts)
    ]
