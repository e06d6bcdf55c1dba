# SPDX-License-Identifier: Apache-2.0
"""How exactly a profile is known, from the spread of the iterations that it was measured over."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from controller.measure.median import Curves, Spans, curves, moments
from controller.model.job import Confidence, Profile

Floats = NDArray[np.float64]

_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Student's t for 95 % and 1 to 10 degrees of freedom (the usual table)."""
_STUDENT_MANY = 2.1
"""The same for more than 10 degrees of freedom. Chosen: between 2.20 (11) and 1.96 (infinitely many)."""
_MEDIAN = 1.2533
"""The standard error of a median is so many times that of a mean (normal distribution: sqrt(pi / 2))."""
BEYOND = 1.5
"""Two measurements of one thing may be wrong by so many of their half-widths. Chosen: by their 95 % intervals
alone, one of a hundred pairs of equal jobs would be taken for jobs that differ."""
LEAST_PERIOD = 0.0025
"""The least half-width of a period, as a part of it. Chosen: queues vary iterations by about as much."""
LEAST_EDGE_BINS = 0.5
"""The least half-width of an edge in bins. The tests of the estimate hold it to half a bin."""
_INSIDE_BINS = 2.0
"""An edge is followed this many bins inside its phase, where bytes tell the time. Chosen."""


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the median of `values`; infinite for fewer than two."""
    if len(values) < 2:
        return float("inf")
    error = _MEDIAN * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return _student(len(values) - 1) * error


def confidence(
    profile: Profile, table: Floats, bin_ns: int, spans: Spans, period_half_width_ns: float
) -> Confidence | None:
    """How exactly `profile` is known; None if `period_half_width_ns` is infinite: too few iterations.

    `table` has the bytes of each flow and bin, shape (flows, bins); `spans` are the (start, end) of its
    iterations in ns after the first bin. In each iteration an edge of a phase is where the part of its bytes
    is sent that the median iteration has sent by then.
    """
    if period_half_width_ns == float("inf"):
        return None
    period = float(profile.period_ns)
    wide = max(period_half_width_ns, LEAST_PERIOD * period)
    least = LEAST_EDGE_BINS * bin_ns
    found = curves(table, bin_ns, spans, period)
    edges: list[tuple[int, int]] = []
    for phase in profile.phases:
        inside = min(_INSIDE_BINS * bin_ns, (phase.end_ns - phase.start_ns) / 2)
        start, end = (
            round(min(period, max(least, _spread(found, period, at))))
            for at in (phase.start_ns + inside, phase.end_ns - inside)
        )
        edges.append((start, end))
    return Confidence(round(min(wide, period)), tuple(edges))


def slope_half_width(moments: Sequence[float], period_ns: float) -> float:
    """Half of the 95 % interval of a period that is the slope of one moment (ns) in each iteration."""
    if len(moments) < 3:
        return float("inf")
    index = np.round((np.array(moments) - moments[0]) / period_ns)
    off = np.array(moments) - period_ns * index
    spread = math.sqrt(float(np.sum((index - index.mean()) ** 2)))
    return _student(len(moments) - 2) * float(np.std(off, ddof=2)) / max(spread, 1.0)


def _student(degrees: int) -> float:
    return _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else _STUDENT_MANY


def _spread(found: Curves, period: float, at_ns: float) -> float:
    """The half-width (ns) of the moment at which the iterations have sent what they send by `at_ns`."""
    each = found.sent.sum(axis=0)
    each = each[each[:, -1] > 0]
    if not len(each):
        return float("inf")
    grid = np.arange(-found.lead, found.slots + 1 - found.lead) * (period / found.slots)
    part = float(np.median([np.interp(at_ns, grid, curve) / curve[-1] for curve in each]))
    return half_width([float(t) for t in moments(found, period, np.array([part]))[:, 0]])
