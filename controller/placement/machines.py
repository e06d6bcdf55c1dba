# SPDX-License-Identifier: Apache-2.0
"""Machines with GPUs in racks, the free GPUs on them, and the tier of the network that a placement needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from random import Random

Allocation = tuple[tuple[int, int], ...]
"""(machine, GPUs on it), sorted by machine. A machine is an index of `Machines.gpus`."""


class NetworkTier(IntEnum):
    """How far the GPUs of a job are apart (Dally, III). A smaller value is closer."""

    MACHINE = 0
    RACK = 1
    NETWORK = 2


@dataclass(frozen=True)
class Machines:
    """The GPUs of each machine, and its rack's number; both have one entry a machine."""

    gpus: tuple[int, ...]
    rack: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.gpus) != len(self.rack) or not self.gpus:
            raise ValueError(f"{len(self.gpus)} machines with GPUs and {len(self.rack)} with a rack")
        if min(self.gpus) < 1:
            raise ValueError(f"a machine with {min(self.gpus)} GPUs; legal: 1 or more")

    @classmethod
    def uniform(cls, racks: int, machines: int, gpus: int) -> Machines:
        """`racks` racks of `machines` machines of `gpus` GPUs."""
        return cls((gpus,) * (racks * machines), tuple(r for r in range(racks) for _ in range(machines)))

    @cached_property
    def total(self) -> int:
        """All GPUs."""
        return sum(self.gpus)

    @cached_property
    def largest_machine(self) -> int:
        """The most GPUs that one machine has."""
        return max(self.gpus)

    @cached_property
    def largest_rack(self) -> int:
        """The most GPUs that one rack has."""
        return max(self.rack_gpus.values())

    @cached_property
    def rack_gpus(self) -> dict[int, int]:
        """The GPUs of each rack."""
        counts: Counter[int] = Counter()
        for rack, gpus in zip(self.rack, self.gpus, strict=True):
            counts[rack] += gpus
        return dict(counts)

    def closest(self, demand: int) -> NetworkTier:
        """The best tier that a job of `demand` GPUs can ever have here."""
        if demand <= self.largest_machine:
            return NetworkTier.MACHINE
        return NetworkTier.RACK if demand <= self.largest_rack else NetworkTier.NETWORK

    def tier(self, allocation: Allocation) -> NetworkTier:
        """The tier of the network that connects these GPUs."""
        if len(allocation) == 1:
            return NetworkTier.MACHINE
        return NetworkTier.RACK if len({self.rack[m] for m, _ in allocation}) == 1 else NetworkTier.NETWORK

    def could_be_closer(self, allocation: Allocation, demand: int) -> bool:
        """Whether these GPUs of a job of `demand` are farther apart than they would have to be here."""
        return self.tier(allocation) > self.closest(demand)


