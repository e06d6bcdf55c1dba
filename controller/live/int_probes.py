# SPDX-License-Identifier: Apache-2.0
"""All INT probes of a live fabric: those that verify the paths of a plan, and those that learn the hash."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from controller.live.hash_learning import HashLearner, pairs_of
from controller.live.messages import Effect
from controller.live.notices import PlanApplied
from controller.live.path_verification import PathVerification
from controller.live.settings import CoreSettings
from controller.model.job import Job
from controller.model.plan import Plan
from controller.routing.assign import Learned
from controller.southbound.table_writes import FabricCondition

log = logging.getLogger(__name__)


class IntProbes:
    """The probes, and the announcement of a plan once its paths are verified.

    `paths` says which paths of the plan in force are verified.
    """

    def __init__(self, settings: CoreSettings) -> None:
        self.paths = PathVerification(settings.topology, settings.probe_options, probing=settings.verify)
        self._learner = HashLearner(settings.topology, settings.probe_options, settings.seed)
        self._elephant_bytes = settings.elephant_bytes
        self.use_policy(settings)
        self._announced: Plan | None = None
        self._wants_plan = False

    def use_policy(self, settings: CoreSettings) -> None:
        """Probe for the policy of `settings`."""
        # Where the switches' hash is unknown and the policy chooses paths, probes find the source ports.
        chooses = settings.policy.routing.chooses_paths
        self._learns = chooses and settings.verify and not settings.topology.hash.known

    @property
    def next_timer_ns(self) -> int | None:
        """When `due` must be called next; None while no probe is under way."""
        times = (self.paths.next_timer_ns, self._learner.next_timer_ns)
        return min((t for t in times if t is not None), default=None)

    def learned(self, condition: FabricCondition) -> Learned | None:
        """What the probes have learned about an unknown hash; None where it is known."""
        return self._learner.learned(condition) if self._learns else None

    def restore(self, condition: FabricCondition, learned: Learned) -> None:
        """Take up what an earlier controller has learned in `condition`, where the hash is unknown."""
        if self._learns:
            self._learner.restore(condition, learned)

    def take_plan_request(self) -> bool:
        """Whether learning has ended since the last call, so that a new plan can use its result."""
        wanted, self._wants_plan = self._wants_plan, False
        return wanted

    def plan_adopted(
        self, now_ns: int, plan: Plan, jobs: Iterable[Job], condition: FabricCondition
    ) -> Iterator[Effect]:
        """A plan is in force: verify its paths, and learn the ports of the jobs' pairs of hosts."""
        self._announced = None
        jobs = tuple(jobs)
        yield from self.paths.adopt(now_ns, plan, jobs, condition)
        if self._learns:
            yield from self._learner.want(now_ns, pairs_of(jobs, self._elephant_bytes), condition)

    def plan_patched(self, before: Plan | None, plan: Plan) -> None:
        """`plan` replaces `before` and differs from it a little: it is announced if `before` was."""
        if self._announced is before:
            self._announced = plan

    def received(self, now_ns: int, frame: bytes) -> tuple[list[Effect], bool]:
        """A frame that came as an INT probe: what to send, and whether it was a probe of a path."""
        effects: list[Effect] = []
        if self._learner.busy:
            effects += self._learner.received(now_ns, frame)
            self._wants_plan |= not self._learner.busy
        answers = self.paths.received(now_ns, frame)
        return [*effects, *(answers or ())], answers is not None

    def due(self, now_ns: int) -> Iterator[Effect]:
        """Give up probes that are late."""
        yield from self.paths.expire(now_ns)
        if self._learner.busy:
            yield from self._learner.expire(now_ns)
            self._wants_plan |= not self._learner.busy

    def announcement(self, now_ns: int, plan: Plan | None) -> Iterator[PlanApplied]:
        """The notice for Ryu applications, once every path of the plan is verified or given up."""
        if plan is None or self._announced is plan or not self.paths.settled:
            return
        self._announced = plan
        verified, unverified = tuple(sorted(self.paths.verified)), tuple(sorted(self.paths.unverified))
        counts = plan.version, len(verified), len(unverified)
        log.info("plan %d: INT probes have confirmed %d paths; %d are not confirmed", *counts)
        yield PlanApplied(now_ns, plan, verified, unverified)
