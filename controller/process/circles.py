# SPDX-License-Identifier: Apache-2.0
"""The circles of links that the REST API offers, on a running controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.live.core import Core
from controller.model.plan import Plan
from controller.northbound.circle_routes import ArcOut, CircleOut, PredictedOut, TriedCircleOut
from controller.northbound.problems import OperationError
from controller.northbound.schema import PhaseOut
from controller.planner import PlanInput
from controller.planner.link_circle import LinkCircle, NotEvaluableError, link_circle, predicted
from controller.process.worker_process import WorkerProcess
from controller.southbound.fleet import RunnerError
from topo.graph import Topology

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class _Direction:
    """One direction of a cable: the nodes, and the planner's name of the link."""

    src: str
    dst: str
    link: tuple[str, str]


class RunningCircles:
    """The `CircleOperations` of a running controller. Use it on the controller's event loop.

    `worker` computes circles and predictions, in its turn among plans.
    """

    def __init__(self, core: Core, worker: WorkerProcess) -> None:
        self._core = core
        self._worker = worker

    async def circle(self, cable: str, src: str | None) -> CircleOut:
        """The circle of a link under the plan in force. Raises OperationError."""
        core, direction = self._core, _direction(self._core.topology, cable, src)
        plan = self._plan()
        try:
            found = await self._worker.run(link_circle, core.input_now(), plan, direction.link)
        except RunnerError as error:
            raise OperationError(503, f"the circle is not known: {error}") from None
        return self._shown(cable, direction, plan, found)

    async def tried(self, cable: str, src: str | None, shifts_ns: Mapping[str, int]) -> TriedCircleOut:
        """The circle with other shifts, and the expected iterations of all jobs. Raises OperationError."""
        direction = _direction(self._core.topology, cable, src)
        plan, inputs = self._plan(), self._core.input_now()
        try:
            found = await self._worker.run(_tried, inputs, plan, direction.link, shifts_ns)
        except RunnerError as error:
            raise OperationError(503, f"the circle is not known: {error}") from None
        if isinstance(found, str):
            raise OperationError(409, found)
        circle, before, after = found
        shown = self._shown(cable, direction, plan, circle, after)
        return TriedCircleOut(**dict(shown), before=_times(before), after=_times(after))

    def _plan(self) -> Plan:
        if self._core.plan is None:
            raise OperationError(404, "no plan yet: the first one is made when the first job arrives")
        return self._core.plan

    def _shown(
        self,
        cable: str,
        direction: _Direction,
        plan: Plan,
        circle: LinkCircle,
        expected: Mapping[str, float] | None = None,
    ) -> CircleOut:
        arcs = []
        for arc in circle.arcs:
            planned_ns = plan.jobs[arc.job].expected_ns if expected is None else expected.get(arc.job)
            arcs.append(
                ArcOut(
                    job=arc.job,
                    level=arc.level,
                    dscp=arc.dscp,
                    period_ms=arc.period_ns / _NS_PER_MS,
                    shift_ms=arc.shift_ns / _NS_PER_MS,
                    rounds=circle.perimeter_ns // arc.period_ns if circle.perimeter_ns else None,
                    slotted=arc.slotted,
                    phases=tuple(
                        PhaseOut(
                            start_ms=p.start_ns / _NS_PER_MS,
                            end_ms=p.end_ns / _NS_PER_MS,
                            rate_bps=p.rate_bps,
                        )
                        for p in arc.phases
                    ),
                    expected_ms=None if planned_ns is None else planned_ns / _NS_PER_MS,
                    alone_ms=arc.alone_ns / _NS_PER_MS,
                )
            )
        return CircleOut(
            link=cable,
            src=direction.src,
            dst=direction.dst,
            time_ns=self._core.now_ns,
            plan=plan.version,
            epoch_ns=plan.epoch_ns,
            capacity_bps=circle.capacity_bps,
            perimeter_ms=None if circle.perimeter_ns is None else circle.perimeter_ns / _NS_PER_MS,
            score=circle.score,
            jobs=tuple(arcs),
        )


def _tried(
    inputs: PlanInput, plan: Plan, link: tuple[str, str], shifts_ns: Mapping[str, int]
) -> tuple[LinkCircle, Mapping[str, float], Mapping[str, float]] | str:
    """Circle and predictions; the reason if there are none. For the worker process."""
    try:
        return (link_circle(inputs, plan, link, shifts_ns), *predicted(inputs, plan, shifts_ns))
    except NotEvaluableError as error:
        return str(error)


def _times(expected_ns: Mapping[str, float]) -> tuple[PredictedOut, ...]:
    return tuple(
        PredictedOut(job=name, expected_ms=ns / _NS_PER_MS) for name, ns in sorted(expected_ns.items())
    )


def _direction(topology: Topology, name: str, src: str | None) -> _Direction:
    """The direction of a cable that leaves `src`. Raises OperationError."""
    cable = next((cable for cable in topology.cables if "-".join(cable) == name), None)
    if cable is None:
        one = "-".join(min(topology.cables, default=("none",)))
        raise OperationError(404, f"no cable {name!r}; legal: a cable, as {one}")
    # The ends of a cable are in any order, and its name has theirs sorted.
    known = {f"{node}:{port}": node for node, port in topology.cables[cable]}
    nodes = {known.get(end, end): end for end in cable}
    first = next(iter(nodes))
    if src is not None and src not in nodes:
        raise OperationError(404, f"cable {name} does not begin at {src!r}; legal: {', '.join(nodes)}")
    begin = first if src is None else src
    end = next(node for node in nodes if node != begin)
    return _Direction(begin, end, (nodes[begin], nodes[end]))
