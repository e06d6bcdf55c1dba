# SPDX-License-Identifier: Apache-2.0
"""Answers to every single failure of a link, leaf or spine, computed before the failure happens.

After each plan the worker process computes them one by one. An answer that is still missing when its failure
happens is computed then, with the same result: a slow machine delays an answer but does not change it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from controller.model.plan import Plan
from controller.planner import PlanInput
from controller.planner.emergency import Emergency, emergencies
from controller.routing.failover import Event, events
from controller.routing.forwarding import pair
from controller.southbound.table_writes import DesiredState, FabricCondition, SwitchWrites, writes_to
from topo.graph import Topology

# Bytes of prepared table writes that are kept; further answers are kept without their writes. Chosen: bounds
# the controller's memory.
MAX_PREPARED_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class FailoverAnswer:
    """The answer to one failure: flows that move, the condition after the failure, and the table writes.

    `writes` leads each switch from its present tables to the tables for `condition`; None: not prepared.
    """

    emergency: Emergency
    condition: FabricCondition
    writes: Mapping[str, SwitchWrites] | None


def prepare(
    inputs: PlanInput, plan: Plan, condition: FabricCondition, chosen: tuple[Event, ...], with_writes: bool
) -> tuple[FailoverAnswer, ...]:
    """The answers to the chosen failures. Runs in the worker process."""
    answers = []
    for emergency in emergencies(inputs, plan, chosen):
        after = _after(inputs.topology, condition, emergency.event)
        before = DesiredState(condition, plan.pins, plan.remarks)
        moves = {s.name: before for s in inputs.topology.switches}
        writes = None
        if with_writes:
            found = writes_to(moves, replace(before, condition=after))
            writes = {name: w for name, w in found.items() if w.updates}
        answers.append(FailoverAnswer(emergency, after, writes))
    return tuple(answers)


def pack(inputs: PlanInput, plan: Plan, condition: FabricCondition) -> bytes:
    """The state that `prepare_packed` needs, serialised once for all its calls."""
    return pickle.dumps((inputs, plan, condition), pickle.HIGHEST_PROTOCOL)


def prepare_packed(state: bytes, chosen: tuple[Event, ...], with_writes: bool) -> tuple[FailoverAnswer, ...]:
    """Like `prepare`, from a state that `pack` has serialised. The worker process caches the last state."""
    return prepare(*_unpacked(state), chosen, with_writes)


@lru_cache(maxsize=1)
def _unpacked(state: bytes) -> tuple[PlanInput, Plan, FabricCondition]:
    read: tuple[PlanInput, Plan, FabricCondition] = pickle.loads(state)
    return read


def _after(topology: Topology, condition: FabricCondition, event: Event) -> FabricCondition:
    return replace(condition, down_links=condition.down_links | _cables(topology, event))


def _cables(topology: Topology, event: Event) -> frozenset[tuple[str, str]]:
    """The cables that are down after the failure. The neighbours of a failed switch report all its cables."""
    if isinstance(event, tuple):
        return frozenset({event})
    return frozenset(pair(event, peer.node) for peer in topology.ports[event].values())


@dataclass(slots=True)
class PreparedFailovers:
    """The answers for one plan and one condition of the fabric.

    `missing` lists the failures whose answers are not computed yet. `inputs` and `plan` are None before the
    first plan.
    """

    inputs: PlanInput | None = None
    plan: Plan | None = None
    condition: FabricCondition = field(default_factory=FabricCondition)
    missing: list[Event] = field(default_factory=list)
    _answers: dict[Event, FailoverAnswer] = field(default_factory=dict)
    _bytes: int = 0

    @property
    def desired(self) -> DesiredState:
        """The switches' state for the plan, in the condition that the plan was made for."""
        return DesiredState.of(self.condition, self.plan)

    @staticmethod
    def after(inputs: PlanInput, plan: Plan) -> PreparedFailovers:
        """All failures to prepare for after a new plan, without switches and cables that are down already."""
        condition = FabricCondition(inputs.down_links, inputs.down_switches)
        todo = [
            e
            for e in events(inputs.topology)
            if not _cables(inputs.topology, e) <= condition.down_links and e not in condition.down_switches
        ]
        return PreparedFailovers(inputs, plan, condition, todo)

    def put(self, answers: tuple[FailoverAnswer, ...]) -> None:
        """Keep answers that the worker process has computed."""
        for answer in answers:
            writes = answer.writes or {}
            size = sum(len(w) for x in writes.values() for stage in x.stages for w in stage)
            room = self._bytes + size <= MAX_PREPARED_BYTES
            self._bytes += size if room else 0
            self._answers[answer.emergency.event] = answer if room else replace(answer, writes=None)

    def event_of(self, now: FabricCondition) -> Event | None:
        """The single failure that leads from the plan's condition to `now`; None if it takes several."""
        if self.inputs is None or not self.inputs.jobs:
            return None
        topology, before = self.inputs.topology, self.condition
        links, switches = now.down_links - before.down_links, now.down_switches - before.down_switches
        if before.down_links - now.down_links or before.down_switches - now.down_switches:
            return None
        if not switches and len(links) == 1:
            (cable,) = links
            return cable if cable[0] in topology.switch and cable[1] in topology.switch else None
        suspects = switches or {end for cable in links for end in cable if end in topology.switch}
        for name in sorted(suspects):
            cables = _cables(topology, name) - before.down_links
            if links <= cables and switches <= {name} and (switches or links == cables):
                return name
        return None

    def answer(self, event: Event) -> FailoverAnswer | None:
        """The answer to a failure; None if it is not computed yet."""
        return self._answers.get(event)

    def writes(self, now: FabricCondition) -> Mapping[str, SwitchWrites] | None:
        """The table writes from the plan's condition to `now`, by switch; None if they are not prepared."""
        event = self.event_of(now)
        answer = self._answers.get(event) if event is not None else None
        return answer.writes if answer is not None and answer.condition == now else None
