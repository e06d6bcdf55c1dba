# SPDX-License-Identifier: Apache-2.0
"""What a controller takes up of an earlier one, after a restart."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from controller.live.core import Core
from controller.live.drained import Drained
from controller.live.job_registry import JoinError, RegisteredJob
from controller.live.messages import AgentUp, FlowOpened
from controller.live.operating import carry_out
from controller.live.operator_commands import ChosenPolicy, PolicySet
from controller.model.plan import Plan
from controller.planner import PolicyError
from controller.planner.rollback import not_of_fabric
from controller.routing.assign import Learned
from controller.southbound.table_writes import FabricCondition
from topo.graph import Topology

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EarlierState:
    """The state of an earlier controller. `plan` None: none was in force.

    `same_clock` False: the times of the plan count by another clock, because the host has started anew.
    """

    jobs: tuple[RegisteredJob, ...] = ()
    plan: Plan | None = None
    condition: FabricCondition = field(default_factory=FabricCondition)
    drained: Drained = field(default_factory=Drained)
    policy: ChosenPolicy | None = None
    port_maps: Learned = field(default_factory=dict)
    same_clock: bool = True
    nics: tuple[AgentUp, ...] = ()
    queue_pairs: tuple[FlowOpened, ...] = ()
    last_number: int = 0


def taken_up(earlier: EarlierState, topology: Topology, now_ns: int) -> Plan | None:
    """The earlier plan as it comes into force again; without flows if it does not fit the fabric any more."""
    plan = earlier.plan
    if plan is None:
        return None
    if gone := not_of_fabric(plan, topology):
        log.warning("plan %d is not taken up: the fabric has no %s any more", plan.version, gone)
        return replace(
            plan,
            version=1 + max(plan.version, earlier.last_number),
            flows={},
            jobs={},
            links=(),
            pins=(),
            remarks=(),
            pairs=(),
            mice_pairs=(),
        )
    # By another clock all slots move alike, so jobs that did not meet do not meet now.
    return plan if earlier.same_clock else replace(plan, epoch_ns=now_ns)


def restore(core: Core, earlier: EarlierState) -> None:
    """Take up the state of an earlier controller, before the first input.

    A job that does not fit the fabric any more is left out, with a line in the log. `core.wants_plan` is set
    if the earlier plan is not the plan for the earlier jobs.
    """
    if earlier.policy is not None:
        _restore_policy(core, earlier.policy)
    core.links.restore(earlier.condition)
    core.links.drained = earlier.drained.on(core.topology)
    core.condition = core.links.condition
    core.probes.restore(core.condition, earlier.port_maps)
    for known in earlier.jobs:
        try:
            core.registry.restore(known)
        except JoinError as error:
            log.warning("not taken up: %s", error)
            continue
        if not known.requested:
            core.reannouncement.expect((known,))
        if known.arrived:
            core.reports.arrived(known.job)
            core.wants_plan |= core.measuring.restored(known.job)
    core.queue_pairs.restore(
        (nic for nic in earlier.nics if nic.host in core.topology.host),
        (opened for opened in earlier.queue_pairs if core.registry.job_of(opened.flow) is not None),
    )
    core.last_number = earlier.last_number
    policy = core.settings.policy.reference
    plan = taken_up(earlier, core.topology, core.now_ns)
    planned = set(plan.jobs) if plan is not None else set()
    core.wants_plan |= planned != {j.name for j in core.registry.jobs}
    if plan is not None:
        # A plan without jobs need not be replaced when the policy has changed.
        core.plan = core.planned = plan if plan.jobs else replace(plan, policy=policy)
        core.assignments.restored(plan, core.registry)
        core.resumes = bool(plan.jobs)
        core.wants_plan |= bool(plan.jobs) and plan.policy != policy


def _restore_policy(core: Core, chosen: ChosenPolicy) -> None:
    """Make plans by the policy that an operator chose. If it is not installed any more, the log says so."""
    try:
        policy = chosen.policy()
    except PolicyError as error:
        log.warning(
            "policy %s, which an operator chose, is not taken up, and %s is in force: %s",
            chosen.name,
            core.start_policy.name,
            error,
        )
        return
    carry_out(core, PolicySet(policy, chosen))
