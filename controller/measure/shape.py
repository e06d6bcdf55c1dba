# SPDX-License-Identifier: Apache-2.0
"""Up and Down phases from byte counts: the median iteration, cut where its rate changes (CASSINI, 4.3).

An iteration may have several phases (pipeline and tensor parallel jobs, thesis 4.5.4). A server may have
several GPUs (4.5.6), hence several flows: the rate of a phase is that of its busiest flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from controller.measure.median import Spans, curves, median_iteration, spread
from controller.measure.periodicity import iteration_length
from controller.model.job import Phase, Profile

Floats = NDArray[np.float64]

QUIET = 0.05
"""Below this part of the highest rate a slot is silent: acknowledgements and keep-alives. Chosen."""
_MOST_QUIET = 0.1
"""Three times the noise of the loud slots is silent too, up to this part of the highest rate. Chosen."""
_PENALTY = 12.0
"""The penalty of a cut in multiples of the variance of the noise. Chosen: fewer cuts than noise has steps."""
_ALIKE = 0.15
"""Neighbouring rates that differ by less than this part are one phase. Chosen."""
_SLIVER = 1.5
"""Stretches below this many bins are blurred edges. Chosen: an edge blurs at most one bin and its
neighbour."""
_BURST = 1.5
"""A short stretch is a burst from so many times the rate beside it. Chosen: packets in bins vary less."""
_GAP = 3.0
"""Two blurs meet in gaps of fewer bins. Chosen: each blur reaches one bin, and the cuts lie at their ends."""
_SPILL = 0.25
"""Up to this part of a bin's bytes lies beyond a blurred edge: a sixth where starts are spread evenly over
the bin, and half again as much for packets. Chosen."""
_LEAST_NOISE = 0.03
"""The least noise that is assumed, as a part of the peak. Chosen: a clean series must not be cut
everywhere."""
_MOST_NOISE = 0.15
"""The most noise that is assumed. Chosen: with more, the penalty of a cut would hide a burst of one bin."""
_SCRAP = 0.02
"""A short burst with less than this part of an iteration's bytes is no phase. Chosen: above what is left of
the edges of phases that begin earlier in some iterations than in others."""
_ROUNDS = 3
"""Rounds of refinement. Chosen: further rounds change little."""
_ASTRAY = 0.1
"""Iterations that are off the period by more than this part are ignored. Chosen."""


def pieces(rates: Floats, apart: int = 1) -> list[tuple[int, int, float]]:
    """A series cut into pieces of constant rate: (first slot, slot after the last, mean rate).

    The cuts minimise the squared error plus a penalty for each cut, which grows with the noise. The minimum
    is exact (optimal partitioning). The noise of slots less than `apart` slots apart is not independent.
    """
    count = len(rates)
    if not count:
        return []
    peak = float(np.abs(rates).max())
    if peak <= 0:
        return [(0, count, 0.0)]
    values = rates / peak
    noise = min(_MOST_NOISE, max(_LEAST_NOISE, _noise(values, apart)))
    penalty = _PENALTY * noise * noise
    ones = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(values * values)])
    cost = np.zeros(count + 1)
    last = np.zeros(count + 1, dtype=np.int64)
    cost[0] = -penalty
    for end in range(1, count + 1):
        begin = np.arange(end)
        error = squares[end] - squares[:end] - (ones[end] - ones[:end]) ** 2 / (end - begin)
        total = cost[:end] + error + penalty
        last[end] = int(total.argmin())
        cost[end] = total[last[end]]
    cuts = [count]
    while cuts[-1]:
        cuts.append(int(last[cuts[-1]]))
    cuts.reverse()
    return [(a, b, float(rates[a:b].mean())) for a, b in pairwise(cuts)]


def _noise(values: Floats, apart: int) -> float:
    """The noise of loud slots, as a part of the highest rate, which is 1.

    They differ from the slots before or after them by the noise alone, except between two edges.
    """
    steps = np.abs(values[apart:] - values[:-apart])
    around = np.minimum(steps[apart:], steps[:-apart])[values[apart:-apart] > QUIET]
    return float(np.median(around)) if len(around) else 0.0


def phases(rates: Floats, period_ns: float, bin_ns: int, spread_ns: float = 0.0) -> tuple[Phase, ...]:
    """The Up phases of a median iteration, whose end is next to its beginning.

    A piece shorter than a bin and a half, plus the `spread_ns` by which edges vary between iterations, is the
    blur of an edge. Its bytes go to the longer neighbour, which becomes longer by the time of these bytes at
    its rate. A phase that begins within two bins of 0 begins at 0, because iterations begin there. Bursts of
    hardly any bytes are left out.
    """
    if not len(rates) or rates.max() <= 0:
        return ()
    slot = period_ns / len(rates)
    peak = float(rates.max())
    apart = max(1, round(bin_ns / slot))
    quiet = min(_MOST_QUIET, max(QUIET, 3 * _noise(rates / peak, apart))) * peak
    rotation = _silence(rates <= quiet)
    merged: list[_Stretch] = []
    group: list[_Stretch] = []
    for a, b, rate in [*pieces(np.roll(rates, -rotation), apart), (len(rates), len(rates), 0.0)]:
        if rate > quiet:
            group.append(_Stretch((a + rotation) * slot, (b + rotation) * slot, rate))
        else:
            for part in _split_at_gaps(group, bin_ns):
                merged += _sharpen(part, _SLIVER * bin_ns + spread_ns)
            group = []
    least = _SCRAP * sum(s.sent for s in merged)
    scraps = {s for s in merged if s.sent < least and s.end - s.begin < _SLIVER * bin_ns + spread_ns}
    return _around([s for s in merged if s not in scraps], period_ns, 2.0 * bin_ns)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A time interval (ns) at one rate (bit/s)."""

    begin: float
    end: float
    rate: float

    @property
    def sent(self) -> float:
        return self.rate * (self.end - self.begin)


