# SPDX-License-Identifier: Apache-2.0
"""Exact progress of jobs on shared links under strict priority: the effect of an assignment of levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.kernel import KernelsUnavailableError, available
from controller.priority.jobs import LinkJob, Rates

Floats = NDArray[np.float64]

_LONGEST = 100
_MOST = 50_000
_MOST_WORK = 20_000_000
"""The limits of `usual_horizon`. Chosen: they bound one simulation to about a second."""


@dataclass(frozen=True, slots=True)
class Fluid:
    """Jobs as arrays. Each iteration computes for `before`, then for `after` while it sends; shape (jobs,),
    in s.

    `seconds` is what each link needs for the bytes of an iteration, shape (jobs, links). A job sends on all
    its links in step. Its speed is 1 if it has its slowest link for itself.
    """

    before: Floats
    after: Floats
    seconds: Floats

    @property
    def traffic(self) -> Floats:
        """t_j, shape (jobs,)."""
        return np.asarray(self.seconds.max(axis=1, initial=0.0))

    @property
    def period(self) -> Floats:
        """The length of each job's iteration without other jobs, shape (jobs,)."""
        return self.before + np.maximum(self.after, self.traffic)


def fluid_of(jobs: Sequence[LinkJob], rate_bps: Rates) -> Fluid:
    """The jobs as arrays; links without traffic are left out."""
    times = [job.seconds_on(rate_bps) for job in jobs]
    links = sorted({link for on in times for link in on})
    compute = np.array([j.compute_s for j in jobs])
    before = compute * np.array([j.overlap_start for j in jobs])
    rows = [[on.get(link, 0.0) for link in links] for on in times]
    return Fluid(before, compute - before, np.array(rows).reshape(len(jobs), len(links)))


def usual_horizon(fluid: Fluid) -> float:
    """The simulated time in s: 100 iterations of the longest job.

    It is shorter if all jobs together would make more than 50,000 iterations, or for large sets of jobs more
    than 20 million divided by jobs x links, because each event visits all of them.
    """
    periods = fluid.period[fluid.period > 0]
    if not len(periods):
        return 0.0
    most = min(_MOST, _MOST_WORK / max(1, fluid.seconds.size))
    return float(min(_LONGEST * periods.max(), most / (1 / periods).sum()))


def progress(
    fluid: Fluid, level: Sequence[int] | NDArray[np.int64], horizon_s: float, *, plain: bool = False
) -> tuple[Floats, Floats]:
    """The seconds computed and the iterations sent (with fractions) of each job in `horizon_s`, shapes
    (jobs,).

    All jobs start communicating at t = 0. A lower `level` goes first on every link. Jobs of one level that
    share a link get max-min fair speeds. Jobs with neither compute nor traffic make no progress.
    """
    levels = np.asarray(level, dtype=np.int64)
    if not plain and available():
        try:
            from controller.priority.fluid_kernel import run
        except KernelsUnavailableError:
            return _run(fluid, levels, horizon_s)
        computed, sent = np.zeros(len(levels)), np.zeros(len(levels))
        table = np.full((1 << len(levels) if len(levels) <= 10 else 1, len(levels)), -1.0)
        run(fluid.before, fluid.after, fluid.traffic, fluid.seconds, levels, horizon_s, table, computed, sent)
        return computed, sent
    return _run(fluid, levels, horizon_s)


def speeds(fluid: Fluid, level: NDArray[np.int64], active: Sequence[int]) -> Mapping[int, float]:
    """The speed of each of the `active` jobs; 1 is the speed without other jobs.

    Levels are served one after another. Within a level all speeds grow together until a link of the job is
    full.
    """
    use = np.divide(
        fluid.seconds, fluid.traffic[:, None], out=np.zeros_like(fluid.seconds), where=fluid.seconds > 0
    )
    room = np.ones(use.shape[1])
    speed = dict.fromkeys(active, 0.0)
    for k in sorted({int(level[j]) for j in active}):
        growing = [j for j in active if level[j] == k]
        while growing:
            load = use[growing].sum(axis=0)
            full = load > 0
            step = float((room[full] / load[full]).min())
            room = np.maximum(room - step * load, 0.0)
            for j in growing:
                speed[j] += step
            tight = full & (room <= 1e-12)
            growing = [j for j in growing if not (use[j] > 0)[tight].any()]
    return speed


def _run(fluid: Fluid, level: NDArray[np.int64], horizon: float) -> tuple[Floats, Floats]:
    """The plain reference of `fluid_kernel.run`: it goes from event to event, where a job begins or ends to
    send.
    """
    count = len(level)
    before, after, traffic = fluid.before, fluid.after, fluid.traffic
    computed, sent = np.zeros(count), np.zeros(count)
    alive = [j for j in range(count) if fluid.period[j] > 0]
    due, left = np.zeros(count), np.zeros(count)
    active: list[int] = []
    now = 0.0

    def ended(j: int) -> None:
        computed[j] += max(0.0, min(due[j] + after[j], horizon) - max(due[j] - before[j], 0.0))
        due[j] = max(now, due[j] + after[j]) + before[j]

    while now < horizon:
        for j in alive:
            while j not in active and due[j] <= now:
                if traffic[j] > 0:
                    left[j] = 1.0
                    active.append(j)
                else:
                    sent[j] += 1
                    ended(j)
        speed = speeds(fluid, level, sorted(active))
        ends = {j: now + left[j] * traffic[j] / speed[j] for j in active if speed[j] > 0}
        then = min([horizon, *ends.values(), *(due[j] for j in alive if j not in active)])
        for j in tuple(active):
            part = (then - now) * speed[j] / traffic[j]
            sent[j] += min(part, left[j])
            left[j] -= part
        now = then
        for j in tuple(active):
            if left[j] <= 1e-12 or ends.get(j, horizon + 1) <= now:
                active.remove(j)
                ended(j)
    for j in alive:
        # An iteration that is open at the end, or not yet due, has computed up to the horizon.
        computed[j] += max(0.0, min(due[j] + after[j], horizon) - max(due[j] - before[j], 0.0))
    return computed, sent
