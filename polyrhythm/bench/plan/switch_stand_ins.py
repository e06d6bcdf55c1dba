# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the switches of a large fabric, in one process.

`python -m polyrhythm.bench.plan.switch_stand_ins LEAVES SPINES` starts them. They acknowledge all writes,
hold no entries, forward nothing, and report all ports as up. The process prints the fabric's description as
one line of JSON, and ends when its input is closed. It has a low priority (nice 10), because it stands for
switches, which are other machines.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from finsy.proto import gnmi, gnmi_grpc

from controller.southbound.artefacts import load_artefacts
from polyrhythm.bench.hostfabric import NICENESS, fabric
from polyrhythm.bench.plan.effect import HOSTS_A_LEAF
from polyrhythm.bench.switch_servers import SwitchStandIn
from topo.jsonio import topology_to_json

_THREADS = 6
"""Of each server. Chosen: two streams stay open, and the controller makes few calls at once."""
_HOUR_MS = 3_600_000


class PortStandIns(gnmi_grpc.gNMIServicer):
    """The gNMI service of one switch whose ports are up for good."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports

    def Capabilities(  # noqa: N802
        self, request: gnmi.CapabilityRequest, context: grpc.ServicerContext
    ) -> gnmi.CapabilityResponse:
        """What every gNMI server answers."""
        return gnmi.CapabilityResponse(supported_encodings=[gnmi.PROTO], gNMI_version="0.7.0")

    def Set(self, request: gnmi.SetRequest, context: grpc.ServicerContext) -> gnmi.SetResponse:  # noqa: N802
        """Nothing can be set."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "nothing can be set here")

    def Get(self, request: gnmi.GetRequest, context: grpc.ServicerContext) -> gnmi.GetResponse:  # noqa: N802
        """The numbers of the ports."""
        found = [
            gnmi.Update(path=_path(port, "ifindex"), val=gnmi.TypedValue(uint_val=port))
            for port in self._ports
        ]
        return gnmi.GetResponse(notification=[gnmi.Notification(update=found)])

    def Subscribe(  # noqa: N802
        self, request_iterator: Iterator[gnmi.SubscribeRequest], context: grpc.ServicerContext
    ) -> Iterator[gnmi.SubscribeResponse]:
        """The states of the ports, and nothing more until the client ends the stream."""
        for number, _ in enumerate(request_iterator):
            if number == 0:
                up = gnmi.TypedValue(string_val="UP")
                found = [gnmi.Update(path=_path(port, "oper-status"), val=up) for port in self._ports]
                yield gnmi.SubscribeResponse(update=gnmi.Notification(update=found))
                yield gnmi.SubscribeResponse(sync_response=True)


def _path(port: int, leaf: str) -> gnmi.Path:
    interface = gnmi.PathElem(name="interface", key={"name": str(port)})
    names = [
        gnmi.PathElem(name="interfaces"),
        interface,
        gnmi.PathElem(name="state"),
        gnmi.PathElem(name=leaf),
    ]
    return gnmi.Path(elem=names)


def description(leaves: int, spines: int) -> tuple[dict[str, Any], list[grpc.Server]]:
    """The description of a fabric with two hosts for each leaf, and the servers of its switches."""
    topology, artefacts, writes = fabric(leaves, spines, HOSTS_A_LEAF), load_artefacts(), Counter[str]()
    servers, switches = [], {}
    for s in topology.switches:
        server = grpc.server(ThreadPoolExecutor(_THREADS))
        SwitchStandIn(artefacts, (), writes).add_to(server)
        gnmi_grpc.add_gNMIServicer_to_server(PortStandIns(sorted(topology.ports[s.name])), server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        switches[s.name] = {"address": address, "device_id": s.device_id}
        server.start()
        servers.append(server)
    told = {
        "name": "bench",
        "clock": "host",
        "control_delay_ns": 0,
        "topology": topology_to_json(topology),
        "switches": switches,
        "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
        "profile": "declared",
        "verify": False,
        # A stand-in holds no entries, so reading them back would write them all again.
        "read_back_ms": _HOUR_MS,
    }
    return told, servers


def main(leaves: int, spines: int) -> None:
    """Serve until the input is closed."""
    os.nice(NICENESS)
    told, servers = description(leaves, spines)
    print(json.dumps(told), flush=True)
    sys.stdin.read()
    for server in servers:
        server.stop(None)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
