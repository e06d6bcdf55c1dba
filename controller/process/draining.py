# SPDX-License-Identifier: Apache-2.0
"""The drains that the REST API offers, on a running controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from controller.live.core import Core
from controller.live.drained import Drained
from controller.live.operator_commands import DrainSet
from controller.model.job import Flow, Job
from controller.northbound.drain_routes import DrainedPart, Part
from controller.northbound.problems import OperationError
from controller.process.worker_process import WorkerProcess
from controller.routing.forwarding import SwitchForwarding, forwarding
from controller.routing.from_topology import parse_failures
from controller.routing.paths import route_to
from controller.southbound.fleet import RunnerError
from controller.southbound.table_writes import FabricCondition
from topo.graph import Topology

Cable = tuple[str, str]


class RunningDrains:
    """The `DrainOperations` of a running controller. Use it on the controller's event loop.

    `command` gives the core an input; `worker` looks for paths.
    """

    def __init__(self, core: Core, command: Callable[[DrainSet], None], worker: WorkerProcess) -> None:
        self._core = core
        self._command = command
        self._worker = worker
        # What is asked for. The core has it after its next step.
        self._wanted = core.links.drained

    def drained(self) -> Sequence[DrainedPart]:
        """All links and switches that are drained, sorted by name."""
        switches = (DrainedPart("switch", name, self._done(name)) for name in sorted(self._wanted.switches))
        links = (DrainedPart("link", "-".join(c), self._done(c)) for c in sorted(self._wanted.links))
        return (*switches, *links)

    async def drain(self, part: Part, name: str, cut_off: bool) -> DrainedPart:
        """Take a link or switch out of use. Raises OperationError."""
        parts, before = self._parts(part, name), self._wanted
        wanted = Drained(before.links | parts.links, before.switches | parts.switches)
        if wanted != before and not cut_off:
            await self._check(wanted)
            if self._wanted != before:
                raise OperationError(409, "what is drained was changed meanwhile: look at it, then ask again")
        self._set(wanted)
        done = all(map(self._done, parts.links)) and all(map(self._done, parts.switches))
        names = ["-".join(cable) for cable in parts.links]
        return DrainedPart(part, names[0] if len(names) == 1 else name, done)

    def undrain(self, part: Part, name: str) -> None:
        """Take a link or switch back into use. Raises OperationError."""
        parts, before = self._parts(part, name), self._wanted
        if not (parts.links & before.links or parts.switches & before.switches):
            raise OperationError(404, f"{name} is not drained")
        self._set(Drained(before.links - parts.links, before.switches - parts.switches))

    def _set(self, wanted: Drained) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self._command(DrainSet(wanted))

    def _parts(self, part: Part, name: str) -> Drained:
        topology = self._core.topology
        if part == "switch":
            if name not in topology.switch:
                raise OperationError(404, f"no switch {name!r}; legal: a switch, as {min(topology.switch)}")
            return Drained(switches=frozenset({name}))
        return Drained(links=cables_of(topology, name))

    async def _check(self, wanted: Drained) -> None:
        """Refuse to drain what present jobs need. Raises OperationError."""
        core = self._core
        after = wanted.beside(*core.links.condition.failed)
        try:
            cut = await self._worker.run(
                flows_cut_off, core.topology, core.registry.jobs, core.condition, after
            )
        except RunnerError as error:
            raise OperationError(503, f"the paths that would be left are not known: {error}") from None
        if cut:
            count, first = cut
            raise OperationError(
                409,
                f"{count} flows of present jobs would have no path left, {first} first; legal: end "
                "these jobs, or cut_off (--cut-off)",
            )

    def _done(self, part: str | Cable) -> bool:
        core = self._core
        condition = core.condition
        if part not in condition.down_switches and part not in condition.down_links:
            return False
        planned = core.failovers.condition
        return not core.registry.jobs or part in planned.down_switches or part in planned.down_links


def cables_of(topology: Topology, name: str) -> frozenset[Cable]:
    """The cables between two switches that a name means: one, or all that join the two. Raises OperationError
    (404) for a name of none.
    """
    try:
        found = parse_failures(topology, (name,)).links
    except ValueError:
        found = frozenset()
    cables = frozenset(one for cable in found for one in topology.bundles.get(cable, (cable,)))
    between = frozenset(
        cable for cable in cables if all(node in topology.switch for node, _ in topology.cables[cable])
    )
    if not between:
        pairs = sorted({"-".join(sorted((link.a, link.b))) for link in topology.links})
        legal = f"the cable of two switches, as {pairs[0]}" if pairs else "none in this fabric"
        raise OperationError(404, f"no link {name!r}; legal: {legal}")
    return between


def flows_cut_off(
    topology: Topology, jobs: Sequence[Job], before: FabricCondition, after: FabricCondition
) -> tuple[int, str] | None:
    """How many flows have a path before a change of the fabric's condition and none after it, and the first
    of them; None if there are none.
    """
    was = forwarding(topology, before.down_links, before.down_switches)
    will_be = forwarding(topology, after.down_links, after.down_switches)

    def reaches(now: Mapping[str, SwitchForwarding], down: frozenset[str], flow: Flow) -> bool:
        src, dst = topology.host[flow.src].leaf, topology.host[flow.dst].leaf
        if src in down or dst in down:
            return False
        return src == dst or route_to(topology, now, src, flow.dst) is not None

    lost: dict[tuple[str, str], bool] = {}
    cut = []
    for flow in (flow for job in jobs for flow in job.flows):
        ends = topology.host[flow.src].leaf, topology.host[flow.dst].leaf
        if ends not in lost:
            had = reaches(was, before.down_switches, flow)
            lost[ends] = had and not reaches(will_be, after.down_switches, flow)
        if lost[ends]:
            cut.append(flow.name)
    return (len(cut), cut[0]) if cut else None