def _split_at_gaps(group: Sequence[_Stretch], bin_ns: int) -> list[list[_Stretch]]:
    """The stretches between two silences, cut where they are silent for so short that two blurs meet.

    In a gap of one to three bins the blurred edges of both neighbours leave no silence. A slow stretch that
    carries no more than these two blurs is such a gap. Half of its bytes belong to either neighbour.
    """
    for i in range(1, len(group) - 1):
        slow = group[i]
        before, after = max(s.rate for s in group[:i]), max(s.rate for s in group[i + 1 :])
        blurs = (before + after) * bin_ns * _SPILL
        short = bin_ns <= slow.end - slow.begin < _GAP * bin_ns
        if short and slow.rate < min(before, after) / 2 and slow.sent <= blurs:
            middle = (slow.begin + slow.end) / 2
            left, right = replace(slow, end=middle), replace(slow, begin=middle)
            return [[*group[:i], left], *_split_at_gaps([right, *group[i + 1 :]], bin_ns)]
    return [list(group)]


def _long(group: Sequence[_Stretch], least: float) -> list[int]:
    """The numbers of the stretches that are no blur: those of at least `least`, and short bursts.

    Of the short stretches between two long ones, or before or after all, the fastest is a burst if it is
    much faster than the long ones beside it: a blur never is.
    """
    long = [i for i, s in enumerate(group) if s.end - s.begin >= least]
    found = list(long)
    for i, k in pairwise([-1, *long, len(group)]):
        beside = [group[n].rate for n in (i, k) if 0 <= n < len(group)]
        if k - i > 1 and beside:
            fastest = max(range(i + 1, k), key=lambda n: group[n].rate)
            if group[fastest].rate > _BURST * max(beside):
                found.append(fastest)
    return sorted(found)


