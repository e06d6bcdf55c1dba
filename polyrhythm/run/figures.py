# SPDX-License-Identifier: Apache-2.0
"""Compute the figures of the report from the iterations that the hosts recorded. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class MeasuredIteration:
    """One iteration of one worker, in ns of fabric time.

    It lasts from the start of its first communication phase to that of the next iteration. `compute_ns` is
    the compute time of the worker's GPUs in it.
    """

    rank: int
    index: int
    start_ns: int
    end_ns: int
    communication_ns: int
    ecn_marks: int
    retransmits: int
    compute_ns: int = 0


@dataclass(frozen=True, slots=True)
class JobFigures:
    """The measured iterations of a job. An iteration ends when the last worker begins the next one.

    `ecn_marks_per_iteration` counts the CE-marked packets that arrive at the job's hosts, and
    `retransmits_per_iteration` the packets that its NICs send again.
    """

    iterations_ms: tuple[float, ...]
    ecn_marks_per_iteration: float
    retransmits_per_iteration: float

    @property
    def mean_ms(self) -> float:
        """The mean iteration time in ms."""
        return float(np.mean(self.iterations_ms))

    @property
    def p99_ms(self) -> float:
        """The 99th percentile of the iteration times in ms, interpolated."""
        return float(np.percentile(self.iterations_ms, 99))


def job_figures(records: Sequence[MeasuredIteration], warmup: int, iterations: int) -> JobFigures:
    """The figures of the iterations warmup to warmup + iterations - 1 (`warmup` is at least 1).

    Raises:
        ValueError: a worker recorded fewer iterations than that.
    """
    ranks = {r.rank for r in records}
    ends: dict[int, list[int]] = {}
    marks: dict[int, int] = {}
    resent: dict[int, int] = {}
    for record in records:
        ends.setdefault(record.index, []).append(record.end_ns)
        marks[record.index] = marks.get(record.index, 0) + record.ecn_marks
        resent[record.index] = resent.get(record.index, 0) + record.retransmits
    wanted = range(warmup, warmup + iterations)
    for index in range(warmup - 1, warmup + iterations):
        if len(ends.get(index, ())) < len(ranks):
            raise ValueError(f"iteration {index} was not finished by every worker")
    finished = {index: max(ends[index]) for index in range(warmup - 1, warmup + iterations)}
    return JobFigures(
        iterations_ms=tuple((finished[i] - finished[i - 1]) / 1e6 for i in wanted),
        ecn_marks_per_iteration=sum(marks[i] for i in wanted) / iterations,
        retransmits_per_iteration=sum(resent[i] for i in wanted) / iterations,
    )


def pooled(draws: Sequence[JobFigures]) -> JobFigures:
    """The figures of several runs of one job, with other source ports or offsets, as one sample."""
    return JobFigures(
        iterations_ms=tuple(t for draw in draws for t in draw.iterations_ms),
        ecn_marks_per_iteration=float(np.mean([d.ecn_marks_per_iteration for d in draws])),
        retransmits_per_iteration=float(np.mean([d.retransmits_per_iteration for d in draws])),
    )


def gpu_utilisation(
    gpus: Mapping[str, int], compute_ms: Mapping[str, float], jobs: Mapping[str, JobFigures]
) -> float:
    """The part of the time in which the GPUs of the jobs compute, 0 to 1, while all jobs are present.

    It is the sum over jobs of GPUs x compute time of an iteration / mean iteration time, divided by the sum
    of GPUs. `compute_ms` is per iteration. The planner's evaluator has the same definition
    (`controller/interleave/joint/evaluator.py`).
    """
    return utilisation_of_means(gpus, compute_ms, {name: f.mean_ms for name, f in jobs.items()})


def utilisation_of_means(
    gpus: Mapping[str, int], compute_ms: Mapping[str, float], mean_ms: Mapping[str, float]
) -> float:
    """`gpu_utilisation` from the mean iteration time of each job in ms. The same in any order of jobs."""
    busy = math.fsum(gpus[name] * compute_ms[name] / mean for name, mean in mean_ms.items())
    return busy / sum(gpus[name] for name in mean_ms)


def jain_index(alone: Mapping[str, JobFigures], jobs: Mapping[str, JobFigures]) -> float:
    """Jain's index of the throughputs relative to alone: 1 if every job keeps the same part of its speed.

    With x the mean iteration time alone over that in `jobs`, it is (sum x)^2 / (n sum x^2), 1/n to 1 (Jain,
    Chiu, Hawe, "A quantitative measure of fairness", DEC TR-301, 1984).
    """
    parts = [alone[name].mean_ms / figures.mean_ms for name, figures in jobs.items()]
    return math.fsum(parts) ** 2 / (len(parts) * math.fsum(part**2 for part in parts))


def worst_job(baseline: Mapping[str, JobFigures], ours: Mapping[str, JobFigures]) -> tuple[str, float]:
    """The job that loses most: its name, and its mean iteration time over that in the baseline."""
    return max(
        ((name, figures.mean_ms / baseline[name].mean_ms) for name, figures in ours.items()),
        key=lambda found: found[1],
    )


def geometric_speedup(baseline: Mapping[str, JobFigures], ours: Mapping[str, JobFigures]) -> float:
    """The geometric mean over jobs of the baseline's mean iteration time over ours."""
    return float(np.exp(np.mean([np.log(baseline[name].mean_ms / ours[name].mean_ms) for name in ours])))


def speedup(baseline: Mapping[str, JobFigures], ours: Mapping[str, JobFigures], figure: str) -> float:
    """The mean over jobs of the baseline's `figure` ("mean_ms" or "p99_ms") divided by ours."""
    ratios = [getattr(baseline[name], figure) / getattr(ours[name], figure) for name in ours]
    return float(np.mean(ratios))
