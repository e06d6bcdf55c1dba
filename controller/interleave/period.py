# SPDX-License-Identifier: Apache-2.0
"""Quantised periods: raised a little, so that jobs' rhythms repeat together soon."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

LONGEST = 20
REPEATS = 1_000
_TOLERANCES = (0.005, 0.01, 0.02, 0.05)
_STRETCHES = (0.0, 0.25, 0.5, 0.75, 1.0)
_MOST_REPEATS = 50_000
_MULTIPLES = 512
# Highly composite numbers: each has more divisors than any smaller one.
_RICH = (720, 5_040, 50_400, 720_720, 7_207_200, 73_513_440, 735_134_400, 6_983_776_800)


@dataclass(frozen=True, slots=True)
class Quantised:
    """`periods` in ns, in the order given; every one divides `perimeter` (their common multiple)."""

    periods: tuple[int, ...]
    perimeter: int

    def errors(self, measured: Sequence[int]) -> tuple[float, ...]:
        """How much longer than its own each period is, as a part of its own."""
        return tuple(long / own - 1 for long, own in zip(self.periods, measured, strict=True))


def quantise(
    periods: Sequence[int],
    *,
    min_stretch: float = 1.0,
    tolerance: float = 0.02,
    stretch: float = 0.0,
    repeats: int = REPEATS,
) -> Quantised | None:
    """Periods (ns) raised to at least `hold` and at most 1 + `tolerance` times, with a small LCM.

    The perimeter is the smallest multiple of the longest period, at most LONGEST times it, that all
    can divide; None if there is none, or if a period holds another more than `repeats` times. Periods
    whose LCM is small already only grow by `hold`. `stretch` in [0, 1] goes from the smallest to the
    largest perimeter of that shape: a little more time may be what full compatibility needs. Unequal
    periods rarely fit otherwise, since two full-rate jobs need up1 + up2 <= gcd(T1, T2).
    """
    if not periods or min(periods) <= 0:
        raise ValueError("periods must be positive")
    low = [math.ceil(t * min_stretch) for t in periods]
    high = [math.floor(t * (1 + tolerance)) for t in periods]
    if any(a > b for a, b in zip(low, high, strict=True)):
        raise ValueError("hold must not exceed 1 + tolerance")
    longest = max(periods)
    if longest > repeats * min(periods):
        return None
    exact = math.lcm(*periods)
    if exact <= min(LONGEST * longest, repeats * min(periods)):
        return _fit([exact // t for t in periods], low, high, stretch)
    top = periods.index(longest)
    for laps in range(1, LONGEST + 1):
        best: list[int] | None = None
        span = range(laps * low[top], laps * high[top] + 1)
        # The smallest perimeter that suits everyone is some job's lower end.
        starts = {span.start} | {
            k * a
            for a in low
            for k in range(
                -(-span.start // a), min((span.stop - 1) // a + 1, -(-span.start // a) + _MULTIPLES)
            )
        }
        for perimeter in sorted(starts):
            fitting = [perimeter // a for a in low]
            if all(k and perimeter <= k * b for k, b in zip(fitting, high, strict=True)):
                best = fitting
                break
        if best is not None and max(best) <= repeats:
            fitted = _fit(best, low, high, stretch)
            if fitted is not None:
                return fitted
    return None


def _fit(repeats: Sequence[int], low: Sequence[int], high: Sequence[int], stretch: float) -> Quantised | None:
    """The perimeter for these numbers of iterations, in whole ns of every period."""
    unit = math.lcm(*repeats)
    least = max(k * a for k, a in zip(repeats, low, strict=True))
    most = min(k * b for k, b in zip(repeats, high, strict=True))
    perimeter = -(-round(least + stretch * (most - least)) // unit) * unit
    if perimeter > most:
        perimeter -= unit
    if perimeter < least:
        return None
    return Quantised(tuple(perimeter // k for k in repeats), perimeter)


def choices(periods: Sequence[int]) -> list[Quantised]:
    """Ways to quantise periods (ns) that do not stay as they are, those that lengthen least first.

    Never empty: where no perimeter within a tolerance suits all, `smooth` bounds it.
    """
    found: dict[tuple[int, ...], Quantised] = {}
    for tolerance in _TOLERANCES:
        for stretch in _STRETCHES:
            fitted = quantise(periods, tolerance=tolerance, stretch=stretch, repeats=_MOST_REPEATS)
            if fitted is None:
                break
            found.setdefault(fitted.periods, fitted)
    if not found:
        found = {q.periods: q for laps in (1, 2, 4, 8, 12, LONGEST) for q in [smooth(periods, laps)]}
    return sorted(found.values(), key=lambda q: (max(q.errors(periods)), q.perimeter))


def smooth(periods: Sequence[int], laps: int) -> Quantised:
    """Periods (ns) raised so that all divide a perimeter of about `laps` times the longest.

    Each repeats a divisor of one number that has many. Where the numbers of repeats are at least ten, and
    the shortest period is 1 ms or more, such divisors are at most an eighth apart: no period grows by more
    than that and 1 %.
    """
    around = laps * max(periods)
    grain = max((n for n in _RICH if n * 100 <= around), default=_RICH[0])
    divisors = _divisors(grain)
    around = -(-around // grain) * grain
    repeats = [divisors[bisect_right(divisors, around // t) - 1] for t in periods]
    return Quantised(tuple(around // k for k in repeats), around)


@cache
def _divisors(number: int) -> tuple[int, ...]:
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*low, *(number // d for d in low)}))


def repeat_soon(groups: Sequence[Sequence[int]]) -> bool:
    """Whether periods may stay as they are: on each link, or in all, they repeat together soon enough."""

    def soon(periods: Sequence[int]) -> bool:
        return math.lcm(*periods) <= LONGEST * max(periods, default=1)

    return all(map(soon, groups)) or soon([t for periods in groups for t in periods])
