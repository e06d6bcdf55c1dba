# SPDX-License-Identifier: Apache-2.0
"""The evaluator of all plans: GPU utilisation in the fluid model, under several seeds of jitter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module

import numpy as np

from controller.interleave.joint.fluid import Between, nothing, plain_lengths, salt_of, start_of
from controller.interleave.joint.fluid_arrays import Floats, fluid_arrays
from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance
from controller.interleave.joint.known_groups import KNOWN, key_of
from controller.interleave.joint.sharing_groups import (
    MadeGroups,
    Sharing,
    SharingGroup,
    sharing_groups_of,
    sharing_of,
)
from controller.interleave.joint.time_scales import shortening
from controller.kernel import KernelsUnavailableError, available

_KERNEL = "controller.interleave.joint.kernel"
_LITTLE_WORK = 2_500
"""Up to this work, in the unit of `Evaluator.work_done`, the plain loops take less time than loading the
compiled ones does. Measured: about 0.1 ms a unit, and half a second."""
_MOST_BEGUN = 20_000
"""The most iterations of a group, all jobs together, that are computed for one seed. Chosen: a few tenths of
a second."""
_MOST_STREAMED = 2_000_000
"""The same, multiplied by the number of streams, because each event visits all of them."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How closely to evaluate.

    `seeds` are those of jitter and start times. Each group is simulated for `iterations` iterations of its
    longest job. Each Up phase is `longer` by this part of itself, and the compute after it shorter.
    """

    seeds: tuple[int, ...]
    iterations: int
    longer: float = 0.0

    def within(self, work: int, cost: int, least: int) -> Effort:
        """The same with fewer iterations, but at least `least`, where its `cost` is more than `work`."""
        affordable = self.iterations * work // max(1, cost)
        return replace(self, iterations=min(self.iterations, max(least, affordable)))


@dataclass(frozen=True, slots=True)
class _Span:
    """What is simulated of a group: `horizon` ns, with the phases of each job shortened by its factor. `work`
    is what that adds to `Evaluator.work_done`."""

    horizon: float
    shortening: tuple[float, ...]
    work: int


@dataclass
class Evaluator:
    """Evaluates choices for one instance. Groups that were evaluated before are not computed again.

    `work_done` measures the work of the search: the number of iterations computed, over all seeds. Iterations
    of groups with many streams, or with MLTCP's changing weights, count several times, because they take
    longer. Where Numba is installed, the compiled kernel computes all but the first little work; it gives the
    same results to the last bit. Groups that were computed for another instance are not computed again, but
    count as work all the same: what a search finds does not depend on what was planned before. `plain` uses
    the plain reference for everything, and computes all of it.
    """

    instance: Instance
    plain: bool = False
    work_done: int = 0
    _known: dict[tuple[SharingGroup, Effort], Floats] = field(default_factory=dict)
    _last: tuple[tuple[int, ...], Sharing, MadeGroups] | None = None

    def __post_init__(self) -> None:
        jobs = self.instance.jobs
        self._weight = np.array([p.weight * p.compute_ns for p in jobs], dtype=np.float64)
        self._alone = np.array([max(1, p.alone_ns) for p in jobs], dtype=np.float64)
        self._all = float(sum(p.weight for p in jobs)) or 1.0

    @property
    def bound(self) -> float:
        """The utilisation if no job shared a link with another."""
        return float((self._weight / self._alone).sum()) / self._all

    def groups(self, choice: Choice) -> list[SharingGroup]:
        """The independent groups of a choice."""
        return sharing_groups_of(self.instance, choice, *self._on_paths(choice.path_choice))

    def sharing(self, path_choice: tuple[int, ...]) -> Sharing:
        """Which jobs share full links on these paths."""
        return self._on_paths(path_choice)[0]

    def _on_paths(self, path_choice: tuple[int, ...]) -> tuple[Sharing, MadeGroups]:
        if self._last is None or self._last[0] != path_choice:
            self._last = path_choice, sharing_of(self.instance, path_choice), {}
        return self._last[1:]

    def lengths(self, choice: Choice, effort: Effort, between: Between = nothing) -> Floats:
        """The mean length of each job's iterations in ns, shape (seeds, jobs). `between` is called every few
        milliseconds, and may raise."""
        found = np.tile(self._alone, (len(effort.seeds), 1))
        for group in self.groups(choice):
            if not group.undisturbed:
                found[:, list(group.jobs)] = self.of_group(group, effort, between)
        return found

    def utilisation(self, choice: Choice, effort: Effort) -> Floats:
        """GPU utilisation, 0 to 1, by seed."""
        return self.used(self.lengths(choice, effort))

    def used(self, lengths: Floats) -> Floats:
        """The GPU utilisation that results from iterations of these lengths, by seed."""
        result: Floats = (self._weight / lengths).sum(axis=1) / self._all
        return result

    def of_group(self, group: SharingGroup, effort: Effort, between: Between = nothing) -> Floats:
        """The mean length of the iterations of a group's jobs in ns, shape (seeds, jobs). `between`: see
        `lengths`."""
        key = group, effort
        if key not in self._known:
            self._known[key] = self._compute(group, effort, between)
        return self._known[key]

    def lost(self, group: SharingGroup, effort: Effort) -> float:
        """The utilisation that a group loses because its jobs share links."""
        jobs = list(group.jobs)
        if group.undisturbed:
            return 0.0
        got = (self._weight[jobs] / self.of_group(group, effort)).sum(axis=1).mean()
        return float((self._weight[jobs] / self._alone[jobs]).sum() - got) / self._all

    def cost(self, choice: Choice, effort: Effort) -> int:
        """What evaluating a choice would add to `work_done` if no group of it were known."""
        return sum(self._span(p, effort).work for p in self.groups(choice) if not p.undisturbed)

    def _span(self, group: SharingGroup, effort: Effort) -> _Span:
        """For how long a group is simulated. Jobs that are far slower than others are shortened."""
        full = [max(float(self._alone[j]), r[0]) for j, r in zip(group.jobs, group.timings, strict=True)]
        factors = shortening(full, [r != UNSCHEDULED for r in group.timings])
        own = [factor * length for factor, length in zip(factors, full, strict=True)]
        begun = sum(max(own) / t for t in own)
        most = min(_MOST_BEGUN, _MOST_STREAMED / max(1, len(group.streams)))
        horizon = max(own) * min(effort.iterations, max(8.0, most / begun))
        each = (1 + len(group.streams) / 16) * (4 if any(group.mltcp) else 1)
        work = round(len(effort.seeds) * horizon / max(own) * begun * each)
        return _Span(horizon, tuple(factors), work)

    @property
    def _little(self) -> bool:
        """Whether so little was computed that loading the kernel, if no one has, would take longer."""
        return self.work_done <= _LITTLE_WORK and _KERNEL not in sys.modules

    def _compute(self, group: SharingGroup, effort: Effort, between: Between) -> Floats:
        span = self._span(group, effort)
        self.work_done += span.work
        arrays = fluid_arrays(self.instance, group, span.shortening, effort.longer)
        alone = [float(self._alone[j]) * f for j, f in zip(group.jobs, span.shortening, strict=True)]
        factors = np.array(span.shortening)
        result: Floats
        if self.plain:
            result = plain_lengths(arrays, group.jobs, effort.seeds, alone, span.horizon, between) / factors
            return result
        salts = np.array([[salt_of(seed, j) for j in group.jobs] for seed in effort.seeds])
        starts = np.array(
            [[start_of(s, j, t) for j, t in zip(group.jobs, alone, strict=True)] for s in effort.seeds]
        )
        key = key_of(arrays, salts, starts, span.horizon)
        known = KNOWN.get(key)
        if known is None:
            compiled = None if self._little else _compiled()
            if compiled is None:
                known = plain_lengths(arrays, group.jobs, effort.seeds, alone, span.horizon, between)
            else:
                known = compiled(arrays, salts, starts, span.horizon, between)
            KNOWN.keep(key, known)
        result = known / factors
        return result


def _compiled() -> Callable[..., Floats] | None:
    """The compiled kernel, or None where kernels are not used."""
    if not available():
        return None
    try:
        found: Callable[..., Floats] = import_module(_KERNEL).fast_lengths
    except KernelsUnavailableError:
        return None
    return found


def better(ours: Floats, theirs: Floats, margin: float) -> bool:
    """Whether the utilisation `ours` (by seed) is better than `theirs` by more than `margin` of `theirs`.

    The difference must also exceed the standard error of our mean. The spread of `theirs` is no reason to
    keep it: a large spread may mean a schedule that does not last.
    """
    spread = float(ours.std(ddof=1)) / len(ours) ** 0.5 if len(ours) > 1 else 0.0
    return float(ours.mean() - theirs.mean()) > max(margin * float(theirs.mean()), spread)
