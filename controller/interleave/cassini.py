# SPDX-License-Identifier: Apache-2.0
"""CASSINI as published: shift every job of a full link once, or no job if there is a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.interleave.affinity import Alignment, LinkFit, components
from controller.interleave.circle import SharedLink, score
from controller.interleave.link_arrays import group_identical_links
from controller.interleave.link_sharing import SLACK, SLOT_SCORE, contended
from controller.interleave.previous_slots import GroupTiming, keep_previous
from controller.interleave.slot_schedule import JobSlot, SlotSchedule
from controller.interleave.solve import Interleaving, TooFineError, interleave

_DRIFTS = 1.0
"""A drift threshold of a whole period: the agents never align the job again."""


class DiscardedError(ValueError):
    """A placement that CASSINI discards, with the reason."""


def has_loop(links: Sequence[SharedLink]) -> bool:
    """Whether the affinity graph of these links has a loop. Identical links count as one."""
    for part in components(links):
        vertices = group_identical_links(part)
        jobs = {j for link in part for j in link.demands}
        if sum(len(alike[0].demands) for alike in vertices) >= len(jobs) + len(vertices):
            return True
    return False


def unique_shifts(links: Sequence[SharedLink], periods: Mapping[str, int], *, seed: int = 0) -> Interleaving:
    """Quantised periods (ns) and Algorithm 1's shifts for the jobs on `links`, whatever the score.

    Thesis, 4.3 and 4.4; Algorithm 2, lines 13 to 26. `periods` are the jobs' own. Raises DiscardedError if
    there is a loop, or if a circle would have too many edges.
    """
    if has_loop(links):
        raise DiscardedError("CASSINI discards the placement: its affinity graph has a loop")
    named = {j: p for j, p in periods.items() if any(j in k.demands for k in links)}
    try:
        return interleave(links, named, seed=seed, fast=False)
    except TooFineError as error:
        raise DiscardedError(str(error)) from error


def shift_once(
    links: Sequence[SharedLink],
    periods: Mapping[str, int],
    *,
    previous: Mapping[str, tuple[int, int]] | None = None,
    slack: float = SLACK,
    seed: int = 0,
) -> SlotSchedule:
    """The published policy: jobs of contended `links` begin at their shift once, then run at their own pace.

    They are aligned again when they have drifted (4.4.2, step 3). If the best score of a connected part is
    below SLOT_SCORE, the iterations of its jobs become longer than their profiles by the excess of the links.
    Against the period of the profile they would then drift at every iteration, while the thesis reports few
    adjustments (4.5.7). In such a part drift is therefore ignored. `previous` (period, shift) is kept where
    it is as good: jobs that keep step are not shifted again.
    """
    full = [link for link in links if contended(link, slack)]
    jobs = tuple(dict.fromkeys(j for link in full for j in link.demands))
    if not full:
        return SlotSchedule({}, {}, (), ())
    try:
        found = unique_shifts(full, periods, seed=seed)
    except DiscardedError as error:
        return SlotSchedule({}, dict.fromkeys(jobs, str(error)), (), ())
    slots: dict[str, JobSlot] = {}
    fits: list[LinkFit] = []
    best = {c.link.name: c.best_score for c in found.circles}
    for group, part in enumerate(components(full)):
        own = tuple(dict.fromkeys(j for link in part for j in link.demands))
        own_periods = {j: found.periods[j] for j in own}
        own_shifts = {j: found.shifts[j] for j in own}
        scores = (score(k, own_periods, own_shifts, slack=slack) for k in part)
        new = tuple(
            LinkFit(k.name, tuple(k.demands), got, max(got, best[k.name]))
            for k, got in zip(part, scores, strict=True)
        )
        kept = keep_previous(
            part, GroupTiming(own_periods, Alignment(own_shifts, new, ())), periods, previous or {}, slack
        )
        fitting = min(f.score for f in kept.alignment.links) >= SLOT_SCORE
        for j in own:
            slots[j] = JobSlot(
                kept.periods[j],
                kept.alignment.shifts[j],
                group,
                once=True,
                realign=None if fitting else _DRIFTS,
            )
        fits += kept.alignment.links
    return SlotSchedule(slots, {}, tuple(fits), ())