class FreePool:
    """The free GPUs of machines. The methods that look for GPUs do not take them."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.free = list(machines.gpus)
        self.total = machines.total
        self.rack_free = dict(machines.rack_gpus)
        self._in_rack: dict[int, list[int]] = {}
        self._with: list[set[int]] = [set() for _ in range(machines.largest_machine + 1)]
        for machine, rack in enumerate(machines.rack):
            self._in_rack.setdefault(rack, []).append(machine)
            self._with[self.free[machine]].add(machine)

    def take(self, allocation: Allocation) -> None:
        """Take free GPUs.

        Raises:
            ValueError: they are not all free.
        """
        if not self.has(allocation):
            raise ValueError(f"{allocation} is not free")
        for machine, gpus in allocation:
            self._move(machine, -gpus)

    def give_back(self, allocation: Allocation) -> None:
        """Give taken GPUs back."""
        for machine, gpus in allocation:
            self._move(machine, gpus)

    def has(self, allocation: Allocation) -> bool:
        """Whether all these GPUs are free."""
        return all(self.free[machine] >= gpus for machine, gpus in allocation)

    def on_machine(self, demand: int) -> Allocation | None:
        """GPUs of the machine with the fewest free GPUs that has enough."""
        for machines in self._with[demand:]:
            if machines:
                return ((min(machines), demand),)
        return None

    def emptiest(self, demand: int) -> Allocation | None:
        """GPUs of the machine with the most free GPUs, if it has enough."""
        most = max(free for free, machines in enumerate(self._with) if machines)
        return ((min(self._with[most]), demand),) if most >= demand else None

    def in_rack(self, demand: int) -> Allocation | None:
        """GPUs of the rack with the fewest free GPUs that has enough, on as few of its machines as
        possible."""
        racks = [(free, rack) for rack, free in self.rack_free.items() if free >= demand]
        return self._packed(self._in_rack[min(racks)[1]], demand) if racks else None

    def anywhere(self, demand: int) -> Allocation | None:
        """GPUs of any machines: racks with the most free GPUs first, and in each rack as few machines as
        possible."""
        if demand > self.total:
            return None
        racks = sorted(self.rack_free, key=lambda rack: (-self.rack_free[rack], rack))
        taken: list[tuple[int, int]] = []
        for rack in racks:
            left = demand - sum(gpus for _, gpus in taken)
            if left:
                taken += self._packed(self._in_rack[rack], min(left, self.rack_free[rack]))
        return tuple(sorted(taken))

    def closest(self, demand: int, worst: NetworkTier = NetworkTier.NETWORK) -> Allocation | None:
        """GPUs as close to one another as the free ones allow, but not farther apart than `worst`."""
        if demand > self.total:
            return None
        found = self.on_machine(demand)
        if found is None and worst >= NetworkTier.RACK:
            found = self.in_rack(demand)
        if found is None and worst >= NetworkTier.NETWORK:
            found = self.anywhere(demand)
        return found

    def scattered(self, demand: int, random: Random) -> Allocation | None:
        """Free GPUs drawn at random from all machines."""
        if demand > self.total:
            return None
        gpus = [machine for machine, free in enumerate(self.free) for _ in range(free)]
        return tuple(sorted(Counter(random.sample(gpus, demand)).items()))

    def alike(self, allocation: Allocation, random: Random) -> Allocation | None:
        """A draw of as many free GPUs as `allocation` has, in its tier or a closer one, and on no more
        machines and racks. None if the draw finds none; another draw may."""
        demand, most = sum(gpus for _, gpus in allocation), len(allocation)
        if most == 1:
            enough = [machine for machine, free in enumerate(self.free) if free >= demand]
            return ((random.choice(enough), demand),) if enough else None
        wanted = len({self.machines.rack[machine] for machine, _ in allocation})
        open_racks = [rack for rack, free in self.rack_free.items() if free]
        if wanted == 1:
            open_racks = [rack for rack in open_racks if self.rack_free[rack] >= demand]
        racks = random.sample(open_racks, min(wanted, len(open_racks)))
        if sum(self.rack_free[rack] for rack in racks) < demand:
            return None
        machines = [m for rack in racks for m in self._in_rack[rack] if self.free[m]]
        random.shuffle(machines)
        found = self._taken(machines, demand)
        if len(found) > most:
            found = self._packed(machines, demand)
        return found if len(found) <= most else None

    def _packed(self, machines: Sequence[int], demand: int) -> Allocation:
        return self._taken(sorted(machines, key=lambda m: (-self.free[m], m)), demand)

    def _taken(self, machines: Sequence[int], demand: int) -> Allocation:
        """GPUs of these machines, all free ones of the first, then of the next."""
        taken: list[tuple[int, int]] = []
        for machine in machines:
            gpus = min(self.free[machine], demand)
            if gpus:
                taken.append((machine, gpus))
                demand -= gpus
        return tuple(sorted(taken))

    def _move(self, machine: int, gpus: int) -> None:
        self._with[self.free[machine]].discard(machine)
        self.free[machine] += gpus
        self._with[self.free[machine]].add(machine)
        self.rack_free[self.machines.rack[machine]] += gpus
        self.total += gpus
