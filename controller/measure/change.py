# SPDX-License-Identifier: Apache-2.0
"""Whether a job still does what it was measured doing, by its reports or by its byte counts alone.

Only what congestion cannot change is compared. A reported iteration has its bytes and its time without
communication. The byte counts of a silent job have neither: contention stretches iterations and tears bursts
apart. The sum of an iteration's bytes stays, and so does the silence while the GPUs compute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from controller.model.job import Profile

Floats = NDArray[np.float64]

AGREEING = 3
"""The number of iterations in a row that must differ in the same way. Chosen: a single straggler is no
change."""
REPORTED_BYTES_OFF = 0.02
REPORTED_QUIET_OFF = 0.05
"""By how much reported bytes and times without communication may vary. Chosen: their usual variation."""
VARIATION_FACTOR = 1.5
"""A change is more than so many times what the measured iterations varied by. Chosen: of a few iterations the
farthest from the median is within the usual variation."""
_BEYOND = 1.1
"""A change is also more than so many times what the iterations before it varied by. Chosen: 12 iterations
reach about 0.9 of evenly spread times."""
_NO_VARIATION = 0.15
"""An iteration that is further off than this part of the usual time is a straggler. Chosen, as the doubt
about a first measurement."""
_KEPT = 12
"""How many iterations before the last ones tell what is usual. Chosen: twice those of a measurement."""
COUNTED_BYTES_OFF = 0.03
COUNTED_QUIET_OFF = 0.1
"""The same for byte counts. Chosen: larger, because bins blur the edges."""
LEAST_ITERATIONS = 4
"""Fewer iterations in a series prove nothing. Chosen."""
_SILENT = 0.02
"""Below this part of the highest count a bin is silent: acknowledgements. Chosen."""
_LONG = 0.6
"""From this part of the measured silence on, a silence may separate iterations. Chosen: noise halves few."""


class ChangeDetector:
    """Compares iterations with the measured one: `sent` bytes and `quiet_ns` without communication.

    `varies_ns` is how far the time without communication was from its median in the measured iterations.
    Within that a job has not changed, nor within what the iterations before vary by.
    """

    def __init__(
        self, sent: float, quiet_ns: float, agreeing: int = AGREEING, *, varies_ns: float = 0.0
    ) -> None:
        self._sent = sent
        self._quiet_ns = quiet_ns
        self._varies_ns = varies_ns
        self._last: deque[tuple[float, float]] = deque(maxlen=agreeing)
        self._before: deque[float] = deque(maxlen=_KEPT)

    def add(self, sent: float, quiet_ns: float) -> bool:
        """Add an iteration. True once the last ones all differ from the measured one in the same way.

        The detector then starts to count again.
        """
        if len(self._last) == self._last.maxlen:
            self._before.append(self._last[0][1])
        self._last.append((sent, quiet_ns))
        if len(self._last) < (self._last.maxlen or 1) or not all(self._differs(*seen) for seen in self._last):
            return False
        usual = (median(s for s, _ in self._last), median(q for _, q in self._last))
        alike = all(not self._off(*seen, *usual) for seen in self._last)
        if alike:
            self._last.clear()
        return alike

    def _differs(self, sent: float, quiet_ns: float) -> bool:
        return self._off(sent, quiet_ns, self._sent, self._quiet_ns)

    def _off(self, sent: float, quiet_ns: float, usual: float, usual_ns: float) -> bool:
        off_ns = abs(quiet_ns - usual_ns)
        varies_ns = max(VARIATION_FACTOR * self._varies_ns, _BEYOND * self._variation_ns())
        quiet_off = off_ns > max(REPORTED_QUIET_OFF * usual_ns, varies_ns)
        return quiet_off or abs(sent - usual) > REPORTED_BYTES_OFF * usual

    def _variation_ns(self) -> float:
        """The farthest that the iterations before the last ones were from the usual time; without those that
        were too far to be its variation."""
        off = [o for q in self._before if (o := abs(q - self._quiet_ns)) <= _NO_VARIATION * self._quiet_ns]
        return max(off) if len(off) >= LEAST_ITERATIONS else 0.0


@dataclass(frozen=True, slots=True)
class Burst:
    """The bytes between two silences, and the length (ns) of the silence before. That of the first is not
    known.
    """

    sent: float
    silence_ns: float


def bursts(total: Floats, bin_ns: int, least_ns: float) -> list[Burst]:
    """A series of bytes, cut at silences of at least `least_ns`. Bursts that the ends of the series cut are
    left out.
    """
    if not len(total) or total.max() <= 0:
        return []
    loud = np.flatnonzero(total > _SILENT * total.max())
    # On average, half of the bin at either end of a silence belongs to a burst.
    gaps = np.diff(loud).astype(np.float64) * bin_ns
    cuts = np.flatnonzero(gaps >= max(least_ns, 2.0 * bin_ns))
    curve = np.concatenate([[0.0], np.cumsum(total)])
    return [
        Burst(float(curve[loud[last] + 1] - curve[loud[first] + 1]), float(gaps[first]))
        for first, last in pairwise(cuts)
    ]


def longest_silence(profile: Profile) -> float:
    """The longest Down phase (ns), also across the end of the period."""
    phases = profile.phases
    if not phases:
        return float(profile.period_ns)
    ends = [phases[-1].end_ns - profile.period_ns, *(p.end_ns for p in phases)]
    return float(max(p.start_ns - end for p, end in zip(phases, ends, strict=False)))


def looks_changed(total: Floats, bin_ns: int, sent: float, silence_ns: float) -> bool:
    """Whether a series has another pattern than iterations of `sent` bytes after `silence_ns` of silence.

    Bursts after a long silence are added up until they reach the bytes of an iteration. If no sum matches,
    the bytes have changed. If the silences are all longer, or mostly shorter, the compute time has changed.
    Fewer than four iterations prove nothing. A change to exactly a half or a third of the bytes with the same
    silences is not noticed, because it still adds up.
    """
    if silence_ns < 4 * bin_ns:
        return False
    found = bursts(total, bin_ns, _LONG * silence_ns / 2)
    even, uneven, silences = _add_up(found, sent, _LONG * silence_ns)
    if even + uneven < LEAST_ITERATIONS:
        return False
    if even == 0:
        return True
    slack = COUNTED_QUIET_OFF * silence_ns + 2 * bin_ns
    return min(silences) > silence_ns + slack or median(silences) < silence_ns - slack


def _add_up(found: Sequence[Burst], sent: float, long_ns: float) -> tuple[int, int, list[float]]:
    """How many iterations match and how many do not, and the silences before those that match."""
    even = uneven = at = 0
    silences: list[float] = []
    while at < len(found):
        if found[at].silence_ns < long_ns:
            at += 1
            continue
        total, first = 0.0, at
        while at < len(found) and total < (1 - COUNTED_BYTES_OFF) * sent:
            total += found[at].sent
            at += 1
        if total < (1 - COUNTED_BYTES_OFF) * sent:
            break
        if total <= (1 + COUNTED_BYTES_OFF) * sent:
            even += 1
            silences.append(found[first].silence_ns)
        else:
            uneven += 1
    return even, uneven, silences
