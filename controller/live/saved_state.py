# SPDX-License-Identifier: Apache-2.0
"""Which part of the state of a live fabric outlasts the controller, and what of it has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.live.core import Core
from controller.live.drained import Drained
from controller.live.earlier_state import EarlierState
from controller.live.job_registry import RegisteredJob
from controller.live.messages import AgentUp, FlowOpened
from controller.live.notices import (
    JobArrived,
    JobLeft,
    Notice,
    PlanApplied,
    SwitchDown,
    SwitchUp,
)
from controller.live.operator_commands import ChosenPolicy
from controller.model.job import Job
from controller.model.plan import Plan
from controller.routing.assign import Learned
from controller.southbound.table_writes import FabricCondition
from controller.store.interface import Kind, LoadedState
from controller.store.records import PlanInForce, Workers, decode

# A port map as it is stored: each path with its source ports.
_PORTS = tuple[tuple[tuple[str, ...], tuple[int, ...]], ...]
# Chosen: so many plan numbers are reserved at once. Plans are shown before they are stored; after a crash the
# numbers go on above those that may have been shown. The store may be late by half of them.
RESERVED_NUMBERS = 100


@dataclass(frozen=True, slots=True)
class StateChange:
    """What one step has changed, for one commit. The values are not encoded yet.

    `records` are values by kind and key; None removes one. An event is (what, subject, details).
    """

    records: Mapping[tuple[Kind, str], object | None] = field(default_factory=dict)
    plans: tuple[Plan, ...] = ()
    events: tuple[tuple[str, str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.records or self.plans or self.events)


def event_of(notice: Notice) -> tuple[str, str, str] | None:
    """The entry of the log for a notice; None for a notice that is not logged there."""
    match notice:
        case JobArrived(_, job):
            return "job arrived", job.name, f"{job.model} on {', '.join(job.hosts)}"
        case JobLeft(_, job):
            return "job left", job.name, ""
        case PlanApplied(_, plan):
            return "plan in force", str(plan.version), plan.policy.name
        case SwitchUp(_, name):
            return "switch in service", name, ""
        case SwitchDown(_, name, why):
            return "switch lost", name, why
    return None


class SavedState:
    """Knows what of the core's state is stored, and finds what has changed since.

    `boot` names the clock that the core's times count by. `stored` are the kinds and keys that the store has
    at the start. `earlier` is what the core was given of them; what it did not take up is removed.
    """

    def __init__(
        self,
        core: Core,
        boot: str,
        stored: Iterable[tuple[Kind, str]] = (),
        earlier: EarlierState | None = None,
    ) -> None:
        self._core = core
        self._boot = boot
        self._plan = earlier.plan if earlier is not None and earlier.same_clock else None
        self._condition = earlier.condition if earlier is not None else None
        self._drained, self._policy = core.links.drained, core.chosen_policy
        self._port_maps: Learned = core.probes.learned(core.condition) or {}
        known = [j.announced for j in earlier.jobs] if earlier is not None else []
        self._announced = {job.name: job for job in known if core.registry.declared(job.name) is job}
        self._nics = dict(core.queue_pairs.nics)
        self._reserved = 0
        self._gone = {at for at in stored if not self._has(*at)}

    def _has(self, kind: Kind, key: str) -> bool:
        """Whether the core has taken up a record."""
        match kind:
            # `StoredHistory` removes what it does not take up.
            case Kind.FABRIC | Kind.HISTORY:
                return True
            case Kind.PORT_MAP:
                return tuple(key.split(">")) in self._port_maps
            case Kind.NIC:
                return key in self._nics
            case Kind.QUEUE_PAIR:
                return self._core.registry.job_of(key) is not None
        return key in self._announced

    def change(self, plan: Plan | None, notices: Iterable[Notice] = ()) -> StateChange:
        """What has changed since the last call. `plan` is in force, or comes into force now."""
        core = self._core
        records: dict[tuple[Kind, str], object | None] = dict.fromkeys(self._gone)
        self._gone = set()
        for name, known in core.registry.take_changed().items():
            records |= self._job(name, known)
        plans: tuple[Plan, ...] = ()
        if plan is not None and plan is not self._plan:
            self._plan, plans = plan, (plan,)
            records[Kind.FABRIC, "plan"] = PlanInForce(plan.version, self._boot)
            if self._reserved < plan.version + RESERVED_NUMBERS // 2:
                self._reserved = plan.version + RESERVED_NUMBERS
                records[Kind.FABRIC, "plan numbers"] = self._reserved
        if core.condition != self._condition:
            self._condition = core.condition
            records[Kind.FABRIC, "condition"] = core.condition
        if core.links.drained != self._drained:
            self._drained = core.links.drained
            records[Kind.FABRIC, "drained"] = core.links.drained
        if core.chosen_policy != self._policy:
            self._policy = core.chosen_policy
            records[Kind.FABRIC, "policy"] = core.chosen_policy
        records |= self._ports()
        for flow, opened in core.queue_pairs.take_changed().items():
            records[Kind.QUEUE_PAIR, flow] = opened
        for host, nic in core.queue_pairs.nics.items():
            if self._nics.get(host) is not nic:
                records[Kind.NIC, host] = self._nics[host] = nic
        return StateChange(records, plans, tuple(e for e in map(event_of, notices) if e is not None))

    def at_end(self) -> StateChange:
        """What to store before an orderly end: no number beyond the last one is reserved any more."""
        if self._plan is None or not self._reserved:
            return StateChange()
        return StateChange({(Kind.FABRIC, "plan numbers"): self._plan.version})

    def _ports(self) -> Mapping[tuple[Kind, str], object | None]:
        learned = self._core.probes.learned(self._core.condition) or {}
        before, self._port_maps = self._port_maps, learned
        return {
            (Kind.PORT_MAP, ">".join(pair)): list(learned[pair].items()) if pair in learned else None
            for pair in before.keys() | learned.keys()
            if learned.get(pair) is not before.get(pair)
        }

    def _job(self, name: str, known: RegisteredJob | None) -> Mapping[tuple[Kind, str], object | None]:
        if known is None:
            self._announced.pop(name, None)
            return {(kind, name): None for kind in (Kind.JOB, Kind.WORKERS, Kind.PROFILE)}
        found: dict[tuple[Kind, str], object | None] = {
            (Kind.WORKERS, name): Workers(tuple(sorted(known.ranks)), known.arrived, known.requested)
        }
        if self._announced.get(name) is not known.announced:
            self._announced[name] = known.announced
            found[Kind.JOB, name] = known.announced
        if known.job is not known.announced:
            found[Kind.PROFILE, name] = known.job
        return found


def read_back(loaded: LoadedState, plan: Plan | None, boot: str) -> EarlierState:
    """What an earlier controller has stored. `plan` is the plan that it says was in force.

    Raises:
        StoreRefusedError: a record is not readable; the message names it.
    """
    records = loaded.records
    jobs = []
    for name, data in records.get(Kind.JOB, {}).items():
        workers = decode(records.get(Kind.WORKERS, {}).get(name, b""), Workers, f"workers of job {name}")
        announced = decode(data, Job, f"job {name}")
        profile = records.get(Kind.PROFILE, {}).get(name)
        measured = announced if profile is None else decode(profile, Job, f"profile of job {name}")
        jobs.append(
            RegisteredJob(announced, measured, set(workers.ranks), workers.arrived, workers.requested)
        )
    fabric = records.get(Kind.FABRIC, {})
    condition, drained, policy = fabric.get("condition"), fabric.get("drained"), fabric.get("policy")
    in_force = plan_in_force(loaded)
    port_maps = {}
    for pair, data in records.get(Kind.PORT_MAP, {}).items():
        src, _, dst = pair.partition(">")
        port_maps[src, dst] = dict(decode(data, _PORTS, f"port map {pair}"))
    return EarlierState(
        tuple(jobs),
        plan,
        FabricCondition() if condition is None else decode(condition, FabricCondition, "fabric condition"),
        Drained() if drained is None else decode(drained, Drained, "what is drained"),
        None if policy is None else decode(policy, ChosenPolicy, "the chosen policy"),
        port_maps,
        same_clock=in_force is not None and in_force.boot == boot,
        nics=tuple(decode(d, AgentUp, f"NIC of host {h}") for h, d in records.get(Kind.NIC, {}).items()),
        queue_pairs=tuple(
            decode(d, FlowOpened, f"queue pair of flow {f}")
            for f, d in records.get(Kind.QUEUE_PAIR, {}).items()
        ),
        last_number=last_number(loaded),
    )


def last_number(loaded: LoadedState) -> int:
    """The highest plan number that may have been shown; 0: none. Raises StoreRefusedError."""
    data = loaded.records.get(Kind.FABRIC, {}).get("plan numbers")
    reserved = 0 if data is None else decode(data, int, "the reserved plan numbers")
    return max(loaded.last_version, reserved)


def plan_in_force(loaded: LoadedState) -> PlanInForce | None:
    """Which plan was in force; None if none was. Raises StoreRefusedError."""
    data = loaded.records.get(Kind.FABRIC, {}).get("plan")
    return None if data is None else decode(data, PlanInForce, "the number of the plan in force")
