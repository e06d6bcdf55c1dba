# SPDX-License-Identifier: Apache-2.0
"""What a controller is told of a scenario's fabric, whatever the fabric is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyrhythm.scenario import ROCE_OVERHEAD_BYTES, Scenario
from topo.graph import Topology
from topo.jsonio import topology_to_json


def description(scenario: Scenario, topology: Topology, addresses: Mapping[str, str]) -> dict[str, Any]:
    """The graph as the controller may know it, where each switch is served (by name), the marking ramp."""
    return {
        "name": topology.name,
        "scenario": scenario.name,
        "topology": topology_to_json(topology),
        "switches": {
            s.name: {"address": addresses[s.name], "device_id": s.device_id} for s in topology.switches
        },
        "strays": scenario.strays,
        "ecn": {
            "kmin": scenario.ecn.kmin,
            "kmax": scenario.ecn.kmax,
            "pmax": scenario.ecn.pmax,
            "frame_bytes": scenario.packet_bytes + ROCE_OVERHEAD_BYTES,
        },
        "elephant_bytes": scenario.elephant_bytes,
        "verify": True,
    }
