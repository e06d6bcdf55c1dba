# SPDX-License-Identifier: Apache-2.0
"""What Dally says of hosts that a job could get: tier, communication, and whether to wait for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from controller.placement.latency import Sensitivity, exposed
from controller.placement.machines import Machines, NetworkTier
from controller.placement.schedulers.dally import MACHINE_TIMER_S, RACK_TIMER_S
from topo.graph import Topology


@dataclass(frozen=True, slots=True)
class JobPlace:
    """The machines of a job with the GPUs that it has there, and the closest tier that its fabric has for as
    many hosts."""

    machines: Machines
    closest: NetworkTier

    @property
    def tier(self) -> NetworkTier:
        """The tier that connects the job's GPUs."""
        return self.machines.tier(tuple(enumerate(self.machines.gpus)))


@dataclass(frozen=True, slots=True)
class PlacementAdvice:
    """`communication` is the exposed communication as a part of the compute time, None if the job's
    sensitivity is not known. `wait_s`: how much longer Dally would wait for closer hosts before it takes
    these."""

    tier: NetworkTier
    communication: float | None
    wait_s: float


def job_place(topology: Topology, hosts: Sequence[str], gpus: int) -> JobPlace:
    """Where a job of `gpus` GPUs is on these hosts. A leaf is a rack. Its GPUs are spread evenly over its
    machines, the first ones getting what does not divide."""
    nics = [topology.host[name] for name in hosts]
    leaves = {h.machine: h.leaf for h in nics}
    racks = {leaf: i for i, leaf in enumerate(dict.fromkeys(leaves.values()))}
    each, more = divmod(max(gpus, len(leaves)), len(leaves))
    machines = Machines(
        tuple(each + (i < more) for i in range(len(leaves))), tuple(racks[leaf] for leaf in leaves.values())
    )
    if len(hosts) <= max(map(len, topology.machines.values())):
        closest = NetworkTier.MACHINE
    elif len(hosts) <= max(Counter(h.leaf for h in topology.hosts).values()):
        closest = NetworkTier.RACK
    else:
        closest = NetworkTier.NETWORK
    return JobPlace(machines, closest)


def advise(place: JobPlace, sensitivity: Sensitivity | None, waited_s: float) -> PlacementAdvice:
    """Algorithm 1 of Dally with its default timers, for a job that has waited for `waited_s`."""
    tier = place.tier
    if tier <= place.closest:
        wait = 0.0
    else:
        timer = MACHINE_TIMER_S if tier == NetworkTier.RACK else RACK_TIMER_S
        wait = max(0.0, timer - waited_s)
    communication = None
    if sensitivity is not None:
        communication = exposed(sensitivity, place.machines, tuple(enumerate(place.machines.gpus)))
    return PlacementAdvice(tier, communication, wait)
