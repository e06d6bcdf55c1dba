# SPDX-License-Identifier: Apache-2.0
"""Keep the shifts in force where they are as good as new ones, and otherwise change as little as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from controller.interleave.affinity import Alignment, LinkFit
from controller.interleave.circle import SharedLink, score

TOLERANCE = 0.02
"""How much longer than its own the period of a scheduled job may be. Chosen: 2 %, what time-shifts must
gain."""
_KEEP = 0.01
"""The score that new shifts must gain on a link to replace those in force. Chosen: hysteresis."""


@dataclass(frozen=True, slots=True)
class GroupTiming:
    """The periods (ns) of a group of jobs, with the shifts and scores at these periods."""

    periods: Mapping[str, int]
    alignment: Alignment


def keep_previous(
    part: Sequence[SharedLink],
    found: GroupTiming,
    measured: Mapping[str, int],
    previous: Mapping[str, tuple[int, int]],
    slack: float,
) -> GroupTiming:
    """The previous timing (period and shift in ns, by job) if it still fits as well as `found`; otherwise
    `found`.

    The found timing is then rotated as a whole, so that the first job that had a slot before keeps its phase.
    `measured` are the jobs' own periods: a previous period must be as long, or longer by at most TOLERANCE.
    """
    jobs = tuple(found.periods)
    if all(j in previous and _still_holds(previous[j][0], measured[j]) for j in jobs):
        periods = {j: previous[j][0] for j in jobs}
        shifts = {j: previous[j][1] % periods[j] for j in jobs}
        same_steps = all(
            periods[a] * found.periods[b] == periods[b] * found.periods[a] for a, b in pairwise(jobs)
        )
        if same_steps:
            scores = {k.name: score(k, periods, shifts, slack=slack) for k in part}
            if all(scores[f.link] >= f.score - _KEEP for f in found.alignment.links):
                fits = tuple(
                    LinkFit(f.link, f.jobs, scores[f.link], max(f.best_score, scores[f.link]))
                    for f in found.alignment.links
                )
                return GroupTiming(periods, Alignment(shifts, fits, found.alignment.loops))
    anchor = next((j for j in jobs if j in previous), None)
    if anchor is None:
        return found
    rotation = previous[anchor][1] - found.alignment.shifts[anchor]
    rotated = {j: (t + rotation) % found.periods[j] for j, t in found.alignment.shifts.items()}
    return GroupTiming(found.periods, Alignment(rotated, found.alignment.links, found.alignment.loops))


def _still_holds(period: int, measured: int) -> bool:
    return measured * 0.9995 <= period <= measured * (1 + TOLERANCE)
