# SPDX-License-Identifier: Apache-2.0
"""CRUX's GPU intensity and priority assignment (CRUX, sections 3.2 and 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

NS = 1_000_000_000
_LONGER_ITERATIONS = 1_000
"""The horizon of the correction factor, in iterations of the longer job. Chosen: CRUX gives none."""
_NEGLIGIBLE = 0.005
"""Differences below this part of the horizon give k = 1. Chosen: they come from the end of the horizon."""
_CLAMP = 8.0
"""k is limited to [1 / _CLAMP, _CLAMP]. Chosen: the quotient of two small differences is uncertain."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A job as CRUX sees it, per iteration.

    `work` is W_j in flop, `compute_s` its compute time, `traffic_s` is t_j (0: no traffic), `total_bytes` all
    that it sends. Communication starts after the part `overlap_start` of the compute (1: no overlap).
    """

    name: str
    work: float
    compute_s: float
    traffic_s: float
    total_bytes: float
    overlap_start: float = 1.0

    @property
    def intensity(self) -> float | None:
        """I_j = W_j / t_j in flop/s; None without traffic."""
        return self.work / self.traffic_s if self.traffic_s > 0 else None


@dataclass(frozen=True, slots=True)
class RankedJob:
    """A job with its intensity I_j, correction factor k_j and priority P_j = k_j I_j."""

    name: str
    intensity: float | None
    correction: float
    priority: float


def rounded(priority: float) -> float:
    """A priority in twelve digits: rounding errors must not separate equal priorities."""
    return float(f"{priority:.12g}")


def traffic_time(bytes_on: Mapping[Any, float], rate_bps: Mapping[Any, float]) -> float:
    """t_j = max over links of 8 * bytes / rate, in seconds; 0 without traffic."""
    return max((8 * b / rate_bps[link] for link, b in bytes_on.items()), default=0.0)


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """A contender in whole nanoseconds: its compute before and after its communication starts, and its
    traffic.
    """

    before: int
    after: int
    traffic: int

    @classmethod
    def of(cls, job: Contender) -> IterationTimes:
        """The times of a contender, rounded to whole nanoseconds."""
        compute = round(job.compute_s * NS)
        before = round(compute * job.overlap_start)
        traffic = round(job.traffic_s * NS)
        # Traffic of less than a nanosecond is still traffic.
        return cls(before, compute - before, max(traffic, 1) if job.traffic_s > 0 else 0)

    @property
    def period(self) -> int:
        """The length of an iteration without other jobs."""
        return self.before + max(self.after, self.traffic)

    def computed(self, start: int, horizon: int) -> int:
        """The compute inside [0, horizon) of the iteration whose communication was due at `start`."""
        return max(0, min(start + self.after, horizon) - max(start - self.before, 0))


def preempt(
    high: IterationTimes, low: IterationTimes, horizon: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two jobs alone on one link under strict pre-emption: (traffic, compute) in ns of each in `horizon` ns.

    Both start communicating at t = 0. An iteration computes, communicates once `overlap_start` of the compute
    is done, and ends when both are over. The next iteration follows at once. The high job runs as if it were
    alone, and the low job sends in its gaps. Raises ValueError for a job without compute and traffic.
    """
    if high.period <= 0 or low.period <= 0:
        raise ValueError("a job needs compute or traffic, because an iteration must take some time")
    high_alone, low_alone = _alone(high, horizon), _alone(low, horizon)
    if not high.traffic or not low.traffic:
        return high_alone, low_alone
    period, busy = high.period, high.traffic
    gap = period - busy

    def free(t: int) -> int:
        n, r = divmod(t, period)
        return n * gap + max(0, r - busy)

    start = traffic = compute = 0
    while start - low.before < horizon:
        n, r = divmod(start, period)
        if r >= busy and start >= low.before:
            # Iterations that end, or at least have left the link, before the high job uses it again.
            room = min(period - r - low.traffic, horizon - start - max(low.after, low.traffic))
            fit = room // low.period + 1
            if fit > 0:
                traffic += fit * low.traffic
                compute += fit * (low.before + low.after)
                start += fit * low.period
                continue
        # The low job has sent all once the link has been free for as long as its traffic takes.
        n, r = divmod(free(start) + low.traffic, gap) if gap else (horizon, 1)
        end = n * period + (busy + r if r else 0)
        if start < horizon:
            traffic += low.traffic if end <= horizon else free(horizon) - free(start)
        compute += low.computed(start, horizon)
        start = max(start + low.after, end) + low.before
    return high_alone, (traffic, compute)


