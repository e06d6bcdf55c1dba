# SPDX-License-Identifier: Apache-2.0
"""The controller's own planner, asked by name: who goes where, in which class, in which rhythm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from controller.model import REALIGN, TRAFFIC_CLASSES, Job, JobPlan, Plan, Policy
from controller.planner import POLICIES, PlanInput, plan
from controller.routing.ecmp import draw_port
from controller.routing.forwarding import forwarding, pair
from controller.routing.paths import Forwarding, Path, path_of
from sim.jobrun import FREE, IterationSchedule
from sim.mltcp import BY_POLICY, LINEAR, weights
from sim.units import CLASSES, PS_PER_NS
from topo.graph import Topology

SIM_POLICIES: Mapping[str, Policy] = {
    **POLICIES,
    **{name: Policy(name, "ecmp", "equal", "none", sender="mltcp") for name in BY_POLICY},
}
"""The controller's policies, and MLTCP with the other shapes."""


def policy_named(name: str, policies: Mapping[str, Policy] = SIM_POLICIES) -> Policy:
    """A policy of the simulator, or of `policies`.

    Raises:
        ValueError: there is none of this name; the message lists those there are.
    """
    if name not in policies:
        raise ValueError(f"{name!r} is no policy; legal: {', '.join(sorted(policies))}")
    return policies[name]


@dataclass(frozen=True)
class FabricState:
    """A topology with what is down now; `down_links` are sorted name pairs."""

    topology: Topology
    down_links: frozenset[tuple[str, str]] = frozenset()
    down_switches: frozenset[str] = frozenset()

    @cached_property
    def forwarding(self) -> Forwarding:
        """What the switches forward by."""
        return forwarding(self.topology, self.down_links, self.down_switches)

    def alive(self, path: Path) -> bool:
        """Whether every cable and switch of a path is up."""
        return self.down_switches.isdisjoint(path) and all(
            pair(a, b) not in self.down_links for a, b in pairwise(path)
        )


class Decider:
    """Asks the planner, remembers its last plan, and answers for every flow and job.

    `seed` draws ECMP's source ports by flow name, as the planner does (agents that nobody tells draw others).
    `elephant_bytes`: flows below are left
    to ECMP in the lowest class.
    """

    def __init__(self, policy: Policy, seed: int, elephant_bytes: int) -> None:
        self.policy = policy
        self._seed = seed
        self._elephant_bytes = elephant_bytes
        self._previous: Plan | None = None
        self._ports: dict[str, int] = {}

    @property
    def one_by_one(self) -> bool:
        """Whether a job's plan does not depend on the others: then only new jobs need one."""
        p = self.policy
        return (p.routing, p.priority, p.interleave) == ("ecmp", "equal", "none")

    def plan(self, fabric: FabricState, jobs: Sequence[Job], now_ps: int) -> Plan:
        """The plan for these jobs from now on. Pure but for the memory of the plan before."""
        decided = plan(
            PlanInput(
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
        )
        self._previous = decided
        return decided

    def ecmp_path(self, fabric: FabricState, flow: str, src: str, dst: str) -> Path | None:
        """Where the fabric's hash leads a flow with a port drawn for it; None if nowhere."""
        if src == dst:
            return (src,)
        if flow not in self._ports:
            self._ports[flow] = draw_port(flow, self._seed)
        path = path_of(fabric.topology, fabric.forwarding, src, dst, self._ports[flow])
        return path if path and fabric.alive(path) else None

    def forget(self, flows: Sequence[str]) -> None:
        """The flows are gone."""
        for flow in flows:
            self._ports.pop(flow, None)


@dataclass(frozen=True, slots=True)
class Orders:
    """What a plan says to one job: `paths` by flow (missing: by ECMP), its class and rhythm, and the weights
    of its senders (`JobRun.weights`; None: as the job says)."""

    paths: Mapping[str, Path]
    klass: int
    rhythm: IterationSchedule
    weights: tuple[float, ...] | None


def orders(plan: Plan, job: str, flows: Sequence[str], lead_ps: int) -> Orders:
    """A plan's word for one job. The planner's shift is of the first flow, `lead_ps` into an iteration."""
    decided = plan.jobs[job]
    paths = {f: plan.flows[f].path for f in flows if f in plan.flows}
    if decided.period_ns is None:
        rhythm = FREE
    else:
        rhythm = IterationSchedule(
            plan.epoch_ns * PS_PER_NS,
            decided.shift_ns * PS_PER_NS - lead_ps,
            decided.period_ns * PS_PER_NS,
            decided.once,
            REALIGN if decided.realign is None else decided.realign,
        )
    return Orders(
        paths={f: p for f, p in paths.items() if p is not None},
        klass=_klass(plan.policy, decided),
        rhythm=rhythm,
        weights=_weights(plan.policy, decided),
    )


def _weights(policy: Policy, decided: JobPlan) -> tuple[float, ...] | None:
    if decided.sender == "mltcp":
        return weights(BY_POLICY.get(policy.name, LINEAR))
    return () if decided.sender == "dcqcn" else None


def _klass(policy: Policy, decided: JobPlan) -> int:
    """The class of a job's queue; without compression its level itself, beyond the switches' classes too."""
    if not policy.compress:
        return decided.level
    return CLASSES - 1 - TRAFFIC_CLASSES.queues[decided.dscp]


EQUAL_CLASS = CLASSES - 1 - TRAFFIC_CLASSES.queues[TRAFFIC_CLASSES.equal]
"""Where flows are before any plan has reached them."""
