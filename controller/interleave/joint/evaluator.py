# SPDX-License-Identifier: Apache-2.0
"""The one judge of all candidates: GPU utilisation by the fluid, under several seeds of jitter."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from controller.interleave.joint.fluid import Floats, fluid_arrays, plain_lengths, salt_of, start_of
from controller.interleave.joint.instance import Choice, Instance
from controller.interleave.joint.sharing_groups import Sharing, SharingGroup, sharing_groups_of, sharing_of
from controller.kernel import KernelsUnavailableError, available

_MOST_BEGUN = 20_000
"""Iterations of a part, all jobs together, that are computed at most for one seed."""
_MOST_STREAMED = 2_000_000
"""The same times the streams that each event looks at."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How closely to look: the `seeds` of jitter and starts, and for how many `iterations` of the longest
    job of a part."""

    seeds: tuple[int, ...]
    iterations: int


@dataclass
class Evaluator:
    """Judges choices for one instance. Parts that have been seen are not computed again.

    `spent` is the search's measure of work: the iterations that were computed, seed by seed, those of parts
    with many streams or with MLTCP's changing weights counted several times, as they take.
    `plain` keeps to the plain reference; else the kernel is taken where Numba is installed.
    """

    instance: Instance
    plain: bool = False
    work_done: int = 0
    _known: dict[tuple[SharingGroup, Effort], Floats] = field(default_factory=dict)
    _last: tuple[tuple[int, ...], Sharing] | None = None

    def __post_init__(self) -> None:
        jobs = self.instance.jobs
        self._weight = np.array([p.weight * p.compute_ns for p in jobs], dtype=np.float64)
        self._alone = np.array([max(1, p.alone_ns) for p in jobs], dtype=np.float64)
        self._all = float(sum(p.weight for p in jobs)) or 1.0

    @property
    def bound(self) -> float:
        """The utilisation if no job met another."""
        return float((self._weight / self._alone).sum()) / self._all

    def groups(self, choice: Choice) -> list[SharingGroup]:
        """The independent parts of a choice."""
        if self._last is None or self._last[0] != choice.path_choice:
            self._last = choice.path_choice, sharing_of(self.instance, choice.path_choice)
        return sharing_groups_of(self.instance, choice, self._last[1])

    def lengths(self, choice: Choice, effort: Effort) -> Floats:
        """Every job's mean iteration in ns, shape (seeds, jobs)."""
        found = np.tile(self._alone, (len(effort.seeds), 1))
        for group in self.groups(choice):
            if not group.undisturbed:
                found[:, list(group.jobs)] = self.of_group(group, effort)
        return found

    def utilisation(self, choice: Choice, effort: Effort) -> Floats:
        """GPU utilisation, 0 to 1, by seed."""
        return self.used(self.lengths(choice, effort))

    def used(self, lengths: Floats) -> Floats:
        """The utilisation that iterations of these lengths make."""
        result: Floats = (self._weight / lengths).sum(axis=1) / self._all
        return result

    def of_group(self, group: SharingGroup, effort: Effort) -> Floats:
        """Mean iterations of a part's jobs in ns, shape (seeds, jobs)."""
        key = group, effort
        if key not in self._known:
            self._known[key] = self._compute(group, effort)
        return self._known[key]

    def lost(self, group: SharingGroup, effort: Effort) -> float:
        """What a part costs in utilisation, against its jobs being alone."""
        jobs = list(group.jobs)
        if group.undisturbed:
            return 0.0
        got = (self._weight[jobs] / self.of_group(group, effort)).sum(axis=1).mean()
        return float((self._weight[jobs] / self._alone[jobs]).sum() - got) / self._all

    def cost(self, choice: Choice, effort: Effort) -> int:
        """What a look at a choice would add to `spent`, if nothing of it were known."""
        return sum(self._span(p, effort)[1] for p in self.groups(choice) if not p.undisturbed)

    def _span(self, group: SharingGroup, effort: Effort) -> tuple[float, int]:
        """How long a part is played, in ns, and what that adds to `spent`."""
        own = [max(float(self._alone[j]), r[0]) for j, r in zip(group.jobs, group.timings, strict=True)]
        begun = sum(max(own) / t for t in own)
        most = min(_MOST_BEGUN, _MOST_STREAMED / max(1, len(group.streams)))
        horizon = max(own) * min(effort.iterations, max(8.0, most / begun))
        each = (1 + len(group.streams) / 16) * (4 if any(group.mltcp) else 1)
        return horizon, round(len(effort.seeds) * horizon / max(own) * begun * each)

    def _compute(self, group: SharingGroup, effort: Effort) -> Floats:
        horizon, work = self._span(group, effort)
        self.work_done += work
        arrays = fluid_arrays(self.instance, group)
        alone = [float(self._alone[j]) for j in group.jobs]
        compiled = None if self.plain else _compiled()
        if compiled is None:
            return plain_lengths(arrays, group.jobs, effort.seeds, alone, horizon)
        salts = np.array([[salt_of(seed, j) for j in group.jobs] for seed in effort.seeds])
        starts = np.array(
            [[start_of(s, j, t) for j, t in zip(group.jobs, alone, strict=True)] for s in effort.seeds]
        )
        found: Floats = compiled(arrays, salts, starts, horizon)
        return found


@cache
def _compiled():  # type: ignore[no-untyped-def]
    """The kernel; None without Numba."""
    if not available():
        return None
    try:
        from controller.interleave.joint.kernel import fast_lengths
    except KernelsUnavailableError:
        return None
    return fast_lengths


def better(ours: Floats, theirs: Floats, margin: float) -> bool:
    """Whether one utilisation (by seed) is above another by `margin` of it, and by more than its mean is
    unsure. How much theirs differs by seed is no reason to keep it: it may be a rhythm that falls apart."""
    spread = float(ours.std(ddof=1)) / len(ours) ** 0.5 if len(ours) > 1 else 0.0
    return float(ours.mean() - theirs.mean()) > max(margin * float(theirs.mean()), spread)
