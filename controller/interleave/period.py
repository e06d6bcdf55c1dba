# SPDX-License-Identifier: Apache-2.0
"""Quantised periods: made slightly longer, so that the jobs repeat together after few iterations."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

LONGEST = 20
"""The perimeter in multiples of the longest period, at most. Chosen: a longer circle has too many edges."""
REPEATS = 1_000
"""How often a period may be contained in the longest one. Chosen: as LONGEST, and because an
evaluation of slots cannot be shortened."""
_TOLERANCES = (0.005, 0.01, 0.02, 0.05)
"""By how much periods may grow; the smallest tolerance that works is preferred. Chosen."""
_STRETCHES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Positions between the smallest and the largest perimeter that are tried. Chosen: quarters."""
_MOST_REPEATS = 50_000
"""The limit of `repeats` in files. Chosen: bounds the number of edges of a circle."""
_MULTIPLES = 512
"""Multiples of each period that are tried as the perimeter. Chosen: bounds the work."""
_RICH = (720, 5_040, 50_400, 720_720, 7_207_200, 73_513_440, 735_134_400, 6_983_776_800)
"""Highly composite numbers: each has more divisors than every smaller number."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """`periods` in ns, in the given order. Each of them divides `perimeter`."""

    periods: tuple[int, ...]
    perimeter: int

    def errors(self, measured: Sequence[int]) -> tuple[float, ...]:
        """How much longer than the job's own each period is, as a fraction of its own."""
        return tuple(long / own - 1 for long, own in zip(self.periods, measured, strict=True))


def quantise(
    periods: Sequence[int],
    *,
    min_stretch: float = 1.0,
    tolerance: float = 0.02,
    stretch: float = 0.0,
    repeats: int = REPEATS,
) -> Quantised | None:
    """Periods (ns) made longer by a factor from `min_stretch` to 1 + `tolerance`, with a small common
    multiple.

    The perimeter is the smallest multiple of the longest period, at most LONGEST times it, that all periods
    can divide. None if there is none, or if a period contains another more than `repeats` times. Periods
    whose common multiple is small already grow by `min_stretch` only. `stretch` in [0, 1] goes from the
    smallest to the largest perimeter of that kind: full compatibility may need a little more time. Unequal
    periods rarely fit otherwise, because two jobs at full rate need up1 + up2 <= gcd(T1, T2). Raises
    ValueError for periods that are not positive.
    """
    if not periods or min(periods) <= 0:
        raise ValueError("periods must be positive")
    low = [math.ceil(t * min_stretch) for t in periods]
    high = [math.floor(t * (1 + tolerance)) for t in periods]
    if any(a > b for a, b in zip(low, high, strict=True)):
        raise ValueError("min_stretch must not exceed 1 + tolerance")
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
        # The smallest perimeter that suits all jobs is the lower limit of some job.
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
    """The perimeter for these numbers of repeats, such that every period is a whole number of ns."""
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
    """Candidates for the quantisation of periods (ns) that cannot stay as they are, smallest increase first.

    Never empty: if no perimeter within a tolerance suits all, `smooth` gives one.
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
    """Periods (ns) made longer so that all of them divide a perimeter of about `laps` times the longest.

    Each period repeats a divisor of one highly composite number. If the numbers of repeats are at least ten,
    and the shortest period is at least 1 ms, such divisors are at most an eighth apart. So no period grows by
    more than that plus 1 %.
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
    """Whether periods may stay as they are: on each link, or in total, they repeat together soon enough."""
    return all(map(_soon, groups)) or _soon([t for periods in groups for t in periods])


def repeating_groups(periods: Mapping[str, int], most: int = LONGEST) -> list[list[str]]:
    """The jobs in groups whose periods (ns) meet again within `most` times the longest of the group. Each job
    joins the first group that it suits, those with the longest periods first.

    Only such jobs have a circle: of periods like 161,349,414 and 164,247,747 ns the common multiple is
    millions of laps away.
    """
    groups: list[tuple[list[str], set[int]]] = []
    for job in sorted(periods, key=lambda job: -periods[job]):
        names, of_group = next((g for g in groups if _soon(g[1] | {periods[job]}, most)), ([], set()))
        if not names:
            groups.append((names, of_group))
        names.append(job)
        of_group.add(periods[job])
    return [names for names, _ in groups]


def _soon(periods: Collection[int], most: int = LONGEST) -> bool:
    return math.lcm(*periods) <= most * max(periods, default=1)
