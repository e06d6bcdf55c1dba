# SPDX-License-Identifier: Apache-2.0
"""A small fabric in host time, for benches: embedded switches in one process, served on real ports.

It prints its description as one line of JSON, and ends when its input is closed. For each number that it
reads, the link between leaf1 and spine1 goes down for this many milliseconds. The controller then reconciles
its tables and plans again. The process has a low priority (nice 10), because it stands for switches, which
are other machines.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from bmv2 import EmbeddedSwitch
from bmv2.hostloop import HostLoop
from bmv2.server import serve
from topo.generate import leaf_spine
from topo.graph import Topology
from topo.jsonio import topology_to_json

RATE_BPS = 1_000_000_000
HOSTS_PER_LEAF = 25
NICENESS = 10


def fabric(leaves: int = 2, spines: int = 2, hosts_per_leaf: int = HOSTS_PER_LEAF) -> Topology:
    """A leaf-spine fabric; by default of 2 leaves, 2 spines and 50 hosts."""
    return leaf_spine(leaves, spines, hosts_per_leaf, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


def main() -> None:
    """Serve until the input is closed."""
    os.nice(NICENESS)
    topology = fabric()
    loop = HostLoop()
    switches = {s.name: EmbeddedSwitch(s.name, loop) for s in topology.switches}

    def transmit(node: str, port: int) -> Callable[[bytes], None]:
        return partial(switches[node].receive, port) if node in switches else lambda frame: None

    for name, switch in switches.items():
        for port, peer in topology.ports[name].items():
            switch.add_port(port, rate_bps=peer.rate_bps, transmit=transmit(peer.node, peer.port))
    servers = {s.name: serve(switches[s.name], loop, device_id=s.device_id) for s in topology.switches}
    threading.Thread(target=loop.run, daemon=True).start()
    description = {
        "name": "bench",
        "clock": "host",
        "control_delay_ns": 0,
        "topology": topology_to_json(topology),
        "switches": {
            s.name: {"address": servers[s.name].address, "device_id": s.device_id} for s in topology.switches
        },
        "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
        "verify": False,
    }
    print(json.dumps(description), flush=True)
    port = next(p for p, peer in topology.ports["leaf1"].items() if peer.node == "spine1")
    for line in sys.stdin:
        for up in (False, True):
            loop.call("bench", partial(switches["leaf1"].set_port_up, port, up))
            if not up:
                time.sleep(int(line) / 1e3)
    for server in servers.values():
        server.stop()
    loop.stop()


if __name__ == "__main__":
    main()