def _sharpen(group: Sequence[_Stretch], least: float) -> list[_Stretch]:
    """The stretches between two silences without the blur of their edges.

    Stretches shorter than `least` give their bytes to their longer neighbours, which become longer.
    """
    if not group:
        return []
    long = _long(group, least)
    if not long:
        # For a burst of one or two bins only an upper limit of its length is known.
        sent = sum(s.sent for s in group)
        rate = max(s.rate for s in group)
        middle = sum(s.sent * (s.begin + s.end) / 2 for s in group) / sent
        return [_Stretch(middle - sent / rate / 2, middle + sent / rate / 2, rate)]
    first, last = group[long[0]], group[long[-1]]
    begin = first.begin - sum(s.sent for s in group[: long[0]]) / first.rate
    result: list[_Stretch] = []
    for i, k in pairwise(long):
        left, right = group[i], group[k]
        between = sum(s.sent for s in group[i + 1 : k])
        gap = right.begin - left.end
        if abs(left.rate - right.rate) < _ALIKE * max(left.rate, right.rate):
            cut = left.end + gap / 2
        else:
            part = (between - right.rate * gap) / (left.rate - right.rate)
            cut = left.end + min(max(part, 0.0), gap)
        result.append(_Stretch(begin, cut, left.rate))
        begin = cut
    end = last.end + sum(s.sent for s in group[long[-1] + 1 :]) / last.rate
    result.append(_Stretch(begin, end, last.rate))
    return _joined(result)


def _joined(stretches: Sequence[_Stretch]) -> list[_Stretch]:
    """The stretches, with neighbours of about the same rate joined."""
    result: list[_Stretch] = []
    for s in stretches:
        if result and abs(result[-1].rate - s.rate) < _ALIKE * max(result[-1].rate, s.rate):
            before = result.pop()
            rate = (before.sent + s.sent) / (s.end - before.begin)
            result.append(_Stretch(before.begin, s.end, rate))
        else:
            result.append(s)
    return result


