# SPDX-License-Identifier: Apache-2.0
"""The unified circle of a link and its compatibility score (CASSINI thesis, 4.3, Table 4.1).

Demands are piecewise constant, so nothing is sampled. Scores are integrated exactly. The excess as a function
of one job's shift is piecewise linear, with corners where edges of phases meet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from controller.model import Phase

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_MOST_RATES = 20_000
"""`random_score` keeps at most this many different rates apart. Chosen: bounds time and memory."""
_RATE_STEPS = 1_000
"""Beyond _MOST_RATES, rates are rounded to this part of the capacity. Chosen: an error of at most 0.1 %."""
_MANY_LAPS = 100
"""From this many phases on, arrays replace a dictionary. Chosen: they are faster there."""


@dataclass(frozen=True, slots=True)
class SharedLink:
    """A directed link and the demand of each job on it: phases with the job's total rate on this link.

    The demand of a job at time t is that of its phase at (t - shift) mod period.
    """

    name: tuple[str, str]
    rate_bps: int
    demands: Mapping[str, tuple[Phase, ...]]


@dataclass(frozen=True, slots=True)
class CircleDemand:
    """The total demand over one perimeter: `rate[i]` in bit/s on [edges[i], edges[i + 1]) ns."""

    edges: Ints
    rate: Floats

    @property
    def widths(self) -> Ints:
        """The lengths of the pieces in ns."""
        return np.diff(self.edges)


def perimeter(periods: Sequence[int]) -> int:
    """The perimeter of the unified circle in ns: the least common multiple of the jobs' periods."""
    return math.lcm(*periods)


