# SPDX-License-Identifier: Apache-2.0
"""Fairness as an option: no job may lose more than a given part of its throughput (CRUX, section 7.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.priority.compress import compress
from controller.priority.crux import RankedJob, contention
from controller.priority.fluid import fluid_of, progress, usual_horizon
from controller.priority.jobs import LinkJob, Rates, shared_links
from controller.priority.methods import METHODS, LevelAssignment, Setting

_ROUNDS = 60
"""Rounds of each series. Chosen: nearly every series ends earlier."""
_FEWER_LEVELS = 8
"""Plain CRUX is tried on 1 to this many levels. Chosen: a switch has that many queues."""
_GAIN = 2.0
"""How fast a weight grows with the excess: by exp(_GAIN * excess) in a round. Chosen."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The effect of an assignment of levels.

    `utilisation` is the GPU time that is spent computing, as a fraction. By job: `loss`, the part of the
    throughput without contention that the job loses, and `weight`, the factor of its priority.
    """

    utilisation: float
    loss: Mapping[str, float]
    weight: Mapping[str, float]
    level: Mapping[str, int]

    @property
    def worst(self) -> float:
        """The loss of the job that loses most; 0 without jobs."""
        return max(self.loss.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class FairAssignment:
    """The best assignment under the cap, or the one that comes closest to it (`met` says which).

    `frontier` holds the assignments that no other beats in both utilisation and worst loss, smallest worst
    loss first.
    """

    assignment: LevelAssignment
    outcome: Outcome
    met: bool
    frontier: tuple[Outcome, ...]


def evaluate(
    jobs: Sequence[LinkJob], rate_bps: Rates, level: Mapping[str, int], weight: Mapping[str, float]
) -> Outcome:
    """The effect of these levels on these links, under strict priority, if all jobs start together."""
    fluid = fluid_of(jobs, rate_bps)
    horizon = usual_horizon(fluid)
    gpus = np.array([j.gpus for j in jobs], dtype=np.float64)
    if horizon <= 0:
        return Outcome(0.0, {j.name: 0.0 for j in jobs}, dict(weight), dict(level))
    places = {k: i for i, k in enumerate(sorted(set(level.values())))}
    computed, sent = progress(fluid, [places[level[j.name]] for j in jobs], horizon)
    loss = {}
    for i, job in enumerate(jobs):
        alone = replace(fluid, before=fluid.before[[i]], after=fluid.after[[i]], seconds=fluid.seconds[[i]])
        most = progress(alone, [0], horizon)[1][0]
        loss[job.name] = max(0.0, 1 - float(sent[i] / most)) if most > 0 else 0.0
    used = float((gpus * computed).sum() / (gpus.sum() * horizon))
    return Outcome(used, loss, dict(weight), dict(level))


def fair_assignment(
    jobs: Sequence[LinkJob], rate_bps: Rates, cap: float, setting: Setting | None = None
) -> FairAssignment:
    """CRUX with a cap in [0, 1] on the throughput loss of any job, and the price of that cap.

    The weight of a job that loses more than the cap grows with the excess from round to round. Its priority
    is weight x k_j x I_j, and the levels are cut again each time. There are two series of rounds, down to the
    cap and down to no loss. Plain CRUX on fewer levels, down to one, is tried too. Of all assignments the one
    with the highest utilisation under the cap is returned. Raises ValueError for a cap outside [0, 1].
    """
    if not 0 <= cap <= 1:
        raise ValueError(f"the cap on a job's loss must be in [0, 1], not {cap}")
    setting = setting or Setting()
    crux = METHODS["crux"].assign(jobs, rate_bps, setting)
    unweighted = {j.name: 1.0 for j in jobs}
    seen: list[tuple[LevelAssignment, Outcome]] = []
    for target in (cap, 0.0):
        weight, assignment = dict(unweighted), crux
        for _ in range(_ROUNDS):
            outcome = evaluate(jobs, rate_bps, assignment.level, weight)
            if all(outcome.level != known.level for _, known in seen):
                seen.append((assignment, outcome))
            if outcome.worst <= target:
                break
            for name, loss in outcome.loss.items():
                weight[name] *= float(np.exp(_GAIN * max(0.0, loss - target)))
            # Only ratios matter. Keeping the smallest weight at 1 avoids overflow.
            least = min(weight.values())
            weight = {name: w / least for name, w in weight.items()}
            assignment = _weighted(crux, jobs, weight, setting)
    for fewer in range(1, min(setting.levels or len(jobs), _FEWER_LEVELS + 1)):
        # Jobs of one level share links, so fewer levels mean smaller losses.
        merged = _weighted(crux, jobs, unweighted, replace(setting, levels=fewer, previous=None))
        outcome = evaluate(jobs, rate_bps, merged.level, unweighted)
        if all(outcome.level != known.level for _, known in seen):
            seen.append((merged, outcome))
    met = [item for item in seen if item[1].worst <= cap]
    if met:
        chosen = max(met, key=lambda item: item[1].utilisation)
    else:
        chosen = min(seen, key=lambda item: (item[1].worst, -item[1].utilisation))
    return FairAssignment(*chosen, met=bool(met), frontier=pareto([outcome for _, outcome in seen]))


def pareto(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """The outcomes that no other beats in both utilisation and worst loss, smallest worst loss first."""
    best: list[Outcome] = []
    for outcome in sorted(outcomes, key=lambda o: (o.worst, -o.utilisation)):
        if not best or outcome.utilisation > best[-1].utilisation:
            best.append(outcome)
    return tuple(best)


def _weighted(
    crux: LevelAssignment, jobs: Sequence[LinkJob], weight: Mapping[str, float], setting: Setting
) -> LevelAssignment:
    """The assignment by weighted priorities; ties are broken as in CRUX."""
    place = {r.name: i for i, r in enumerate(crux.ranked)}
    senders = [
        RankedJob(r.name, r.intensity, r.correction, r.priority * weight[r.name])
        for r in crux.ranked
        if r.intensity is not None
    ]
    senders.sort(key=lambda r: (-r.priority, place[r.name]))
    silent = [r for r in crux.ranked if r.intensity is None]
    lowest = len(jobs) - 1 if setting.levels is None else setting.levels - 1
    edges = contention(senders, shared_links([j for j in jobs if any(j.bytes_on.values())]))
    level = {name: min(k, lowest) for name, k in crux.level.items()}
    names = [r.name for r in senders]
    if setting.levels is None:
        level |= {name: i for i, name in enumerate(names)}
    else:
        level |= compress(
            names,
            edges,
            setting.levels,
            orders=setting.orders,
            seed=setting.seed,
            previous=setting.previous,
            hysteresis=setting.hysteresis,
        ).level
    cut = sum(w for (a, b), w in edges.items() if level[a] != level[b])
    return LevelAssignment((*senders, *silent), level, edges, cut, sum(edges.values()) - cut)
