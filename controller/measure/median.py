# SPDX-License-Identifier: Apache-2.0
"""The median iteration of a job from its byte counts, and by how much its iterations differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Spans = Sequence[tuple[float, float]]

SLOTS = 400
"""The median iteration has at most this many slots, none shorter than a fifth of a bin. Chosen: bounds the
work."""
_PARTS = 101
"""The parts of an iteration's bytes whose moments tell how much its edges vary: every per cent. Chosen."""
_PAIRED = 40
"""The most iterations whose pairs are compared, evenly chosen. Chosen: 820 pairs bound the work."""


@dataclass(frozen=True, slots=True)
class Curves:
    """The bytes that each flow has sent in each iteration at equal distances of its period.

    `sent` has the shape (flows, iterations, positions); the last position of an iteration is that of the next
    one's first. The first `lead` slots lie before the start of the iteration.
    """

    sent: Floats
    lead: int

    @property
    def slots(self) -> int:
        """The number of slots between the positions."""
        return int(self.sent.shape[2]) - 1


def curves(table: Floats, bin_ns: int, spans: Spans, period_ns: float) -> Curves:
    """The bytes that each flow has sent in each iteration, in slots of the period.

    `table` has the bytes of each flow and bin, shape (flows, bins). `spans` are the (start, end) of
    iterations in ns after the start of the first bin. Bytes are spread evenly over their bin: starts at other
    positions in each bin blur an edge, but do not move its middle. So the blur of an iteration's start, which
    lies before the start, belongs to it and not to the iteration before. An iteration shorter than the period
    sends nothing after its end. Iterations that are not wholly in the table are left out.
    """
    flows, bins = table.shape
    whole = [(a, b) for a, b in spans if a >= 0 and a + period_ns <= bins * bin_ns]
    slots = int(min(SLOTS, max(2, period_ns * 5 // bin_ns)))
    lead = min(slots - 1, math.ceil(bin_ns * slots / period_ns))
    if not whole or not flows:
        return Curves(np.zeros((flows, 0, slots + 1)), lead)
    edges = np.arange(bins + 1) * float(bin_ns)
    starts, ends = np.array(whole).T
    slot = period_ns / slots
    at = np.add.outer(starts, np.arange(-lead, slots + 1 - lead) * slot)
    at = np.minimum(at, ends[:, None] - lead * slot)
    sent = [np.interp(at, edges, np.concatenate([[0.0], np.cumsum(row)])) for row in table]
    return Curves(np.stack([curve - curve[:, :1] for curve in sent]), lead)


def median_iteration(found: Curves, period_ns: float) -> Floats:
    """The rate (bit/s) of the median iteration, in equal slots of the period.

    At each position it has sent the median of the bytes that the iterations have sent by then. So the edges
    of its phases are at the medians of theirs, and one contended iteration among six changes little. In each
    slot the rate is that of the busiest flow. The result is empty if there is no iteration.
    """
    if not found.sent.shape[0] or not found.sent.shape[1]:
        return np.zeros(0)
    sent = np.stack([_median_curve(flow) for flow in found.sent])
    rates: Floats = np.diff(sent, axis=1).max(axis=0) * 8e9 * found.slots / period_ns
    return np.roll(rates, -found.lead)


def _median_curve(each: Floats) -> Floats:
    """The median of `each`, shape (iterations, positions), at each position.

    It is the median of the means of all pairs (Hodges and Lehmann, 1963). That is as robust against one in
    six as the plain median, and averages the steps of single packets, which the plain median keeps. The
    result rises where all of `each` rise.
    """
    some = each[np.unique(np.linspace(0, len(each) - 1, min(len(each), _PAIRED)).astype(np.int64))]
    i, k = np.triu_indices(len(some))
    middle: Floats = np.median((some[i] + some[k]) / 2, axis=0)
    return middle


def moments(found: Curves, period_ns: float, parts: Floats) -> Floats:
    """When each iteration has sent each of `parts` (0 to 1) of its bytes, in ns after its start.

    Iterations that send nothing are left out. Shape (iterations, parts).
    """
    each = found.sent.sum(axis=0)
    each = each[each[:, -1] > 0]
    grid = np.arange(-found.lead, found.slots + 1 - found.lead) * (period_ns / found.slots)
    return np.array([np.interp(parts * curve[-1], curve, grid) for curve in each])


def spread(found: Curves, period_ns: float) -> float:
    """By how much (ns) the edges of phases vary between iterations: the distance of the outer quartiles."""
    at = moments(found, period_ns, np.linspace(0.0, 1.0, _PARTS))
    if len(at) < 2:
        return 0.0
    # Between two phases a few bytes decide the moment. These are few of the parts.
    return float(np.quantile(np.subtract(*np.quantile(at, (0.75, 0.25), axis=0)), 0.9))
