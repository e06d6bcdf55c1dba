# SPDX-License-Identifier: Apache-2.0
"""HiveD-like: cells of GPUs that are close together, never split over more of the network than need be.

Rule: jobs go in the order of their arrival. A job gets a cell: on the machine with the fewest free GPUs that
has enough, else, if it is larger than a machine, in the rack with the fewest free GPUs that has enough. No
job gets GPUs that are farther apart than its size makes necessary, and none is preempted.

The source says: cells of a buddy hierarchy per tenant, so that small jobs do not fragment large cells (HiveD,
OSDI 2020). Our reading: one tenant, and the tightest machine or rack in the place of the buddy cell, which
keeps the emptiest machines whole in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.placement.machines import Allocation, FreePool
from controller.placement.offers import PlacedJob


class HiveD:
    """First come first served, in the tightest cell."""

    leases = False

    def order(self, now: float, jobs: Sequence[PlacedJob]) -> list[PlacedJob]:
        """In the order of arrival."""
        return sorted(jobs, key=lambda j: (j.arrived, j.name))

    def offer(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """The tightest cell of the closest tier that the job can ever have."""
        return pool.closest(job.demand, worst=pool.machines.closest(job.demand))

    def better(self, now: float, job: PlacedJob, pool: FreePool) -> Allocation | None:
        """Never: a cell is guaranteed."""
        return None