def overlay(
    jobs: Sequence[tuple[Sequence[Phase], int, int]], length: int, *, edges: Sequence[int] = ()
) -> CircleDemand:
    """The sum of the demands of jobs, given as (phases, period, shift) in ns, over a circle of `length` ns.

    Every period must divide `length`. `edges` adds break points.
    """
    if sum(length // period * len(phases) for phases, period, _ in jobs) > _MANY_LAPS:
        return _overlay_long(jobs, length, edges)
    step: dict[int, int] = dict.fromkeys((0, *edges), 0)
    base = 0
    for phases, period, shift in jobs:
        for p in phases:
            start, end = (p.start_ns + shift) % period, (p.end_ns + shift) % period
            if start >= end:
                # The phase contains the origin of the circle, or fills the whole period (start == end).
                base += p.rate_bps
            if start != end:
                for lap in range(0, length, period):
                    step[lap + start] = step.get(lap + start, 0) + p.rate_bps
                    step[lap + end] = step.get(lap + end, 0) - p.rate_bps
    cuts = sorted(step)
    rate = accumulate((step[t] for t in cuts), initial=base)
    next(rate)
    return CircleDemand(np.array([*cuts, length], dtype=np.int64), np.array(list(rate), dtype=np.float64))


def _overlay_long(
    jobs: Sequence[tuple[Sequence[Phase], int, int]], length: int, edges: Sequence[int]
) -> CircleDemand:
    """The same as `overlay`, by arrays: faster if there are hundreds of edges."""
    at: list[Ints] = [np.array((0, *edges), dtype=np.int64)]
    step: list[Floats] = [np.zeros(len(at[0]))]
    base = 0
    for phases, period, shift in jobs:
        laps = np.arange(0, length, period, dtype=np.int64)
        for p in phases:
            start, end = (p.start_ns + shift) % period, (p.end_ns + shift) % period
            if start >= end:
                base += p.rate_bps
            if start != end:
                at += [laps + start, laps + end]
                step += [np.full(len(laps), float(p.rate_bps)), np.full(len(laps), -float(p.rate_bps))]
    cuts, where = np.unique(np.concatenate(at), return_inverse=True)
    change = np.bincount(where, weights=np.concatenate(step)).astype(np.float64)
    return CircleDemand(np.append(cuts, length), base + np.cumsum(change))


def excess_rate(rate: Floats, rate_bps: int, slack: float = 0.0) -> Floats:
    """Excess(demand) of equation 4.1: demand - capacity where the demand is above capacity * (1 + slack)."""
    excess: Floats = np.where(rate > rate_bps * (1 + slack), rate - rate_bps, 0.0)
    return excess


def demand(link: SharedLink, periods: Mapping[str, int], shifts: Mapping[str, int]) -> CircleDemand:
    """The total demand on a link's unified circle for the given shifts (ns)."""
    jobs = [(phases, periods[job], shifts.get(job, 0)) for job, phases in link.demands.items()]
    return overlay(jobs, perimeter([periods[j] for j in link.demands]))


def score(
    link: SharedLink, periods: Mapping[str, int], shifts: Mapping[str, int], *, slack: float = 0.0
) -> float:
    """The compatibility score, 1 - mean excess / capacity, integrated exactly over the circle.

    It may be negative. With `slack`, demand up to (1 + slack) times the capacity is no excess.
    """
    total = demand(link, periods, shifts)
    excess = excess_rate(total.rate, link.rate_bps, slack)
    return 1 - float(excess @ total.widths) / float(total.edges[-1]) / link.rate_bps


def random_score(
    link: SharedLink,
    periods: Mapping[str, int],
    groups_in_step: Sequence[Mapping[str, int]] = (),
    *,
    slack: float = 0.0,
) -> float:
    """The expected score if only some jobs keep their shifts.

    Each of `groups_in_step` maps jobs to shifts (ns) and keeps step as a whole. Every other job, and every
    such group, is at a uniformly random and independent position on the circle: the distributions of their
    demands are convolved.
    """
    in_step = {job for group in groups_in_step for job in group}
    groups = [
        [(phases, periods[j], g[j]) for j, phases in link.demands.items() if j in g] for g in groups_in_step
    ]
    groups += [[(phases, periods[j], 0)] for j, phases in link.demands.items() if j not in in_step]
    rates: Floats = np.zeros(1)
    odds: Floats = np.ones(1)
    for group in groups:
        if not group:
            continue
        part = overlay(group, perimeter([period for _, period, _ in group]))
        rates = (rates[:, None] + part.rate[None, :]).ravel()
        odds = (odds[:, None] * (part.widths / part.edges[-1])[None, :]).ravel()
        if len(rates) > _MOST_RATES:
            rates = np.round(rates / link.rate_bps * _RATE_STEPS) * (link.rate_bps / _RATE_STEPS)
        rates, where = np.unique(rates, return_inverse=True)
        odds = np.bincount(where, weights=odds).astype(np.float64)
    return 1 - float(excess_rate(rates, link.rate_bps, slack) @ odds) / link.rate_bps


def sweep(
    link: SharedLink,
    job: str,
    periods: Mapping[str, int],
    shifts: Mapping[str, int],
    *,
    slack: float = 0.0,
    capacity: int | None = None,
) -> tuple[Ints, Floats]:
    """The mean excess divided by the capacity for every position of one job, with the others fixed at
    `shifts`.

    Returns the corners, which are sorted shifts of the job in [0, period) ns, and the value at each. Between
    corners the function is linear, and it wraps around. Jobs that are not in `shifts` are left out.
    `capacity` replaces the link's rate as the threshold.
    """
    rate_bps = link.rate_bps if capacity is None else capacity
    period = periods[job]
    others = [(p, periods[j], shifts[j]) for j, p in link.demands.items() if j != job and j in shifts]
    length = perimeter([period, *(t for _, t, _ in others)])
    rest = overlay(others, length, edges=range(0, length, period))
    already = excess_rate(rest.rate, rate_bps, slack)
    phases = link.demands[job]
    folded = np.unique(rest.edges % period)
    ends = np.array([(p.start_ns, p.end_ns) for p in phases], dtype=np.int64).reshape(-1, 2)
    corners = np.unique((folded[:, None] - ends.ravel()[None, :]) % period)
    if not len(corners):
        corners = np.zeros(1, dtype=np.int64)
    value = np.full(len(corners), float(already @ rest.widths))
    grid = np.append(folded, period)
    laps = np.arange(0, length, period, dtype=np.int64)
    for (begin, end), phase in zip(ends, phases, strict=True):
        more = excess_rate(rest.rate + phase.rate_bps, rate_bps, slack) - already
        running = np.concatenate(([0.0], np.cumsum(more * rest.widths)))
        # Fold the laps of the circle onto one period of the job: F(x) is the added excess in [0, x).
        at = np.interp((laps[:, None] + grid[None, :]).ravel(), rest.edges, running)
        fold = (at.reshape(len(laps), -1) - np.interp(laps, rest.edges, running)[:, None]).sum(axis=0)

        def through(t: Ints, fold: Floats = fold) -> Floats:
            laps_done, inside = np.divmod(t, period)
            reached: Floats = laps_done * fold[-1] + np.interp(inside, grid, fold)
            return reached

        value = value + through(corners + end) - through(corners + begin)
    return corners, np.maximum(value, 0.0) / length / link.rate_bps
