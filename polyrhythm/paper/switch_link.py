# SPDX-License-Identifier: Apache-2.0
"""Emulated NICs on a small fabric of embedded P4 switches, without a controller.

The switches run the compiled P4 program. They hold the entries that the southbound writes into every switch
(forwarding, queues, ECN), and none for single flows: the traffic goes by ECMP, here over the only path.
"""

from __future__ import annotations

from functools import partial

from bmv2 import EmbeddedSwitch
from bmv2.entries import Exact, Lpm, MatchValue, Range, TableEntry
from bmv2.program import load_program
from controller.model import TRAFFIC_CLASSES
from controller.routing.forwarding import forwarding
from controller.southbound.artefacts import load_artefacts
from controller.southbound.desired import EcnProfile, Entry, Match, desired_entries
from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.emulated import EmulatedNic
from hostagent.nic.roce import OVERHEAD_BYTES
from polyrhythm.fabric.heap import EventHeap
from topo.generate import leaf_spine

RATE_BPS = 25_000_000
"""50 Gbit/s at the scale of the scenarios, 2000."""
MTU = 1024
FRAME_BYTES = MTU + OVERHEAD_BYTES
PMAX = 0.2
"""The probability of a mark at the end of the ramp: the default of the scenarios."""
QUEUE_PACKETS = 256
"""Depth of each queue: the default of the scenarios."""


class SwitchLink:
    """Two leaves with `pairs` hosts each, joined by one spine: a link that all flows from the first leaf
    share.

    `nics` holds the hosts of the first leaf, then those of the second, as `topology` does; `ips` their
    addresses. The heap runs everything. `ramp` is the ECN ramp: the depths in packets up to which nothing,
    and from which everything is marked. `seed` is that of the marks.
    """

    def __init__(
        self,
        pairs: int,
        *,
        ramp: tuple[int, int],
        seed: int,
        queue_packets: int = QUEUE_PACKETS,
    ) -> None:
        self.heap = EventHeap()
        self.topology = topology = leaf_spine(2, 1, pairs, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
        program = load_program(load_artefacts().device_config)
        ecn = EcnProfile(*ramp, PMAX, FRAME_BYTES)
        self.switches: dict[str, EmbeddedSwitch] = {}
        self.nics: list[EmulatedNic] = []
        self.ips = [h.ip for h in topology.hosts]
        hosts: dict[str, EmulatedNic] = {}
        for name, tables in forwarding(topology).items():
            switch = self.switches[name] = EmbeddedSwitch(name, self.heap, seed=seed)
            switch.load(program)
            for entry in desired_entries(topology.switch[name], tables, TRAFFIC_CLASSES, ecn):
                write_entry(switch, entry)
        for host in topology.hosts:
            nic = hosts[host.name] = EmulatedNic(
                host.name,
                host.ip,
                host.mac,
                topology.switch[host.leaf].mac,
                RATE_BPS,
                clock=self.heap,
                transmit=partial(self.switches[host.leaf].receive, host.leaf_port),
                dcqcn=DcqcnProfile.scaled(RATE_BPS, FRAME_BYTES),
                mtu=MTU,
            )
            nic.set_traffic_classes(TRAFFIC_CLASSES.cnp, TRAFFIC_CLASSES.ack, TRAFFIC_CLASSES.levels)
            self.nics.append(nic)
        for name, switch in self.switches.items():
            for port, peer in topology.ports[name].items():
                switch.add_port(
                    port,
                    rate_bps=peer.rate_bps,
                    transmit=hosts[peer.node].receive
                    if peer.node in hosts
                    else partial(self.switches[peer.node].receive, peer.port),
                    queue_packets=queue_packets,
                )


def write_entry(switch: EmbeddedSwitch, entry: Entry) -> None:
    """Write an entry of a table, not of a meter, as a P4Runtime server would."""
    if entry.is_default:
        switch.set_default(entry.table, entry.action, entry.params)
        return
    # The parts of a match are in the order of the table's key.
    kinds = [field.kind for field in switch.table(entry.table).table.key]
    match = tuple(_value(kind, value) for kind, (_, value) in zip(kinds, entry.match, strict=True))
    switch.insert(entry.table, TableEntry(match, entry.priority, entry.action, entry.params))


def _value(kind: str, value: Match) -> MatchValue:
    if isinstance(value, int):
        return Exact(value)
    return Lpm(*value) if kind == "lpm" else Range(*value)
