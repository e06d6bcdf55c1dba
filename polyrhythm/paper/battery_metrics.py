# SPDX-License-Identifier: Apache-2.0
"""The figures of the battery, from the times at which iterations ended. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, pairwise
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from polyrhythm.paper.battery_generator import Span
from polyrhythm.run.figures import utilisation_of_means

LOSSY = 0.05
"""A scenario is lossy if it loses this part of its GPU utilisation under ECMP."""
WORSE, BELOW_BEST, UNEQUAL = 0.01, 0.03, 1.10
"""Chosen: by more than these parts a utilisation is worse than ECMP's, or below the best. Twins whose
iterations differ by more than the factor are unequal."""
IN_FLOOR = 1.55
"""A policy keeps the floor in a scenario if no job takes more than this many times its iteration under ECMP.
Chosen: the default floor of 1.5, and the spread of ECMP's draws."""
_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for a two-sided 95 % interval, by degrees of freedom from 1 (tables of the t-distribution)."""
_FEWEST_LENGTHS = 3
"""From so many iterations on, the spread of a job's iterations says how sure their mean is. Chosen."""


@dataclass(frozen=True, slots=True)
class BatteryJob:
    """What the figures need of a job. `shape` is equal for jobs of the same period, phases and transport.

    `compute_ms` is the compute time of an iteration.
    """

    name: str
    gpus: int
    compute_ms: float
    shape: object


@dataclass(frozen=True, slots=True)
class SpanFigures:
    """The mean iteration times in one span in ms, by job, the GPU utilisation, 0 to 1, and the lengths of the
    whole iterations in ms, by job. Of one session, or of several draws (`over_draws`)."""

    mean_ms: Mapping[str, float]
    utilisation: float
    lengths_ms: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TwinsApart:
    """Twins whose mean iterations are farther apart than UNEQUAL, `slower` over `faster` by `ratio`.

    `unequal` says that chance does not explain it (`twins_apart`).
    """

    slower: str
    faster: str
    ratio: float
    unequal: bool


def mean_iteration_ms(ends_ms: Sequence[float], begin_ms: float, end_ms: float) -> float:
    """The mean length of the iterations of a job between two times in ms.

    `ends_ms` are the times at which its iterations ended, ascending. Whole iterations count. An iteration
    that has not ended at `end_ms` counts with its length so far if that makes the mean longer: a job that
    starves finishes nothing, and what it has not finished must not be left out.
    """
    inside = _inside(ends_ms, begin_ms, end_ms)
    if not inside:
        return end_ms - begin_ms
    whole = len(inside) - 1
    finished = (inside[-1] - inside[0]) / whole if whole else 0.0
    return max(finished, (end_ms - inside[0]) / (whole + 1))


def _inside(ends_ms: Sequence[float], begin_ms: float, end_ms: float) -> Sequence[float]:
    return ends_ms[bisect_left(ends_ms, begin_ms) : bisect_right(ends_ms, end_ms)]


def utilisation(jobs: Sequence[BatteryJob], mean_ms: Mapping[str, float]) -> float:
    """The GPU utilisation of `jobs`, 0 to 1, as `polyrhythm run` defines it. `mean_ms` may have more jobs."""
    return utilisation_of_means(
        {j.name: j.gpus for j in jobs},
        {j.name: j.compute_ms for j in jobs},
        {j.name: mean_ms[j.name] for j in jobs},
    )


def span_figures(
    jobs: Sequence[BatteryJob], spans: Sequence[Span], ends_ms: Mapping[str, Sequence[float]]
) -> list[SpanFigures]:
    """The figures of a session in each span. `ends_ms` is by job, as in `mean_iteration_ms`."""
    found = []
    for span in spans:
        present = [j for j in jobs if j.name in span.jobs]
        means = {
            j.name: mean_iteration_ms(ends_ms.get(j.name, ()), span.measured_ms, span.end_ms) for j in present
        }
        ends = {j.name: _inside(ends_ms.get(j.name, ()), span.measured_ms, span.end_ms) for j in present}
        lengths = {name: tuple(b - a for a, b in pairwise(times)) for name, times in ends.items()}
        found.append(SpanFigures(means, utilisation(present, means), lengths))
    return found


def over_draws(draws: Sequence[Sequence[SpanFigures]]) -> list[SpanFigures]:
    """The figures of each span over the draws of a session: the means of the means and of the utilisation,
    and the iterations of all draws."""
    return [
        SpanFigures(
            {name: fmean(each.mean_ms[name] for each in span) for name in span[0].mean_ms},
            fmean(each.utilisation for each in span),
            {name: tuple(chain(*(each.lengths_ms[name] for each in span))) for name in span[0].lengths_ms},
        )
        for span in zip(*draws, strict=True)
    ]


