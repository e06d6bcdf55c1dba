# SPDX-License-Identifier: Apache-2.0
"""Answers to every single failure of a link, leaf or spine, computed before the failure happens.

After each plan the worker process computes them one by one. An answer that is still missing when its failure
happens is computed then, with the same result: a slow machine delays an answer but does not change it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller.model.plan import Plan
from controller.planner import PlanInput
from controller.planner.emergency import Emergencies, FlowReroutes
from controller.routing.fabric import Cable
from controller.routing.failover import Event, events
from controller.routing.topology_cache import cached_by_topology
from controller.southbound.table_writes import DesiredState, FabricCondition, SwitchWrites, writes_to
from topo.graph import Topology

# Bytes of prepared table writes that are kept. Chosen: bounds the controller's memory.
MAX_PREPARED_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class FailoverAnswer:
    """The answer to one failure: the flows that change, and the condition of the fabric after it."""

    reroutes: FlowReroutes
    condition: FabricCondition


class FailoverSearch:
    """Computes the answers for one plan and one condition of the fabric. It lives in the worker process."""

    def __init__(self, inputs: PlanInput, plan: Plan, condition: FabricCondition) -> None:
        self._topology = inputs.topology
        self._condition = condition
        self._before = DesiredState.of(condition, plan)
        self._emergencies = Emergencies(inputs, plan)

    def answers(self, chosen: tuple[Event, ...]) -> tuple[FailoverAnswer, ...]:
        """The answers to the chosen failures."""
        return tuple(
            FailoverAnswer(self._emergencies.answer(event), _after(self._topology, self._condition, event))
            for event in chosen
        )

    def writes(self, event: Event) -> Mapping[str, SwitchWrites]:
        """The table writes that lead each switch from its present tables to those after a failure."""
        moves = {s.name: self._before for s in self._topology.switches}
        after = replace(self._before, condition=_after(self._topology, self._condition, event))
        return writes_to(moves, after)


_kept: tuple[int, FailoverSearch] | None = None


def prepare(number: int, inputs: PlanInput, plan: Plan, condition: FabricCondition) -> None:
    """Runs in the worker process: make the search for the failovers of this number, in place of the last."""
    global _kept  # noqa: PLW0603 - a worker has no other place for what lasts between calls
    _kept = number, FailoverSearch(inputs, plan, condition)


def answers(number: int, chosen: tuple[Event, ...]) -> tuple[FailoverAnswer, ...] | None:
    """The answers to the chosen failures; None if the last search is not the one of this number."""
    return _kept[1].answers(chosen) if _kept is not None and _kept[0] == number else None


def writes(number: int, event: Event) -> Mapping[str, SwitchWrites] | None:
    """The table writes for one failure; None if the last search is not the one of this number."""
    return _kept[1].writes(event) if _kept is not None and _kept[0] == number else None


def _after(topology: Topology, condition: FabricCondition, event: Event) -> FabricCondition:
    return replace(condition, down_links=condition.down_links | _cables(topology, event))


def _cables(topology: Topology, event: Event) -> frozenset[tuple[str, str]]:
    """The cables that are down after the failure. The neighbours of a failed switch report all its cables."""
    if isinstance(event, tuple):
        return frozenset({event})
    return frozenset(topology.cable_at[event, port] for port in topology.ports[event])


@cached_by_topology
def _events(topology: Topology) -> tuple[Event, ...]:
    return tuple(events(topology))


def _is_down(topology: Topology, condition: FabricCondition, event: Event) -> bool:
    """Whether nothing is left that this event could fail."""
    return event in condition.down_switches or _cables(topology, event) <= condition.down_links


def _joins_switches(topology: Topology, cable: Cable) -> bool:
    return all(node in topology.switch for node, _ in topology.cables.get(cable, ()))


@dataclass(slots=True)
class PreparedFailovers:
    """The answers for one plan and one condition of the fabric.

    `missing` lists the failures whose answers are not computed yet, `unwritten` those whose table writes are
    not. `inputs` and `plan` are None before the first plan. `number` tells them from others of this process.
    """

    inputs: PlanInput | None = None
    plan: Plan | None = None
    condition: FabricCondition = field(default_factory=FabricCondition)
    missing: list[Event] = field(default_factory=list)
    unwritten: list[Event] = field(default_factory=list)
    _answers: dict[Event, FailoverAnswer] = field(default_factory=dict)
    _writes: dict[Event, Mapping[str, SwitchWrites]] = field(default_factory=dict)
    _bytes: int = 0
    number: int = field(default_factory=itertools.count(1).__next__)

    @property
    def desired(self) -> DesiredState:
        """The switches' state for the plan, in the condition that the plan was made for."""
        return DesiredState.of(self.condition, self.plan)

    @staticmethod
    def after(inputs: PlanInput, plan: Plan, condition: FabricCondition | None = None) -> PreparedFailovers:
        """All failures to prepare for after a new plan, without switches and cables that are down already.
        `condition` is the one that the plan was made for; None: nothing is drained.
        """
        condition = condition or FabricCondition(inputs.down_links, inputs.down_switches)
        todo = list(_events(inputs.topology))
        if condition.down_links or condition.down_switches:
            todo = [e for e in todo if not _is_down(inputs.topology, condition, e)]
        return PreparedFailovers(inputs, plan, condition, todo, list(todo))

    def put(self, found: tuple[FailoverAnswer, ...]) -> None:
        """Take answers."""
        self._answers |= {answer.reroutes.event: answer for answer in found}

    def put_writes(self, event: Event, found: Mapping[str, SwitchWrites]) -> bool:
        """Take the table writes for one failure; returns whether there is room for more."""
        self._bytes += sum(len(data) for w in found.values() for stage in w.stages for data in stage)
        if self._bytes <= MAX_PREPARED_BYTES:
            self._writes[event] = found
        return self._bytes < MAX_PREPARED_BYTES

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
            return cable if _joins_switches(topology, cable) else None
        suspects = switches or {node for cable in links for node, _ in topology.cables.get(cable, ())}
        suspects &= topology.switch.keys()
        for name in sorted(suspects):
            cables = _cables(topology, name) - before.down_links
            if links <= cables and switches <= {name} and (switches or links == cables):
                return name
        return None

    def unanswered(self, now: FabricCondition) -> tuple[str, ...]:
        """The parts that have failed since the plan, if they are several at once, for which there is no
        answer: switches, and cables between switches, by name."""
        if self.inputs is None or not self.inputs.jobs or self.event_of(now) is not None:
            return ()
        new = now.down_links - self.condition.down_links
        cables = (cable for cable in new if _joins_switches(self.inputs.topology, cable))
        switches = now.down_switches - self.condition.down_switches
        return (*sorted(switches), *sorted("-".join(cable) for cable in cables))

    def answer(self, event: Event) -> FailoverAnswer | None:
        """The answer to a failure; None if it is not computed yet."""
        return self._answers.get(event)

    def writes(self, now: FabricCondition) -> Mapping[str, SwitchWrites] | None:
        """The table writes from the plan's condition to `now`, by switch; None if they are not prepared."""
        event = self.event_of(now)
        if event is None or self.inputs is None or _after(self.inputs.topology, self.condition, event) != now:
            return None
        return self._writes.get(event)
