# SPDX-License-Identifier: Apache-2.0
"""Whether jobs can share a link in time, with the thresholds and weights that follow from the answer.

Three questions are asked of a link. `contended`: can the demands exceed it at all? `pair_fits`: are there
shifts at which two jobs do not exceed it? `overlapping`: which jobs exceed it together at given shifts?
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np

from controller.interleave.circle import SharedLink, demand, excess_rate, overlay
from controller.interleave.period import quantise
from controller.interleave.rotate import rotate
from controller.model import Phase

SLACK = 0.02
"""The part of a link's capacity by which demand may exceed it before the demand counts as excess. Chosen: a
measured rate is uncertain by about as much."""
SLOT_SCORE = 0.999
"""The least compatibility score at which jobs are scheduled to slots. Chosen close to 1: a scheduled job that
still overlaps with another one misses its slot now and then, and then waits for a whole period. That costs
more than sharing the link in time gains."""
PAIR_SCORE = 0.99
"""The least score at which two jobs count as able to share a link in time while paths are chosen. Chosen
lower than SLOT_SCORE: the estimate is made before the shifts of the other jobs on the link are known."""
OVERLAP_TOLERANCE = 0.005
"""The part of the perimeter for which two jobs may exceed a link together without counting as overlapping.
Chosen: shorter overlaps are within the error of measured phases."""
ROUTING_WEIGHT = 0.5
"""The cost of a link that is shared with a job of compatible phases, when the routing stage chooses paths.

Sharing with a job whose phases are not compatible costs 1. Chosen: the routing stage decides before the
shifts are known, so a compatible pair may still not be scheduled."""
SEARCH_WEIGHT = 0.15
"""The same cost when the plan search arranges paths. Chosen lower than ROUTING_WEIGHT: the search evaluates
each plan with its shifts afterwards, so a wrong estimate costs one evaluation only."""

_PAIRS_KEPT = 1 << 14
"""Pairs of profiles whose fit is remembered. Chosen: more than those of 128 jobs, which stay from plan to
plan."""


def contended(link: SharedLink, slack: float) -> bool:
    """Whether several jobs use the link and their peak rates together exceed it by more than `slack`."""
    peak = sum(max((p.rate_bps for p in phases), default=0) for phases in link.demands.values())
    return len(link.demands) > 1 and peak > link.rate_bps * (1 + slack)


def pair_fits(
    demands: Mapping[str, tuple[Phase, ...]], periods: Mapping[str, int], slack: float = SLACK
) -> bool:
    """Whether two jobs can take turns on a link that is as fast as the higher of their peak rates.

    `demands` are the phases and `periods` (ns) the periods of the two jobs, both by job. False where the
    periods cannot be quantised to a common perimeter.
    """
    (a, first), (b, second) = demands.items()
    return _phases_fit(first, periods[a], second, periods[b], slack)


@lru_cache(maxsize=_PAIRS_KEPT)
def _phases_fit(
    first: tuple[Phase, ...], period: int, second: tuple[Phase, ...], other: int, slack: float
) -> bool:
    """`pair_fits` of two jobs with these phases and periods. Many pairs of jobs are alike."""
    fitted = quantise([period, other])
    if fitted is None:
        return False
    peak = max(p.rate_bps for p in (*first, *second))
    demands = {"a": first, "b": second}
    if mean_demand(demands, dict(zip(demands, fitted.periods, strict=True))) > peak * (
        2 + slack - PAIR_SCORE
    ):
        return False
    link = SharedLink(("", ""), peak, demands)
    if 1 - unavoidable_loss(link, dict(zip(demands, fitted.periods, strict=True)), slack) < PAIR_SCORE:
        return False
    return 1 - rotate([link], dict(zip(demands, fitted.periods, strict=True)), slack=slack).loss >= PAIR_SCORE


def mean_demand(demands: Mapping[str, tuple[Phase, ...]], periods: Mapping[str, int]) -> float:
    """What the jobs send on average, in bit/s: no shifts fit where this exceeds the link."""
    return sum(
        p.rate_bps * (p.end_ns - p.start_ns) / periods[job] for job, phases in demands.items() for p in phases
    )


def unavoidable_loss(link: SharedLink, periods: Mapping[str, int], slack: float) -> float:
    """What a link loses (1 - score) at least, whatever the shifts are, because of its worst pair of jobs.

    An Up phase as long as one or more periods (ns) of another job meets everything that this job sends in
    them. This takes no search, which would be long for just these jobs.
    """
    worst = 0.0
    for (a, first), (b, second) in permutations(link.demands.items(), 2):
        lost = 0
        for p in first:
            laps = (p.end_ns - p.start_ns) // periods[b]
            for q in second if laps else ():
                both = p.rate_bps + q.rate_bps
                if both > link.rate_bps * (1 + slack):
                    lost += laps * (q.end_ns - q.start_ns) * (both - link.rate_bps)
        worst = max(worst, lost / periods[a] / link.rate_bps)
    return worst


def overlapping(
    link: SharedLink,
    periods: Mapping[str, int],
    shifts: Mapping[str, int],
    *,
    slack: float = 0.0,
    tolerance: float = OVERLAP_TOLERANCE,
) -> frozenset[tuple[str, str]]:
    """The pairs of jobs (sorted by name) that both send at these shifts (ns) while the demand exceeds the
    link.

    A pair that overlaps for less than `tolerance` times the perimeter is left out.
    """
    total = demand(link, periods, shifts)
    length, marks = int(total.edges[-1]), total.edges[:-1].tolist()
    over = excess_rate(total.rate, link.rate_bps, slack) > 0
    time = np.where(over, total.widths, 0)
    sends = {
        job: overlay([(phases, periods[job], shifts[job])], length, edges=marks).rate > 0
        for job, phases in link.demands.items()
    }
    return frozenset(
        (a, b)
        for a, b in combinations(sorted(sends), 2)
        if float(time @ (sends[a] & sends[b])) > tolerance * length
    )