def _silence(quiet: NDArray[np.bool_]) -> int:
    """The middle of the longest silent interval around the circle; 0 if there is none."""
    if quiet.all() or not quiet.any():
        return 0
    loud = np.flatnonzero(~quiet)
    gaps = np.diff(np.concatenate([loud, [loud[0] + len(quiet)]])) - 1
    widest = int(gaps.argmax())
    return int(loud[widest] + 1 + gaps[widest] // 2) % len(quiet)


def _around(merged: Sequence[_Stretch], period_ns: float, near: float) -> tuple[Phase, ...]:
    """Stretches, which may lie beyond the end of the period, as sorted phases inside it, in whole ns."""
    period = round(period_ns)
    offsets = [(s.begin + period_ns / 2) % period_ns - period_ns / 2 for s in merged]
    first = min(offsets, key=abs, default=0.0)
    moved = first if abs(first) <= near else 0.0
    parts: list[tuple[int, int, int]] = []
    for s in merged:
        start = round((s.begin - moved) % period_ns) % period
        stop = start + min(round(s.end - s.begin), period)
        parts.append((start, min(stop, period), round(s.rate)))
        if stop > period:
            parts.append((0, stop - period, round(s.rate)))
    result: list[Phase] = []
    for start, stop, rate in sorted(parts):
        at = max(start, result[-1].end_ns if result else 0)
        if stop > at and rate > 0:
            result.append(Phase(at, stop, rate))
    return tuple(result)


def spans_of(starts: Sequence[float]) -> Spans:
    """The (start, end) of iterations that follow one another. The last one has no known end."""
    return list(zip(starts, [*starts[1:], float("inf")], strict=True))


def estimate(table: Floats, bin_ns: int, spans: Spans, period_ns: float) -> Profile | None:
    """The profile of a job whose iterations have these `spans` (start and end in ns after the first bin).

    They take `period_ns` each. None if the table holds no whole iteration.
    """
    found = curves(table, bin_ns, spans, period_ns)
    rates = median_iteration(found, period_ns)
    if not len(rates):
        return None
    return Profile(round(period_ns), phases(rates, period_ns, bin_ns, spread(found, period_ns)))


def discover(table: Floats, bin_ns: int) -> tuple[Profile, tuple[float, ...]] | None:
    """The profile and the iteration starts from byte counts alone; None if nothing repeats.

    The period comes from the autocorrelation of all flows together. It is then refined by the times at which
    each iteration has sent half of its first phase, which are known to a fraction of a bin.
    """
    total = table.sum(axis=0)
    found = iteration_length(total, 1.0)
    if found is None:
        return None
    period = found[0] * bin_ns
    span = len(total) * bin_ns
    starts: Sequence[float] = [k * period for k in range(int(span // period))]
    for _ in range(_ROUNDS):
        rates = median_iteration(curves(total[None, :], bin_ns, spans_of(starts), period), period)
        cut = phases(rates, period, bin_ns)
        if not cut:
            return None
        first = _first_phase(cut, period)
        moments = _moments(total, bin_ns, (starts[0] + first.half) % period, first, period)
        if len(moments) < 2:
            return None
        period = _slope(moments)
        off = np.array(moments) - period * np.arange(len(moments))
        kept = np.abs(off - np.median(off)) <= _ASTRAY * period
        starts = [m - (first.half - first.begin) for m, good in zip(moments, kept, strict=True) if good]
    profile = estimate(table, bin_ns, spans_of(starts), period)
    return None if profile is None or not profile.phases else (profile, tuple(starts))


@dataclass(frozen=True, slots=True)
class _First:
    """The phase by which iterations are recognised, in ns of the period.

    `half` is when half of it is sent. Nothing else is sent within `reach` of it.
    """

    begin: float
    half: float
    end: float
    reach: float


def _first_phase(cut: Sequence[Phase], period: float) -> _First:
    """The phase after the longest silence.

    Phases that touch count as one. A phase that the end of the period cuts continues at its beginning.
    """
    groups: list[list[_Stretch]] = []
    for p in cut:
        stretch = _Stretch(p.start_ns, p.end_ns, p.rate_bps)
        if groups and stretch.begin - groups[-1][-1].end <= 1:
            groups[-1].append(stretch)
        else:
            groups.append([stretch])
    if len(groups) > 1 and groups[0][0].begin + period - groups[-1][-1].end <= 1:
        rotated = [_Stretch(s.begin - period, s.end - period, s.rate) for s in groups.pop()]
        groups[0] = [*rotated, *groups[0]]
    silences = [(g[0].begin - groups[i - 1][-1].end) % period for i, g in enumerate(groups)]
    first = int(np.argmax(silences))
    group = groups[first]
    times = np.array([group[0].begin, *(s.end for s in group)])
    sent = np.concatenate([[0.0], np.cumsum([s.sent for s in group])])
    half = float(np.interp(sent[-1] / 2, sent, times))
    after = silences[(first + 1) % len(groups)]
    return _First(group[0].begin, half, group[-1].end, min(silences[first], after) / 2)


def _slope(moments: Sequence[float]) -> float:
    """The period from one time in each iteration: the median over all pairs (Theil and Sen)."""
    at = np.array(moments)
    i, k = np.triu_indices(len(at), 1)
    return float(np.median((at[k] - at[i]) / (k - i)))


def _moments(total: Floats, bin_ns: int, middle: float, first: _First, period: float) -> list[float]:
    """When each iteration has sent half of its first phase, in ns.

    Each time is searched one period after the one before, so iterations of uneven length are followed.
    """
    edges = np.arange(len(total) + 1) * float(bin_ns)
    curve = np.concatenate([[0.0], np.cumsum(total)])
    before, after = first.half - first.begin + first.reach, first.end - first.half + first.reach
    moments: list[float] = []
    if middle < before:
        middle += period
    while middle + after <= edges[-1]:
        for _ in range(_ROUNDS):
            low, high = np.interp([middle - before, middle + after], edges, curve)
            if high <= low:
                return moments
            at = max(1, int(np.searchsorted(curve, (low + high) / 2)))
            part = ((low + high) / 2 - curve[at - 1]) / (curve[at] - curve[at - 1])
            middle = max(before, (at - 1 + float(part)) * bin_ns)
            if middle + after > edges[-1]:
                return moments
        if moments and middle < moments[-1] + period / 2:
            return moments
        moments.append(middle)
        middle += period
    return moments