def overall_utilisation(jobs: Sequence[BatteryJob], spans: Sequence[Span], by_span: Sequence[float]) -> float:
    """The utilisation over all spans. Each counts by its measured time and the GPUs of its jobs."""
    gpus = {j.name: j.gpus for j in jobs}
    weights = [(s.end_ms - s.measured_ms) * sum(gpus[n] for n in s.jobs) for s in spans]
    return sum(w * u for w, u in zip(weights, by_span, strict=True)) / sum(weights)


def half_interval(draws: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of the mean of draws (Student's t); 0 for a single draw."""
    if len(draws) < 2:
        return 0.0
    return _t_95(len(draws) - 1) * stdev(draws) / sqrt(len(draws))


def _t_95(freedom: int) -> float:
    return _T_95[min(freedom, len(_T_95)) - 1]


def worst_ratio(ecmp: Sequence[SpanFigures], ours: Sequence[SpanFigures]) -> tuple[float, str]:
    """The largest mean iteration over that of the same job under ECMP in the same span, and the job."""
    return max(
        (own.mean_ms[name] / other.mean_ms[name], name)
        for own, other in zip(ours, ecmp, strict=True)
        for name in own.mean_ms
    )


def twins_apart(
    jobs: Sequence[BatteryJob], figures: SpanFigures, contended: Mapping[str, object]
) -> list[TwinsApart]:
    """Pairs of twins whose mean iterations differ by more than a factor of UNEQUAL.

    Twins have the same GPUs and shape, and contend for the same links (`contended`, by job). A pair is
    unequal if the 95 % confidence interval of the difference of the means says so too (Welch): a span has
    few iterations of a slow job, and where all jobs have one level, chance sets twins 20 % apart, under ECMP
    too. With fewer than _FEWEST_LENGTHS iterations, as of a job that starves, the means alone decide.
    """
    found = []
    mean_ms = figures.mean_ms
    for a, b in combinations([j for j in jobs if j.name in mean_ms], 2):
        if (a.gpus, a.shape, contended.get(a.name)) == (b.gpus, b.shape, contended.get(b.name)):
            slow, fast = sorted((a.name, b.name), key=lambda name: -mean_ms[name])
            ratio = mean_ms[slow] / mean_ms[fast]
            if ratio > UNEQUAL:
                found.append(TwinsApart(slow, fast, ratio, _beyond_chance(figures, slow, fast)))
    return found


def _beyond_chance(figures: SpanFigures, slow: str, fast: str) -> bool:
    """Whether the mean of `slow` is above UNEQUAL times that of `fast` beyond the confidence interval."""
    lengths = [figures.lengths_ms.get(name, ()) for name in (slow, fast)]
    if min(map(len, lengths)) < _FEWEST_LENGTHS:
        return True
    own, other = (stdev(found) ** 2 / len(found) for found in lengths)
    other *= UNEQUAL**2
    if own + other == 0:
        return True
    spread = own**2 / (len(lengths[0]) - 1) + other**2 / (len(lengths[1]) - 1)
    freedom = int((own + other) ** 2 / spread)
    excess = figures.mean_ms[slow] - UNEQUAL * figures.mean_ms[fast]
    return excess > _t_95(freedom) * sqrt(own + other)


def totals(rows: Sequence[Mapping[str, Any]], ours: str) -> dict[str, Any]:
    """The totals of the battery over the rows of its scenarios (`battery_rows.scenario_row`).

    `ours` is the policy that is compared with the others. A figure that no row gives is None.
    """
    gains = [row["gain_pct"][ours] for row in rows]
    worst = max(rows, key=lambda row: row["worst_job"]["ratio"], default=None)
    errors = [abs(row["judge"]["error_pct"]) for row in rows if row["judge"]["error_pct"] is not None]
    return {
        "scenarios": len(rows),
        "lossy_scenarios_pct": _percent(sum(row["ecmp_loss_pct"] >= 100 * LOSSY for row in rows), len(rows)),
        "utilisation_gain_mean": fmean(gains) if gains else None,
        "utilisation_worse": sum(row["worse_than_ecmp"] for row in rows),
        "worse_than_best": sum(row["worse_than_best"] for row in rows),
        "worse_than_best_in_floor": sum(row["worse_than_best_in_floor"] for row in rows),
        "worst_job_ratio": worst["worst_job"]["ratio"] if worst else None,
        "worst_job": {"scenario": worst["name"], "job": worst["worst_job"]["job"]} if worst else None,
        "unequal_twins": sum(pair["unequal"] for row in rows for pair in row["twins_apart"]),
        "twins_apart": sum(len(row["twins_apart"]) for row in rows),
        "judge_error_mean_pct": fmean(errors) if errors else None,
        "judge_error_worst_pct": max(errors, default=None),
    }


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
