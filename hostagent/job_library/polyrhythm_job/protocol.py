# SPDX-License-Identifier: Apache-2.0
"""The protocol between a training process and the agent of its host: JSON objects, one a line, over a Unix
socket.

The process sends requests, which have a key `op`: join, step, flow, end, status. The agent sends events,
which have a key `event`: flows, schedule, level, flow, status, error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyrhythm_job.schedule import REALIGN_THRESHOLD, Schedule

PROTOCOL_VERSION = 1
DEFAULT_SOCKET = "/run/polyrhythm/agent.sock"
"""The agent's socket where its configuration names no other."""
NO_LEVEL = 255
"""The priority level of a job that no plan has given one: below every other level."""


@dataclass(frozen=True, slots=True)
class FlowPlacement:
    """The UDP source port and the DSCP of a flow, and the reason `by` for them.

    `by` is one of: controller (it has just answered), known (it had said so before), mouse (the flow is
    below the controller's threshold), deadline (no answer in time), late (the controller's last answers
    were all late), alone (the agent has no controller), nobody (there is no agent). With nobody,
    `source_port` is 0: leave the choice to the NIC.
    """

    source_port: int
    dscp: int
    by: str

    @classmethod
    def read(cls, fields: Mapping[str, Any], by: str = "") -> FlowPlacement:
        """From the fields of an event. Raises KeyError, TypeError or ValueError for other fields."""
        return cls(int(fields["source_port"]), int(fields["dscp"]), by or str(fields["by"]))


def encode(message: Mapping[str, Any]) -> bytes:
    """One message as a line."""
    return json.dumps(message).encode() + b"\n"


def split_lines(received: bytes) -> tuple[list[bytes], bytes]:
    """The whole lines in `received`, and the incomplete line after them."""
    *lines, rest = received.split(b"\n")
    return lines, rest


def flows_event(flows: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """The source port and DSCP of each flow of a job."""
    fields = {flow: {"source_port": port, "dscp": dscp} for flow, (port, dscp) in flows.items()}
    return {"event": "flows", "flows": fields}


def read_flows(event: Mapping[str, Any]) -> dict[str, FlowPlacement]:
    """The placements of a flows event."""
    return {flow: FlowPlacement.read(fields, "controller") for flow, fields in event["flows"].items()}


def flow_event(request: object, flow: str, placement: FlowPlacement) -> dict[str, Any]:
    """The answer to the flow request with id `request`."""
    fields = {"source_port": placement.source_port, "dscp": placement.dscp, "by": placement.by}
    return {"event": "flow", "id": request, "flow": flow, **fields}


def schedule_event(schedule: Schedule, slot_ns: int, error_ns: int) -> dict[str, Any]:
    """The slots of a job: one at `slot_ns` of the host's monotonic clock, known to +- `error_ns`."""
    return {
        "event": "schedule",
        "slot_ns": slot_ns,
        "period_ns": schedule.period_ns,
        "realign": schedule.realign,
        "once": schedule.once,
        "error_ns": error_ns,
    }


def read_schedule(event: Mapping[str, Any]) -> tuple[Schedule, int]:
    """The schedule of a schedule event, on the host's monotonic clock, and the clock's error in ns."""
    realign = float(event.get("realign") or REALIGN_THRESHOLD)
    once = bool(event.get("once", False))
    schedule = Schedule(int(event["slot_ns"]), 0, int(event["period_ns"]), realign, once)
    return schedule, int(event["error_ns"])


def level_event(level: int) -> dict[str, Any]:
    """The priority level of a job in the plan: 0 is the highest, NO_LEVEL: it has none."""
    return {"event": "level", "level": level}


def error_event(why: str) -> dict[str, Any]:
    """The agent refuses what the process sent, and closes the connection."""
    return {"event": "error", "what": why[:1000]}
