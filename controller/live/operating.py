# SPDX-License-Identifier: Apache-2.0
"""What follows in the core when an operator changes something on a running controller."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from controller.live.job_names import announced_name
from controller.live.lookahead import Lookahead
from controller.live.messages import Effect, WorkerJoined, WorkerLeft
from controller.live.operator_commands import (
    DrainSet,
    JobEnded,
    JobRequested,
    OperatorCommand,
    PolicySet,
)

if TYPE_CHECKING:
    from controller.live.core import Core

log = logging.getLogger(__name__)


def carry_out(core: Core, command: OperatorCommand) -> Iterator[Effect]:
    """Change the state of a core as an operator asks; returns what to send."""
    match command:
        case DrainSet(drained):
            core.links.drained = drained
            log.info("an operator has changed what is drained: %s", drained)
        case JobRequested(job):
            _end(core, job.name)
            for rank, host in enumerate(job.hosts):
                core.handle(WorkerJoined(host, rank, job))
            # An agent's job may have taken the name meanwhile.
            name = core.registry.named(job.hosts[0], 0, job.name)
            if name is not None:
                core.registry.set_requested(name, True)
        case JobEnded(name):
            _end(core, name)
        case PolicySet():
            log.info("an operator has set the policy %s: the next plan is made by it", command.policy.name)
            return iter(tuple(_use_policy(core, command)))
    return iter(())


def _end(core: Core, name: str) -> None:
    """End all workers of a job."""
    job = core.registry.declared(name)
    if job is None:
        return
    log.info("job %s is ended by a request", name)
    core.registry.set_requested(name, False)
    for rank, host in enumerate(job.hosts):
        core.handle(WorkerLeft(host, rank, announced_name(job)))


def _use_policy(core: Core, command: PolicySet) -> Iterator[Effect]:
    """Make further plans by another policy. Which jobs are measured depends on it."""
    policy, jobs = command.policy, core.registry.jobs
    core.settings = replace(core.settings, policy=policy)
    core.chosen_policy = command.chosen
    core.inputs = replace(core.inputs, settings=core.settings)
    core.lookahead = Lookahead(policy.routing)
    core.probes.use_policy(core.settings)
    measured = core.measuring.enabled
    core.measuring.use(core.settings.measured_as)
    if measured and not core.measuring.enabled:
        for job in jobs:
            yield from core.measuring.given_up(job.name)
    elif core.measuring.enabled and not measured:
        for job in jobs:
            core.measuring.restored(job)
    core.wants_plan |= bool(jobs)
