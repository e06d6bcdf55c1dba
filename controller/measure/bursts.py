# SPDX-License-Identifier: Apache-2.0
"""Whether byte counts still look like the measured iteration, where nobody reports any and others interfere.

Contention stretches iterations and tears bursts apart: neither their length nor their number says much. What
stays is the sum of an iteration's bytes, and that nothing is sent for as long as the GPUs compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from controller.model.job import Profile

Floats = NDArray[np.float64]

BYTES_OFF = 0.03
QUIET_OFF = 0.1
LEAST_ITERATIONS = 4
_SILENT = 0.02
_LONG = 0.6


@dataclass(frozen=True, slots=True)
class Burst:
    """Bytes sent between two silences, and how long (ns) the one before was; the first one's is not known."""

    sent: float
    silence_ns: float


def bursts(total: Floats, bin_ns: int, least_ns: float) -> list[Burst]:
    """A series of bytes cut at silences of at least `least_ns`, what the ends of the series cut left out."""
    if not len(total) or total.max() <= 0:
        return []
    loud = np.flatnonzero(total > _SILENT * total.max())
    # Half a bin at either side of a silence was sent in, on average.
    gaps = np.diff(loud).astype(np.float64) * bin_ns
    cuts = np.flatnonzero(gaps >= max(least_ns, 2.0 * bin_ns))
    curve = np.concatenate([[0.0], np.cumsum(total)])
    return [
        Burst(float(curve[loud[last] + 1] - curve[loud[first] + 1]), float(gaps[first]))
        for first, last in pairwise(cuts)
    ]


def longest_silence(profile: Profile) -> float:
    """The longest Down phase (ns), around the period."""
    phases = profile.phases
    if not phases:
        return float(profile.period_ns)
    ends = [phases[-1].end_ns - profile.period_ns, *(p.end_ns for p in phases)]
    return float(max(p.start_ns - end for p, end in zip(phases, ends, strict=False)))


def looks_changed(total: Floats, bin_ns: int, sent: float, silence_ns: float) -> bool:
    """Whether a series is of another pattern than iterations of `sent` bytes after `silence_ns` of silence.

    Bursts after a long silence are added up until an iteration's bytes are there. If that never comes out
    even, the bytes have changed; if silences are all longer, or mostly shorter, the compute has. A series
    of less than four iterations says nothing. Bytes of exactly a half or a third, with the same silences,
    come out even too: that is not noticed.
    """
    if silence_ns < 4 * bin_ns:
        return False
    found = bursts(total, bin_ns, _LONG * silence_ns / 2)
    even, uneven, silences = _add_up(found, sent, _LONG * silence_ns)
    if even + uneven < LEAST_ITERATIONS:
        return False
    if even == 0:
        return True
    slack = QUIET_OFF * silence_ns + 2 * bin_ns
    return min(silences) > silence_ns + slack or median(silences) < silence_ns - slack


def _add_up(found: Sequence[Burst], sent: float, long_ns: float) -> tuple[int, int, list[float]]:
    """How many iterations come out even and how many do not, and the silences before the even ones."""
    even = uneven = at = 0
    silences: list[float] = []
    while at < len(found):
        if found[at].silence_ns < long_ns:
            at += 1
            continue
        total, first = 0.0, at
        while at < len(found) and total < (1 - BYTES_OFF) * sent:
            total += found[at].sent
            at += 1
        if total < (1 - BYTES_OFF) * sent:
            break
        if total <= (1 + BYTES_OFF) * sent:
            even += 1
            silences.append(found[first].silence_ns)
        else:
            uneven += 1
    return even, uneven, silences
