# SPDX-License-Identifier: Apache-2.0
"""A fleet in this process, over the switches of a small fabric."""

import asyncio
import contextlib
from collections.abc import Callable

from control_rig import PATIENCE_S, HostFabric, on_loop

from controller.southbound import table_writes
from controller.southbound.artefacts import artefacts_dir
from controller.southbound.desired import EcnProfile
from controller.southbound.fleet import SwitchFleet, Target


class Here:
    """Runs the worker's functions in this process."""

    def __init__(self, topology, **options):
        table_writes.set_fabric(topology, EcnProfile(5, 50, 0.1), artefacts_dir(), **options)

    async def run(self, function, *args, **kwargs):
        return function(*args, **kwargs)


class Witness:
    """Remembers what the fleet reports."""

    def __init__(self):
        self.ready, self.lost, self.packets, self.ports = [], [], [], []

    def switch_ready(self, name, ports):
        self.ready.append((name, ports))

    def switch_lost(self, name, why):
        self.lost.append(name)

    def packet_in(self, name, packet):
        self.packets.append((name, packet))

    def port_states(self, name, states):
        self.ports.append((name, dict(states)))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def fleet_of(fabric: HostFabric, artefacts, *, taken_up=None, **options):
    """A fleet with all its switches in service, after it has `taken_up` a state; options go to the worker."""
    targets = {
        name: Target(server.address, fabric.topology.switch[name].device_id)
        for name, server in fabric.servers.items()
    }
    witness = Witness()
    fleet = SwitchFleet(fabric.topology, targets, artefacts, Here(fabric.topology, **options), witness)
    if taken_up is not None:
        fleet.take_up(taken_up)
    fleet.start()
    try:
        await until(lambda: len(witness.ready) == len(targets))
        yield fleet, witness
    finally:
        await fleet.stop()


def in_service(fabric, artefacts, scenario, **options):
    """Run `scenario(fleet, witness)` on a fleet."""

    async def body():
        async with fleet_of(fabric, artefacts, **options) as (fleet, witness):
            await scenario(fleet, witness)

    on_loop(body())


async def held(fleet, name):
    """What a switch says it holds."""
    read = await fleet.clients[name].read_tables()
    writes = table_writes.reconcile(name, read, fleet._wanted)
    return writes.read, writes.updates
