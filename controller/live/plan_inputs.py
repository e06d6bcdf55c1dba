# SPDX-License-Identifier: Apache-2.0
"""The planner's input, made from the parts of a live fabric's state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controller.live.floor_watch import FloorWatch
from controller.live.int_probes import IntProbes
from controller.live.job_registry import JobRegistry
from controller.live.queue_pairs import QueuePairs
from controller.live.settings import CoreSettings
from controller.live.unplannable_jobs import UnplannableJobs
from controller.measure.common_periods import with_common_periods
from controller.model.job import Job
from controller.model.plan import Plan
from controller.planner import PlanInput
from controller.southbound.table_writes import FabricCondition

# A plan's epoch, from which its shifts count, lies this long after the plan is asked for: agents then have
# the plan before its epoch. Chosen: longer than a plan of a few jobs takes to reach all agents.
PLAN_LEAD_NS = 20_000_000


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The parts that a planner's input is made from."""

    settings: CoreSettings
    registry: JobRegistry
    unplannable: UnplannableJobs
    queue_pairs: QueuePairs
    floors: FloorWatch
    probes: IntProbes

    def at(
        self, now_ns: int, condition: FabricCondition, previous: Plan | None, last_number: int
    ) -> PlanInput:
        """The input at this moment; `previous` is the last plan as it was made."""
        settings, jobs = self.settings, self._jobs()
        return PlanInput(
            topology=settings.topology,
            jobs=jobs,
            policy=settings.policy,
            epoch_ns=now_ns + PLAN_LEAD_NS,
            down_links=condition.down_links,
            down_switches=condition.down_switches,
            previous=previous,
            measured_ns=self.floors.measured_ns,
            seed=settings.seed,
            elephant_bytes=settings.elephant_bytes,
            learned=self.probes.learned(condition),
            queue_pairs=self.queue_pairs.of(jobs),
            mistrusted=frozenset(self.queue_pairs.mistrusted),
            pin_capacity=settings.pin_capacity,
            mltcp_hosts=self.queue_pairs.mltcp_hosts,
            last_number=last_number,
        )

    def of_some(self, inputs: PlanInput, active: frozenset[str], epoch_ns: int) -> PlanInput:
        """An input for the `active` jobs alone, with another epoch."""
        jobs = tuple(job for job in self.registry.jobs if job.name in active)
        return replace(inputs, jobs=jobs, epoch_ns=epoch_ns)

    def _jobs(self) -> tuple[Job, ...]:
        """The jobs that can be planned. Policies named after a paper take their profiles as they are."""
        jobs = self.unplannable.plannable(self.registry.jobs)
        return with_common_periods(jobs) if self.settings.policy.joint_search else jobs
