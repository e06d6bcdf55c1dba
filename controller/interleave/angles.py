# SPDX-License-Identifier: Apache-2.0
"""Circles in degrees: demand by angle, rotation angles, and Table 4.1 of the thesis as it is printed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from controller.interleave.circle import Floats, SharedLink, demand, perimeter

DEGREES = 360.0


def angle_count(step_deg: float) -> int:
    """|A|, the number of discrete angles. Raises ValueError if the step does not divide 360 degrees."""
    count = round(DEGREES / step_deg) if step_deg > 0 else 0
    if not 1 <= count <= 36_000 or abs(count * step_deg - DEGREES) > 1e-6:
        raise ValueError(f"an angle step divides 360 degrees and is from 0.01 to 360, not {step_deg:g}")
    return count


def rotation_deg(shift_ns: int, period_ns: int, perimeter_ns: int) -> float:
    """A shift as an angle of the unified circle, within the first iteration of the job (equation 4.4)."""
    return DEGREES * (shift_ns % period_ns) / perimeter_ns


def demand_by_angle(
    link: SharedLink, periods: Mapping[str, int], shifts: Mapping[str, int], step_deg: float
) -> Floats:
    """The demand in bit/s at the angles 0, `step_deg`, ... of a link's circle (equation 4.3)."""
    total = demand(link, periods, shifts)
    around, count = int(total.edges[-1]), angle_count(step_deg)
    # Edges are whole ns and pieces exclude their end, so rounding a time down to whole ns changes nothing.
    times = np.array([k * around // count for k in range(count)], dtype=np.int64)
    found: Floats = total.rate[np.searchsorted(total.edges, times, side="right") - 1]
    return found


def enumerate_angles(
    link: SharedLink, periods: Mapping[str, int], step_deg: float
) -> tuple[float, dict[str, int]]:
    """The best score and shifts (ns) over all rotations by whole steps, by plain enumeration.

    Demand is sampled at the angles, as in Table 4.1. The result is exact if all phases begin and end on
    angles. The benchmark compares the search with it. It takes |A| to the power of the number of jobs.
    """
    around, count = perimeter([periods[j] for j in link.demands]), angle_count(step_deg)
    jobs = list(link.demands)
    sampled = []
    steps = []
    for job in jobs:
        own, row = periods[job], []
        for k in range(count):
            at = k * around // count % own
            row.append(sum(p.rate_bps for p in link.demands[job] if p.start_ns <= at < p.end_ns))
        sampled.append(row)
        steps.append(range(max(1, -(-count * own // around))))
    best, chosen = -float("inf"), tuple(0 for _ in jobs)
    for rotation in product(range(1), *steps[1:]):
        excess = 0
        for k in range(count):
            total = 0
            for row, step in zip(sampled, rotation, strict=True):
                total += row[k - step]
            if total > link.rate_bps:
                excess += total - link.rate_bps
        score = 1 - excess / count / link.rate_bps
        if score > best:
            best, chosen = score, rotation
    return best, {job: step * around // count for job, step in zip(jobs, chosen, strict=True)}
