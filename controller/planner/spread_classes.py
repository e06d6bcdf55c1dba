# SPDX-License-Identifier: Apache-2.0
"""Which DSCPs the switches spread over their ECMP groups, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.model import Flow, JobPlan
from controller.model.plan import SpreadClass, Spreading
from controller.planner.inputs import PlanInput
from controller.routing.routings import LeastCongested
from controller.routing.spray_load import spraying_fits
from controller.routing.spreading import MOVE_FLOWLETS, SPRAY_ORDERS, Spray, SpreadRouting
from controller.routing.topology_cache import cached_by_part
from topo.graph import Topology


def spreading_of(inputs: PlanInput) -> Spreading | None:
    """How switches spread packets: as the policy says, or in turn where that makes paths needless; None: they
    do not."""
    routing = inputs.policy.routing
    if isinstance(routing, SpreadRouting):
        return routing.spreading(min((link.rate_bps for link in inputs.topology.links), default=1))
    if isinstance(routing, LeastCongested) and routing.spray and _needs_no_paths(inputs):
        return Spreading(SPRAY_ORDERS[Spray().order])
    return None


def _needs_no_paths(inputs: PlanInput) -> bool:
    """Whether the NICs of all elephants take packets in any order, and sprayed packets fill no link between
    switches, whatever the jobs send."""
    found = []
    for job in inputs.jobs:
        pairs = _pairs(inputs.topology, job.flows, inputs.elephant_bytes)
        if pairs is None:
            return False
        found.append(pairs)
    all_pairs = frozenset[tuple[str, str]]().union(*found)
    return bool(all_pairs) and spraying_fits(
        inputs.topology, all_pairs, inputs.down_links, inputs.down_switches
    )


@cached_by_part
def _pairs(
    topology: Topology, flows: tuple[Flow, ...], elephant_bytes: int
) -> frozenset[tuple[str, str]] | None:
    """The pairs of hosts (sender, receiver) with elephants; None if a NIC of one needs packets in order."""
    pairs = set()
    for flow in flows:
        if flow.bytes_per_iteration >= elephant_bytes:
            if not (topology.host[flow.src].any_order and topology.host[flow.dst].any_order):
                return None
            pairs.add((flow.src, flow.dst))
    return frozenset(pairs)


def spread_classes(spreading: Spreading | None, jobs: Iterable[JobPlan]) -> tuple[SpreadClass, ...]:
    """The DSCPs of the jobs, each once, with what switches do with their packets."""
    if spreading is None:
        return ()
    return tuple(SpreadClass(dscp, spreading) for dscp in sorted({job.dscp for job in jobs}))


def needless_paths(inputs: PlanInput, spreading: Spreading | None) -> Iterator[str]:
    """Why the packets of a job are sprayed although the policy chooses paths."""
    if spreading is not None and inputs.policy.routing.chooses_paths:
        yield (
            "packets sprayed over all ports: the NICs take them in any order, and no link between switches "
            "can then be short (the paths are for switches that cannot spray)"
        )


def spread_reason(spreading: Spreading) -> str:
    """Why a flow has no path."""
    if spreading.action == MOVE_FLOWLETS:
        return (
            f"left to the switches: after a pause of {spreading.gap_us} us it moves to the port that has "
            "sent the least"
        )
    order = "in turn" if spreading.action == "spray_in_turn" else "at random"
    return f"left to the switches: its packets are sprayed over all ports {order}"
