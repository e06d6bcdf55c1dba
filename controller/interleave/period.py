# SPDX-License-Identifier: Apache-2.0
"""Quantised periods: raised a little, so that jobs' rhythms repeat together soon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 20
REPEATS = 1_000


@dataclass(frozen=True, slots=True)
class Quantised:
    """`periods` in ns, in the order given; every one divides `perimeter` (their common multiple)."""

    periods: tuple[int, ...]
    perimeter: int


def quantise(
    periods: Sequence[int], *, hold: float = 1.0, tolerance: float = 0.02, stretch: float = 0.0
) -> Quantised | None:
    """Periods (ns) raised to at least `hold` and at most 1 + `tolerance` times, with a small LCM.

    The perimeter is the smallest multiple of the longest period, at most LONGEST times it, that all
    can divide; None if there is none, or if a period holds another more than REPEATS times. Periods
    whose LCM is small already only grow by `hold`. `stretch` in [0, 1] goes from the smallest to the
    largest perimeter of that shape: a little more time may be what full compatibility needs. Unequal
    periods rarely fit otherwise, since two full-rate jobs need up1 + up2 <= gcd(T1, T2).
    """
    if not periods or min(periods) <= 0:
        raise ValueError("periods must be positive")
    low = [math.ceil(t * hold) for t in periods]
    high = [math.floor(t * (1 + tolerance)) for t in periods]
    if any(a > b for a, b in zip(low, high, strict=True)):
        raise ValueError("hold must not exceed 1 + tolerance")
    longest = max(periods)
    if longest > REPEATS * min(periods):
        return None
    exact = math.lcm(*periods)
    if exact <= min(LONGEST * longest, REPEATS * min(periods)):
        repeats = [exact // t for t in periods]
        return _fit(repeats, low, high, stretch)
    top = periods.index(longest)
    for laps in range(1, LONGEST + 1):
        best: list[int] | None = None
        span = range(laps * low[top], laps * high[top] + 1)
        # The smallest perimeter that suits everyone is some job's lower end.
        starts = {span.start} | {
            k * a for a in low for k in range(-(-span.start // a), (span.stop - 1) // a + 1)
        }
        for perimeter in sorted(starts):
            repeats = [perimeter // a for a in low]
            if all(k and perimeter <= k * b for k, b in zip(repeats, high, strict=True)):
                best = repeats
                break
        if best is not None and max(best) <= REPEATS:
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
