# SPDX-License-Identifier: Apache-2.0
"""Which job gets GPUs next: first come first served, least attained service, or a scheduler of placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from controller.placement.candidates import MOST
from controller.placement.schedulers import SCHEDULERS as OFFER_POLICIES
from controller.placement.schedulers import SHARING, SchedulerOptions
from controller.placement.schedulers import scheduler_named as offer_policy_named
from sim.cluster import FreeGpus, JobRequest, Placement
from sim.placement_scheduler import Judge, OfferScheduler
from sim.units import NEVER, PS_PER_S

if TYPE_CHECKING:
    from sim.state import RunningJob


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job without GPUs. It waits since `since` (ps) and first ran at `first` (-1: never)."""

    request: JobRequest
    since: int
    first: int = -1


class Scheduler(Protocol):
    """Decides at every event. `preempts`: whether it wants to know what jobs have been served."""

    preempts: bool

    def next_look(self, now: int) -> int:
        """When it wants to be asked again if nothing happens before (ps)."""

    def reads_progress(self, now: int) -> bool:
        """Whether the next call of `decide` reads how many iterations the running jobs have completed."""

    def decide(
        self,
        now: int,
        waiting: Sequence[WaitingJob],
        running: Mapping[str, RunningJob],
        served: Mapping[str, float],
        free: FreeGpus,
        judge: Judge,
    ) -> tuple[list[tuple[WaitingJob, Placement]], list[str]]:
        """Who begins, on which GPUs (already taken from `free`), and who is stopped. `judge` says how well
        jobs could share links on other GPUs."""


class Fifo:
    """First come, first served. No job overtakes another, unless `backfill` is set."""

    preempts = False

    def __init__(self, backfill: bool = False) -> None:
        self._backfill = backfill

    def next_look(self, now: int) -> int:
        """Never by itself."""
        return NEVER

    def reads_progress(self, now: int) -> bool:
        """It does not."""
        return False

    def decide(
        self,
        now: int,
        waiting: Sequence[WaitingJob],
        running: Mapping[str, RunningJob],
        served: Mapping[str, float],
        free: FreeGpus,
        judge: Judge,
    ) -> tuple[list[tuple[WaitingJob, Placement]], list[str]]:
        """Begin from the head of the queue while there is room."""
        begun = []
        for job in sorted(waiting, key=lambda w: (w.request.arrival_ns, w.request.name)):
            placement = placed(job.request, free)
            if placement is not None:
                begun.append((job, placement))
            elif not self._backfill:
                break
        return begun, []


class LeastAttained:
    """Two queues by the GPU seconds that jobs have received, as Tiresias' 2DAS. Jobs below `threshold_s` go
    first and preempt others when they need room. The scheduler runs every `every_s`.
    """

    preempts = True

    def __init__(self, threshold_s: float = 3_600.0, every_s: float = 60.0) -> None:
        self._threshold = threshold_s
        self._every = round(every_s * PS_PER_S)
        self._served: dict[str, float] = {}

    def next_look(self, now: int) -> int:
        """The next round."""
        return (now // self._every + 1) * self._every

    def reads_progress(self, now: int) -> bool:
        """It does not."""
        return False

    def decide(
        self,
        now: int,
        waiting: Sequence[WaitingJob],
        running: Mapping[str, RunningJob],
        served: Mapping[str, float],
        free: FreeGpus,
        judge: Judge,
    ) -> tuple[list[tuple[WaitingJob, Placement]], list[str]]:
        """Begin the young in order of arrival, then the old; stop the old, most served first, for the
        young that find no room. The room they leave is given out at the next event."""
        self._served |= served
        begun, stopped = [], []

        def age(job: WaitingJob) -> tuple[bool, int, str]:
            old = self._served.get(job.request.name, 0.0) >= self._threshold
            return old, job.request.arrival_ns, job.request.name

        victims = sorted((n for n, s in served.items() if s >= self._threshold), key=lambda n: -served[n])
        for job in sorted(waiting, key=age):
            placement = placed(job.request, free)
            if placement is not None:
                begun.append((job, placement))
                continue
            if age(job)[0] or job.request.ranks is not None:
                continue
            room = free.total
            chosen = []
            for name in victims:
                if room >= job.request.gpus:
                    break
                chosen.append(name)
                room += running[name].request.gpus
            if room >= job.request.gpus:
                stopped = chosen
            break
        return begun, stopped


def placed(request: JobRequest, free: FreeGpus) -> Placement | None:
    """Take the GPUs of a placement. A job with a fixed placement takes no GPUs from the pool."""
    return () if request.ranks is not None else free.place(request.gpus)


WITH_CASSINI = "+cassini"
"""Behind the name of a scheduler of placements: CASSINI chooses among its candidates."""
_KNOWN = tuple(name for name in OFFER_POLICIES if name not in SHARING)
PLACING = (*_KNOWN, *(name + WITH_CASSINI for name in _KNOWN))
"""The schedulers of placements, but for those that let jobs share GPUs: here each GPU has one job."""
SCHEDULERS = ("fifo", "backfill", "least-attained", *PLACING)


def scheduler_named(name: str, *, lease_s: float = SchedulerOptions().lease_s, seed: int = 1) -> Scheduler:
    """A fresh scheduler. `lease_s` and `seed` (of random placements) are for the schedulers of placements.

    Raises:
        ValueError: an unknown name, with the legal ones, or a lease that is no positive time.
    """
    if not 1e-3 <= lease_s < 1e9:
        raise ValueError(f"a lease of {lease_s} s; legal: 0.001 to 10^9")
    if name == "fifo":
        return Fifo()
    if name == "backfill":
        return Fifo(backfill=True)
    if name == "least-attained":
        return LeastAttained()
    base = name.removesuffix(WITH_CASSINI)
    if base in _KNOWN:
        policy = offer_policy_named(base, SchedulerOptions(lease_s, seed=seed))
        return OfferScheduler(policy, lease_s, candidates=MOST if name != base else 1, seed=seed)
    raise ValueError(f"{name!r} is no scheduler; legal: {', '.join(SCHEDULERS)}")
