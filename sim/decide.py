# SPDX-License-Identifier: Apache-2.0
"""Runs the controller's planner in the simulator, and converts a plan into decisions for the jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from controller.model import REALIGN, TRAFFIC_CLASSES, Job, JobPlan, Plan
from controller.model.flow_plans import path_in
from controller.model.plan import Spreading
from controller.planner import PlanInput, Policy, PolicyError, plan
from controller.planner.placement import Compatibility, compatibility
from controller.routing.forwarding import forwarding, pair
from controller.routing.paths import Forwarding, Path, path_of
from controller.routing.spread_portions import Portions, spread_portions
from controller.routing.spreading import MOVE_FLOWLETS
from controller.wire.rocev2 import drawn_source_port
from controller.wire.senders import DCQCN
from sim.jobrun import FREE, FlowletRule, IterationSchedule
from sim.mltcp import LINEAR, SENDER, weights
from sim.mltcp_policies import ShapedMltcp
from sim.units import CLASSES, PS_PER_NS, PS_PER_US
from topo.graph import Topology


@dataclass(frozen=True)
class FabricState:
    """A topology with what is down now; `down_links` are sorted name pairs."""

    topology: Topology
    down_links: frozenset[tuple[str, str]] = frozenset()
    down_switches: frozenset[str] = frozenset()

    @cached_property
    def forwarding(self) -> Forwarding:
        """The forwarding entries of the switches, without what is down."""
        return forwarding(self.topology, self.down_links, self.down_switches)

    def spread(self, src: str, dst: str) -> Portions:
        """Where the packets from host to host go if every switch sprays them; empty: there is no way."""
        return spread_portions(self.topology, self.forwarding, src, dst)

    def alive(self, path: Path) -> bool:
        """Whether every cable and switch of a path is up."""
        return self.down_switches.isdisjoint(path) and all(
            pair(a, b) not in self.down_links for a, b in pairwise(path)
        )


class Decider:
    """Calls the planner with a policy and keeps its last plan, which the next call takes as input.

    `seed` draws ECMP's source ports by flow name, as the agents of an embedded fabric with this seed do.
    Flows below `elephant_bytes` are left to ECMP in the lowest class. A checkpoint contains only the
    reference of the policy; `restore` sets the policy again.
    """

    def __init__(self, policy: Policy, seed: int, elephant_bytes: int) -> None:
        self.policy = policy
        self._seed = seed
        self._elephant_bytes = elephant_bytes
        self._previous: Plan | None = None
        self._ports: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The state for a checkpoint, with the policy's reference in the place of the policy."""
        state = dict(self.__dict__)
        del state["policy"]
        return state | {"reference": self.policy.reference}

    def restore(self, policy: Policy) -> None:
        """Set the policy after the state was read from a checkpoint.

        Raises:
            PolicyError: the checkpoint was made under another policy, version or options.
        """
        reference = self.__dict__.pop("reference", None)
        if reference is not None and reference != policy.reference:
            made, now = (f"{r.name} ({r.distribution} {r.version})" for r in (reference, policy.reference))
            raise PolicyError(
                f"the checkpoint was made with policy {made}; {now} has other objects or options"
            )
        self.policy = policy

    @property
    def one_by_one(self) -> bool:
        """Whether the plan of a job does not depend on other jobs. Then only new jobs need a plan."""
        return self.policy.job_by_job

    def plan(self, fabric: FabricState, jobs: Sequence[Job], now_ps: int) -> Plan:
        """The plan for these jobs from `now_ps` on. Keeps the plan as the input of the next call."""
        decided = plan(self._inputs(fabric, jobs, now_ps))
        self._previous = decided
        return decided

    def compatibility(self, fabric: FabricState, jobs: Sequence[Job], now_ps: int) -> Compatibility:
        """How well these jobs can share links in time, on the paths that the policy would choose."""
        return compatibility(self._inputs(fabric, jobs, now_ps))

    def _inputs(self, fabric: FabricState, jobs: Sequence[Job], now_ps: int) -> PlanInput:
        return PlanInput(
            topology=fabric.topology,
            jobs=tuple(jobs),
            policy=self.policy,
            epoch_ns=now_ps // PS_PER_NS,
            down_links=fabric.down_links,
            down_switches=fabric.down_switches,
            previous=None if self.one_by_one else self._previous,
            seed=self._seed,
            elephant_bytes=self._elephant_bytes,
        )

    def ecmp_path(self, fabric: FabricState, flow: str, src: str, dst: str) -> Path | None:
        """The path that the fabric's hash gives the flow, by the source port that is drawn for it. None if no
        live path exists."""
        if src == dst:
            return (src,)
        if flow not in self._ports:
            self._ports[flow] = drawn_source_port(flow, self._seed)
        path = path_of(fabric.topology, fabric.forwarding, src, dst, self._ports[flow])
        return path if path and fabric.alive(path) else None

    def forget(self, flows: Sequence[str]) -> None:
        """Forget the source ports of flows that have ended."""
        for flow in flows:
            self._ports.pop(flow, None)


