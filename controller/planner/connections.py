# SPDX-License-Identifier: Apache-2.0
"""Switch entries for the open TCP and UDP connections that carry flows, for a plan that is made.

An open connection keeps its ports, so where they do not lead along the path of its flow, switches pin it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from controller.model import FlowPlan
from controller.model.plan import Connection, ConnectionPlan, FlowPin
from controller.planner.inputs import PlanInput
from controller.planner.pinned_flows import choices
from controller.routing.forwarding import forwarding
from controller.routing.paths import Forwarding, path_of


def connection_plans(
    inputs: PlanInput,
    flows: Mapping[str, FlowPlan],
    pins: Iterable[FlowPin],
    connections: Iterable[Connection],
) -> tuple[ConnectionPlan, ...]:
    """What switches do for the connections of flows that the plan has, in the order given.

    `flows` and `pins` are those of the plan. A connection goes by ECMP if a switch has no room for one more
    entry beside them.
    """
    ends = {f.name: (f.src, f.dst) for job in inputs.jobs for f in job.flows}
    table = forwarding(inputs.topology, inputs.down_links, inputs.down_switches)
    room = Counter(pin.switch for pin in pins)
    result = []
    for connection in connections:
        planned, known = flows.get(connection.flow), ends.get(connection.flow)
        if planned is None or known is None:
            continue
        needed = _pins(inputs, table, planned, connection)
        if any(room[switch] >= inputs.pin_capacity for switch, _ in needed):
            needed = ()
        room.update(switch for switch, _ in needed)
        result.append(ConnectionPlan(connection, *known, planned.dscp, needed))
    return tuple(result)


def _pins(
    inputs: PlanInput, table: Forwarding, planned: FlowPlan, connection: Connection
) -> tuple[tuple[str, str], ...]:
    path = planned.path
    if path is None:
        return ()
    taken = path_of(
        inputs.topology, table, path[0], path[-1], connection.source_port,
        protocol=connection.protocol, dest_port=connection.dest_port,
    )  # fmt: skip
    return () if taken == path else choices(inputs, table, path)