def _alone(job: IterationTimes, horizon: int) -> tuple[int, int]:
    """The traffic and compute time in ns of a job that no other job disturbs."""
    whole, rest = divmod(horizon, job.period)
    traffic = whole * job.traffic + min(rest, job.traffic)
    edge = {0, max(whole - 1, 0), whole, whole + 1}
    compute = max(0, whole - 2) * (job.before + job.after)
    return traffic, compute + sum(job.computed(n * job.period, horizon) for n in edge)


def correction(job: Contender, reference: Contender) -> float:
    """k_j of a job against the reference job (CRUX, section 4.2, made precise).

    d is the traffic seconds of a job if it goes first, minus those if it goes second, over 1,000 iterations
    of the longer job. k = d_job / d_reference, limited to [1/8, 8]; 1 if both d are below 0.5 % of the
    horizon.
    """
    return _correction(IterationTimes.of(job), IterationTimes.of(reference))


@lru_cache(maxsize=4096)
def _correction(job: IterationTimes, reference: IterationTimes) -> float:
    if job == reference:
        return 1.0
    horizon = _LONGER_ITERATIONS * max(job.period, reference.period)
    (job_first, _), (reference_second, _) = preempt(job, reference, horizon)
    (reference_first, _), (job_second, _) = preempt(reference, job, horizon)
    d_job, d_reference = job_first - job_second, reference_first - reference_second
    if max(d_job, d_reference) < _NEGLIGIBLE * horizon:
        return 1.0
    if d_reference <= 0:
        return _CLAMP
    return min(_CLAMP, max(1 / _CLAMP, d_job / d_reference))


def reference_job(jobs: Sequence[Contender]) -> Contender | None:
    """The job that the others are compared with: most total bytes, then the name; None if no job sends."""
    senders = [j for j in jobs if j.traffic_s > 0]
    return min(senders, key=lambda j: (-j.total_bytes, j.name), default=None)


def rank(jobs: Sequence[Contender]) -> tuple[RankedJob, ...]:
    """The jobs by priority, highest first: P_j = k_j I_j against the job with the most total bytes.

    Ties: the job with less compute left to overlap its communication is first, then the order of names
    decides. Jobs without traffic are last, with no intensity and priority 0.
    """
    reference = reference_job(jobs)
    ranked: list[tuple[tuple[bool, float, float, str], RankedJob]] = []
    for job in jobs:
        intensity = job.intensity
        factor = 1.0
        if intensity is not None and reference is not None and job is not reference:
            factor = correction(job, reference)
        priority = factor * (intensity or 0.0)
        slack = (1 - job.overlap_start) * job.compute_s
        key = (intensity is None, -rounded(priority), slack, job.name)
        ranked.append((key, RankedJob(job.name, intensity, factor, priority)))
    return tuple(r for _, r in sorted(ranked, key=lambda item: item[0]))


def contention(
    ranked: Sequence[RankedJob], sharing: Iterable[tuple[str, str]]
) -> Mapping[tuple[str, str], float]:
    """The edges of the communication contention DAG: (higher, lower) -> the intensity of the higher job.

    `sharing` names the pairs of jobs that contend on some link, in any order.
    """
    place = {r.name: i for i, r in enumerate(ranked)}
    edges: dict[tuple[str, str], float] = {}
    for a, b in sharing:
        high, low = sorted((a, b), key=place.__getitem__)
        edges[high, low] = ranked[place[high]].intensity or 0.0
    return edges
