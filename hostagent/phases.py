# SPDX-License-Identifier: Apache-2.0
"""Period and Up phases of a job from a record of its communication.

The period is the shift at which the record is most similar to itself: the peak of its autocorrelation. CRUX
(section 5) uses the Fourier transform; the autocorrelation has no leakage if the record is not a whole number
of periods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path
from statistics import median
from typing import Any

from hostagent.records import CommunicationInterval, read_record
from polyrhythm_files import ConfigError

_LONGEST_RECORD = 4096
"""The most bins of a search; a longer record gets wider bins. Chosen: about a second of work."""
_LIKE = 0.8
"""The shortest shift with at least this part of the best autocorrelation is the period, not its multiples.
Chosen."""
_EVEN_LIKE, _EVEN = 0.45, (0.5, 1.5)
"""A shorter shift with this part of the best is the period if most of its repetitions carry bytes within
these parts of the median. Chosen: where iterations are missing, a multiple may be more similar by chance."""
_BLUR = 16
"""Similarities are averaged over this part of the shift to each side. Chosen: less than iterations vary."""
_APART = 8
"""Of peaks that are no further apart than this part of the shift the highest counts. Chosen: the rounds in a
burst make smaller ones beside it."""
_BINS_OF_REPETITION = 16
_CUT = 8
"""Repetitions are cut in the most quiet part of this size. Chosen."""
_LEAST_SENT = 0.3
_MOST_REPETITIONS = 0.75
"""So many of the repetitions of a period must carry this part of the usual bytes. Chosen: some iterations
are late or are left out, and of the rounds in bursts there are none in the Down phases."""
_UP = 0.4
"""A bin of the folded period with at least this part of the fullest bin is Up. Chosen."""
_GAP = 0.01
"""Up phases that are closer than this part of the period become one. Chosen: jitter blurs shorter gaps."""


@dataclass(frozen=True, slots=True)
class ObservedProfile:
    """A period, and its Up phases (start, end) in ns from the start of the first, which follows the longest
    Down phase. A rate of at least `up_rate` bytes/s counts as Up.
    """

    period_ns: int
    phases: tuple[tuple[int, int], ...]
    up_rate: float


def profile_files(paths: Sequence[Path]) -> dict[str, Any]:
    """Period and Up phases of a job from record files of one format, with the names of `polyrhythm_job`'s
    parameters.

    Raises ConfigError for a file of no known format, or without a period.
    """
    intervals: list[CommunicationInterval] = []
    for path in paths:
        try:
            intervals += read_record(path.read_text(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
    try:
        found = fold(intervals)
    except ValueError as error:
        raise ConfigError(f"{', '.join(map(str, paths))}: {error}") from None
    phases = [[start / 1e6, end / 1e6] for start, end in found.phases]
    return {"period_ms": found.period_ns / 1e6, "phases_ms": phases}


def fold(intervals: Sequence[CommunicationInterval], longest: int = _LONGEST_RECORD) -> ObservedProfile:
    """The period of a record, and the Up phases in it.

    The record is searched in at most `longest` bins; the work grows with their square. Raises ValueError if
    the record has no period.
    """
    if len(intervals) < 2:
        raise ValueError("a period needs at least two intervals of communication")
    first, last = min(b.start_ns for b in intervals), max(b.end_ns for b in intervals)
    bin_ns = max(1, -(-(last - first) // longest))
    bins = binned(intervals, first, bin_ns, (last - first) // bin_ns + 1)
    period = _period(bins)
    shift = max(1, round(period))
    folded = _folded(bins, period, shift)
    least = _UP * max(folded)
    up = [value >= least for value in folded]
    if all(up):
        return ObservedProfile(round(period * bin_ns), ((0, round(period * bin_ns)),), least / bin_ns * 1e9)
    # Time 0 is the start of the first Up phase after the longest Down phase.
    starts = [i for i in range(shift) if up[i] and not up[i - 1]]
    start = max(starts, key=lambda i: next(d for d in range(1, shift + 1) if up[i - d]))
    phases: list[tuple[int, int]] = []
    for offset in range(shift):
        if up[(start + offset) % shift]:
            joins = phases and offset * bin_ns - phases[-1][1] <= _GAP * shift * bin_ns
            began = phases.pop()[0] if joins else offset * bin_ns
            phases.append((began, (offset + 1) * bin_ns))
    period_ns = round(period * bin_ns)
    placed = tuple((start, min(end, period_ns)) for start, end in phases)
    return ObservedProfile(period_ns, placed, least / bin_ns * 1e9)


def _folded(bins: Sequence[float], period: float, shift: int) -> list[float]:
    """The mean of the bins at each position of the period, which need not be a whole number of bins."""
    sums, counts = [0.0] * shift, [0] * shift
    for index, value in enumerate(bins):
        place = int(index % period * shift / period) % shift
        sums[place] += value
        counts[place] += 1
    return [total / max(1, count) for total, count in zip(sums, counts, strict=True)]


def binned(intervals: Sequence[CommunicationInterval], first: int, bin_ns: int, count: int) -> list[float]:
    """The bytes in each of `count` bins of `bin_ns` from time `first` on. No interval may begin before
    `first`.
    """
    bins = [0.0] * count
    for interval in intervals:
        length = max(1, interval.end_ns - interval.start_ns)
        at = interval.start_ns - first
        end = at + length
        while at < end:
            index = at // bin_ns
            until = min(end, (index + 1) * bin_ns)
            bins[min(index, count - 1)] += interval.size * (until - at) / length
            at = until
    return bins


def borne_out(intervals: Sequence[CommunicationInterval], period_ns: int, since: int, until: int) -> bool:
    """Whether most repetitions of a period between two times carry bytes; true for fewer than one."""
    bin_ns = max(1, period_ns // _BINS_OF_REPETITION)
    within = [i for i in intervals if i.start_ns >= since and i.end_ns <= until]
    if not within or until - since < 2 * period_ns:
        return True
    bins = binned(within, since, bin_ns, (until - since) // bin_ns + 1)
    return _borne_out(bins, round(period_ns / bin_ns), even=False)


def _period(bins: Sequence[float]) -> float:
    """The shift, in bins, at which the record is most similar to itself; the shortest of several equal ones.

    It counts only if most of its repetitions carry bytes: within a burst, the rounds of TCP repeat too.
    Peaks at multiples of the shift then give it more exactly than one bin. Raises ValueError if there is
    none.
    """
    mean = sum(bins) / len(bins)
    centred = [value - mean for value in bins]
    power = sum(map(mul, centred, centred)) / len(bins)
    if power <= 0:
        raise ValueError("no period: the rate never changes")
    longest = len(bins) // 2
    similarity = [sum(map(mul, centred, centred[d:])) / (len(bins) - d) / power for d in range(longest + 1)]
    # Search after the first trough: small shifts are always similar.
    trough = next((d for d in range(1, longest) if similarity[d] < 0), 0)
    if not trough:
        raise ValueError("no period: the record shows less than two iterations")
    smooth = _smoothed(similarity)
    best = max(smooth[trough:])
    if best < 0.2:
        raise ValueError("no period: the record repeats itself at no shift")
    likely = [d for d in range(trough, longest + 1) if smooth[d] >= _LIKE * best]
    shorter = [d for d in range(trough, likely[0]) if smooth[d] >= _EVEN_LIKE * best]
    tried = ((d, even) for even, shifts in ((True, shorter), (False, likely)) for d in shifts)
    peak = next((d for d, even in tried if _is_peak(smooth, d, trough) and _borne_out(bins, d, even=even)), 0)
    if not peak:
        raise ValueError("no period: at no shift do most of the repetitions carry bytes")
    reach = peak // _BLUR
    sums: list[float] = [0.0, *accumulate(similarity)]

    def around(shift: int) -> float:
        low, high = max(0, shift - reach), min(longest, shift + reach) + 1
        return (sums[high] - sums[low]) / (high - low)

    period, times = float(peak), 1
    while 2 * times * period + max(2, reach) <= longest:
        times *= 2
        near = round(times * period)
        wide = min(max(2, reach), near // 4)
        period = max(range(near - wide, near + wide + 1), key=around) / times
    # Where iterations are exact, the sharpest peak is.
    near = round(times * period)
    wide = min(2, near // 4)
    return max(range(near - wide, min(near + wide, longest) + 1), key=similarity.__getitem__) / times


def _smoothed(similarity: Sequence[float]) -> list[float]:
    """The mean around each shift, over a part of the shift: iterations vary, and bursts have rounds."""
    sums: list[float] = [0.0, *accumulate(similarity)]
    last = len(similarity) - 1
    spans = ((max(0, d - d // _BLUR), min(last, d + d // _BLUR) + 1) for d in range(last + 1))
    return [(sums[high] - sums[low]) / (high - low) for low, high in spans]


def _is_peak(smooth: Sequence[float], shift: int, least: int) -> bool:
    """Whether no shift near this one has a higher value."""
    near = smooth[max(least, shift - shift // _APART) : shift + shift // _APART + 2]
    return smooth[shift] >= max(near)


def _borne_out(bins: Sequence[float], shift: int, *, even: bool) -> bool:
    """Whether most repetitions of a period of `shift` bins carry bytes; with `even` about as many each."""
    folded = _folded(bins, shift, shift)
    # Repetitions are cut where the least is sent, so that no burst is cut.
    wide = max(1, shift // _CUT)
    sums = [0.0, *accumulate([*folded, *folded[:wide]])]
    quiet = min(range(shift), key=lambda at: sums[at + wide] - sums[at]) + wide // 2
    each = [sum(bins[at : at + shift]) for at in range(quiet % shift, len(bins) - shift + 1, shift)]
    if not each:
        return False
    usual = median(each)
    least, most = (_EVEN[0] * usual, _EVEN[1] * usual) if even else (_LEAST_SENT * usual, float("inf"))
    return usual > 0 and sum(least <= sent <= most for sent in each) >= _MOST_REPETITIONS * len(each)
