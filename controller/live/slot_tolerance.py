# SPDX-License-Identifier: Apache-2.0
"""How late the jobs of a plan may begin after their slots. The controller knows the gaps between the slots,
so it decides; the agents get one figure for each job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.interleave.slot_tolerance import HeldJob, SlotTolerance, slot_tolerances
from controller.model.job import Job
from controller.model.plan import Plan


def tolerances(plan: Plan, jobs: Iterable[Job]) -> Mapping[str, SlotTolerance[str]]:
    """How late each job that is held to slots may begin; without those that no lateness makes worse.

    `plan.links` must have the links that jobs share.
    """
    known = {j.name: j.profile for j in jobs}
    held = {
        name: HeldJob(
            planned.period_ns,
            planned.shift_ns,
            tuple((p.start_ns, p.end_ns) for p in known[name].phases),
        )
        for name, planned in plan.jobs.items()
        if planned.period_ns and not planned.once and name in known
    }
    return slot_tolerances(held, [link.jobs for link in plan.links])
