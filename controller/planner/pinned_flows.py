# SPDX-License-Identifier: Apache-2.0
"""Switch entries for single flows.

A flow needs a pin where no source port leads along its path, and a remark where its QP keeps another DSCP.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from controller.model import FlowPin, FlowPlan, FlowRemark, QueuePair
from controller.planner.inputs import PlanInput
from controller.routing.assign import Assignment
from controller.routing.paths import Forwarding, Path, path_of, route_to
from controller.wire.rocev2 import ROCE_SOURCE_PORTS

PORT_UNKNOWN = "its NIC chooses the source port, and the agent has not reported it yet: left to ECMP"


@dataclass(frozen=True, slots=True)
class Pinned:
    """The assignments with a source port for every path, the pins that some flows need, and the cause of each
    flow's pins."""

    assignments: Mapping[str, Assignment]
    pins: tuple[FlowPin, ...]
    causes: Mapping[str, str]

    def words(self, flow: str) -> str:
        """The part of a flow's reason that explains its pins. Empty without pins."""
        if flow not in self.causes:
            return ""
        where = ", ".join(p.switch for p in self.pins if p.flow == flow)
        return f"; pinned in {where}: {self.causes[flow]}"


def kept_ports(queue_pairs: Mapping[str, QueuePair]) -> Mapping[str, int]:
    """The source ports of flows whose NIC keeps its own port, where the agent has reported it."""
    return {f: q.source_port for f, q in queue_pairs.items() if q.port_fixed and q.source_port}


def flows_of_unknown_port(queue_pairs: Mapping[str, QueuePair]) -> frozenset[str]:
    """Flows whose NIC chooses the source port, while the agent has not reported it: their path is unknown."""
    return frozenset(f for f, q in queue_pairs.items() if q.port_fixed and not q.source_port)


def pin(inputs: PlanInput, table: Forwarding, assignments: Mapping[str, Assignment]) -> Pinned:
    """Pin every flow whose source port does not lead along its path, in the switches of the path.

    These are flows whose NIC keeps its own port, flows to whose path no free port leads, flows whose probes
    took another path, and all flows where the hash is not known. A flow is left to ECMP if a switch has no
    room for its entry, or if another flow has the same 5-tuple.
    """
    used: dict[tuple[str, str], set[int]] = defaultdict(set)
    for a in assignments.values():
        if a.path and a.source_port is not None:
            used[a.path[0], a.path[-1]].add(a.source_port)
    before = inputs.previous.flows if inputs.previous is not None else {}
    pinned_before = {p.flow for p in inputs.previous.pins} if inputs.previous is not None else set()
    room: Counter[str] = Counter()
    seen: dict[tuple[str, str, int], str] = {}
    result: dict[str, Assignment] = {}
    pins: list[FlowPin] = []
    causes: dict[str, str] = {}
    for name, a in assignments.items():
        result[name] = a
        if a.path is None:
            continue
        ends = a.path[0], a.path[-1]
        port = a.source_port
        if port is None:
            was = before.get(name)
            port = _free_port(used[ends], was.source_port if was is not None else None)
        if port is None:
            result[name] = Assignment(
                None, None, False, "left to ECMP: its host pair has no free source port"
            )
            continue
        other = seen.setdefault((*ends, port), name)
        if other != name:
            same = f"left to ECMP: it has the same 5-tuple as {other}, so the switches cannot tell them apart"
            result[name] = Assignment(None, None, False, same)
            continue
        used[ends].add(port)
        if port != a.source_port:
            result[name] = replace(a, source_port=port)
        cause = _cause(inputs, table, name, a, port, pinned_before=name in pinned_before)
        if not cause:
            continue
        entries = [
            FlowPin(name, switch, toward, *ends, port) for switch, toward in choices(inputs, table, a.path)
        ]
        full = [p.switch for p in entries if room[p.switch] >= inputs.pin_capacity]
        if full:
            words = (
                f"left to ECMP: {cause}, and {full[0]} has no room for more than {inputs.pin_capacity} flows"
            )
            result[name] = Assignment(None, None, False, words)
            continue
        room.update(p.switch for p in entries)
        pins += entries
        causes[name] = cause
    return Pinned(result, tuple(pins), causes)


def choices(inputs: PlanInput, table: Forwarding, path: Path) -> tuple[tuple[str, str], ...]:
    """The switches of a path that choose the next hop by the hash, each with the next node of the path."""
    found = []
    for switch, toward in pairwise(path[1:]):
        route = route_to(inputs.topology, table, switch, path[-1])
        if route is not None and route.kind == "group":
            found.append((switch, toward))
    return tuple(found)


def remarks(inputs: PlanInput, flows: Mapping[str, FlowPlan]) -> tuple[FlowRemark, ...]:
    """The DSCP rewrites at leaves, for flows whose QP keeps another DSCP than the plan's.

    Flows of unknown source port are left out. A job that came after the planning run began is not in
    `flows`; the next plan includes it.
    """
    result = []
    keeping = {name: q for name, q in inputs.queue_pairs.items() if q.dscp is not None}
    for job in inputs.jobs if keeping else ():
        for flow in job.flows:
            queue_pair = keeping.get(flow.name)
            planned = flows.get(flow.name) if queue_pair is not None else None
            sent = queue_pair.dscp if queue_pair is not None else None
            if queue_pair is None or planned is None or sent is None or sent == planned.dscp:
                continue
            port = planned.source_port or queue_pair.source_port
            if not port:
                # Without the port the leaf cannot distinguish the flow from others of its host and DSCP.
                continue
            leaf = inputs.topology.host[flow.src].leaf
            result.append(FlowRemark(flow.name, leaf, flow.src, flow.dst, port, sent, planned.dscp))
    return tuple(result)


def _cause(
    inputs: PlanInput, table: Forwarding, name: str, a: Assignment, port: int, *, pinned_before: bool
) -> str:
    """Why a source port does not lead along the path. Empty if it does."""
    path = a.path or ()
    learned = (inputs.learned or {}).get((path[0], path[-1]), {}).get(path, ())
    known = inputs.topology.hash.known or port in learned
    queue_pair = inputs.queue_pairs.get(name)
    kept = queue_pair is not None and queue_pair.port_fixed
    trusted = known and name not in inputs.mistrusted
    # A port that the planner searched for leads along the path. A port that the NIC keeps, or that the flow
    # had while it was pinned, leads there only by chance.
    searched = a.source_port is not None and not kept and (not pinned_before or port in learned)
    if trusted and (searched or path_of(inputs.topology, table, path[0], path[-1], port) == path):
        return ""
    if not choices(inputs, table, path):
        return ""
    if kept:
        return f"its NIC keeps source port {port}, which leads elsewhere"
    if not known:
        return "the switches' hash is not known"
    return "its probes took another path" if name in inputs.mistrusted else "no free source port leads there"


def _free_port(used: set[int], before: int | None) -> int | None:
    if before is not None and before not in used and before in ROCE_SOURCE_PORTS:
        return before
    return next((p for p in ROCE_SOURCE_PORTS if p not in used), None)