@dataclass(frozen=True, slots=True)
class JobDecision:
    """The decision of a plan for one job.

    `paths` by flow (a missing flow goes by ECMP), the job's class `klass`, its iteration `schedule`, the
    MLTCP `weights` of its senders (see `JobRun.weights`; None: as the job requests), the flows whose packets
    are `sprayed`, and those whose flowlets are `moved` by `rule`.
    """

    paths: Mapping[str, Path]
    klass: int
    schedule: IterationSchedule
    weights: tuple[float, ...] | None
    sprayed: frozenset[str] = frozenset()
    moved: frozenset[str] = frozenset()
    rule: FlowletRule | None = None


def decision_for(plan: Plan, policy: Policy, job: str, flows: Sequence[str], lead_ps: int) -> JobDecision:
    """The decision of `plan` for `job`. The planner's shift is the start of the first flow, which is
    `lead_ps` after the start of the iteration."""
    decided = plan.jobs[job]
    paths = {f: path_in(plan.flows, f) for f in flows}
    if decided.period_ns is None:
        schedule = FREE
    else:
        schedule = IterationSchedule(
            plan.epoch_ns * PS_PER_NS,
            decided.shift_ns * PS_PER_NS - lead_ps,
            decided.period_ns * PS_PER_NS,
            decided.once,
            REALIGN if decided.realign is None else decided.realign,
        )
    return JobDecision(
        paths={f: p for f, p in paths.items() if p is not None},
        klass=_klass(policy, decided),
        schedule=schedule,
        weights=_weights(policy, decided),
        sprayed=_spread(plan, flows, {s.dscp for s in plan.spread if s.spreading.action != MOVE_FLOWLETS}),
        moved=_spread(plan, flows, {s.dscp for s in plan.spread if s.spreading.action == MOVE_FLOWLETS}),
        rule=next((_rule(s.spreading) for s in plan.spread if s.spreading.action == MOVE_FLOWLETS), None),
    )


def _rule(spreading: Spreading) -> FlowletRule:
    return FlowletRule(spreading.gap_us * PS_PER_US, PS_PER_US << spreading.half_life)


def _spread(plan: Plan, flows: Sequence[str], classes: Collection[int]) -> frozenset[str]:
    """Those of the flows under the DSCPs in `classes` that no switch has an entry of its own for."""
    if not classes:
        return frozenset()
    pinned = {pin.flow for pin in plan.pins}
    planned = ((f, plan.flows.get(f)) for f in flows if f not in pinned)
    return frozenset(f for f, p in planned if p is not None and p.dscp in classes)


def _weights(policy: Policy, decided: JobPlan) -> tuple[float, ...] | None:
    if decided.sender == SENDER:
        timing = policy.timing
        return weights(timing.shape if isinstance(timing, ShapedMltcp) else LINEAR)
    return () if decided.sender == DCQCN else None


def _klass(policy: Policy, decided: JobPlan) -> int:
    """The class of a job's queue. With more levels than the switches have, the class is the level itself."""
    if policy.priority.exceeds_switch_levels:
        return decided.level
    return CLASSES - 1 - TRAFFIC_CLASSES.queues[decided.dscp]


EQUAL_CLASS = CLASSES - 1 - TRAFFIC_CLASSES.queues[TRAFFIC_CLASSES.equal]
"""The class of flows before the first plan takes effect."""
