# SPDX-License-Identifier: Apache-2.0
"""Dally: delay scheduling over machine, rack and network, and network-sensitive preemption.

Rule: offers go to jobs in ascending order of P_nw. A job takes GPUs of one machine at once. It takes GPUs of
one rack when it has waited for its machine timer, or is larger than a machine. It takes any GPUs when it has
waited for its rack timer, or is larger than a rack (Algorithm 1). At the end of a lease the GPUs of all jobs
are offered again, so jobs with a low P_nw take GPUs from those with a higher one.

The paper says: the order (IV-B1), the timers (IV-B2), the auto-tuner (IV-B3). Our reading: a running job
renews its GPUs without a wait if no job before it took some of them, and moves only to a closer tier; jobs of
the same P_nw go in the order of their arrival, running ones first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from controller.placement.delay_timers import DelayTimers, FixedTimers, TunedTimers
from controller.placement.machines import Allocation, FreePool, NetworkTier
from controller.placement.offers import PlacedJob, closer

MACHINE_TIMER_S, RACK_TIMER_S = 12 * 3_600.0, 24 * 3_600.0
"""The default timers, both from the start of the wait (Dally, IV-B2)."""


def network_priority(job: PlacedJob) -> float:
    """P_nw: the completed part of the work, divided by the time in the run queue as a part of the ideal time.
    0 for a new job, 1 for a job that never waited for the network. Offers go in ascending order (IV-B1)."""
    return job.done / job.ran if job.ran > 0 else 0.0


class Dally:
    """Delay scheduling with `timers`. `lease_s` is the timers' unit."""

    leases = True

    def __init__(self, timers: DelayTimers, lease_s: float) -> None:
        self.timers = timers
        self._lease_s = lease_s

    def order(self, now: float, jobs: Sequence[PlacedJob]) -> list[PlacedJob]:
        """All jobs, the lowest P_nw first."""
        return sorted(
            jobs, key=lambda j: (round(network_priority(j), 6), j.allocation is None, j.arrived, j.name)
        )

    def offer(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """Algorithm 1. An accepted offer teaches the timers how long the job has waited."""
        found, tier = self._accepted(now, job, pool)
        if found is not None:
            self.timers.accepted(tier, job.demand, now / self._lease_s, (now - job.since) / self._lease_s)
        return found

    def better(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """GPUs of a closer tier."""
        return closer(job, pool)

    def wait_s(self, now: float, job: PlacedJob, pool: FreePool) -> tuple[float, float]:
        """How long after the start of its wait the job takes GPUs of a rack, and any GPUs; in s."""
        at, machines = now / self._lease_s, pool.machines
        machine, rack = (
            self.timers.timer(tier, job.demand, at) * self._lease_s
            for tier in (NetworkTier.MACHINE, NetworkTier.RACK)
        )
        if job.demand > machines.largest_rack:
            return 0.0, 0.0
        # The timers are tuned separately. A job that takes any GPUs takes those of a rack, too.
        return (0.0 if job.demand > machines.largest_machine else min(machine, rack)), rack

    def _accepted(self, now: float, job: PlacedJob, pool: FreePool) -> tuple[Allocation | None, NetworkTier]:
        found = pool.on_machine(job.demand)
        if found is not None:
            return found, NetworkTier.MACHINE
        waited = now - job.since
        for_rack, for_any = self.wait_s(now, job, pool)
        if waited >= for_rack:
            found = pool.in_rack(job.demand)
        if found is not None:
            return found, NetworkTier.RACK
        return (pool.anywhere(job.demand) if waited >= for_any else None), NetworkTier.NETWORK


def dally(lease_s: float, history: float) -> Dally:
    """Dally with the auto-tuner."""
    return Dally(TunedTimers(history), lease_s)


def dally_manual(lease_s: float) -> Dally:
    """Dally-manual: timers that an operator has set, 12 h and 24 h (V-C)."""
    return Dally(FixedTimers(MACHINE_TIMER_S / lease_s, RACK_TIMER_S / lease_s), lease_s)


def dally_no_wait(lease_s: float) -> Dally:
    """Dally-noWait: all timers 0 (V-C)."""
    return Dally(FixedTimers(0.0, 0.0), lease_s)


def dally_consolidated(lease_s: float) -> Dally:
    """Dally-fullyConsolidated: waits as long as needed for the closest placement (V-C)."""
    return Dally(FixedTimers(math.inf, math.inf), lease_s)
