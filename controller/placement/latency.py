# SPDX-License-Identifier: Apache-2.0
"""What a placement costs a job in exposed communication: Table I of Dally, and rules for other sizes.

ArtISt-sim, the simulator of the Dally paper, asks ASTRA-sim for this figure. We take Table I as measured and
scale it by the number of steps of the collective.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.placement.machines import Allocation, Machines, NetworkTier

TABLE_GPUS = 8
"""The GPUs of each job of Table I: on one machine, on eight machines of a rack, and in eight racks."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The communication that compute does not hide, as a part of the compute time, for 8 GPUs by tier."""

    machine: float
    rack: float
    network: float

    def __post_init__(self) -> None:
        values = (self.machine, self.rack, self.network)
        if not all(math.isfinite(v) and v >= 0 for v in values):
            raise ValueError(f"sensitivity {values}; legal: finite numbers from 0")

    def at(self, tier: NetworkTier) -> float:
        """The figure of a tier."""
        return (self.machine, self.rack, self.network)[tier]


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A row of Table I: the sensitivity of a model, and whether its skew is high (Tiresias' measure)."""

    sensitivity: Sensitivity
    skewed: bool


TABLE_I: Mapping[str, ModelRow] = {
    "vgg11": ModelRow(Sensitivity(0.01, 0.06, 0.07), True),
    "alexnet": ModelRow(Sensitivity(0.02, 0.13, 1.00), True),
    "mobilenetv3": ModelRow(Sensitivity(0.42, 9.40, 195.92), True),
    "resnet18": ModelRow(Sensitivity(0.07, 1.16, 27.49), False),
    "resnet50": ModelRow(Sensitivity(0.12, 0.12, 0.38), False),
    "bert": ModelRow(Sensitivity(0.08, 0.23, 7.15), False),
}
"""Dally, Table I, by model in lower case."""
_OTHER_NAMES = {"vgg": "vgg11", "bert-large": "bert"}


def table_row(model: str) -> ModelRow | None:
    """The row of a model by its name in any case, None if Table I has none."""
    name = model.lower()
    return TABLE_I.get(_OTHER_NAMES.get(name, name))


def _flat(units: int) -> float:
    return 1.0 if units > 1 else 0.0


def _ring(units: int) -> float:
    return float(units - 1)


def _tree(units: int) -> float:
    return math.log2(units)


@dataclass(frozen=True, slots=True)
class LatencyRule:
    """How communication grows beyond Table I: with `steps` of n units. `nested`: the collective is
    hierarchical, over the GPUs of a machine, the machines of a rack, and racks, and its parts add up.
    Otherwise, and where machines or racks hold different numbers of GPUs, it runs over all GPUs in the
    slowest tier, as ArtISt-sim treats placements that do not nest.
    """

    steps: Callable[[int], float]
    nested: bool = True


RULES: Mapping[str, LatencyRule] = {
    "flat": LatencyRule(_flat),
    "ring": LatencyRule(_ring),
    "tree": LatencyRule(_tree),
    "gpus": LatencyRule(_ring, nested=False),
}
"""By name: no growth, a ring, a tree, and a ring over all GPUs. Table I has 8 units in each tier; there,
every rule gives its figures."""


def exposed(
    sensitivity: Sensitivity, machines: Machines, allocation: Allocation, rule: str = "ring"
) -> float:
    """The communication of an iteration that compute does not hide, as a part of its compute time.

    Raises:
        KeyError: an unknown rule.
    """
    how = RULES[rule]
    units = units_by_tier(machines, allocation, nested=how.nested)
    return sum(
        sensitivity.at(tier) * how.steps(count) / how.steps(TABLE_GPUS)
        for tier, count in units.items()
        if count > 1
    )


def units_by_tier(
    machines: Machines, allocation: Allocation, *, nested: bool = True
) -> dict[NetworkTier, int]:
    """How many units a collective joins in each tier. One unit needs no communication. `nested` is that of
    `LatencyRule`."""
    gpus = sum(count for _, count in allocation)
    tier = machines.tier(allocation)
    by_rack: Counter[int] = Counter()
    machines_in: Counter[int] = Counter()
    for machine, count in allocation:
        by_rack[machines.rack[machine]] += count
        machines_in[machines.rack[machine]] += 1
    alike = len({count for _, count in allocation}) == 1
    if not (nested and alike and len(set(by_rack.values())) == 1 and len(set(machines_in.values())) == 1):
        return {tier: gpus}
    return {
        NetworkTier.NETWORK: len(by_rack),
        NetworkTier.RACK: len(allocation) // len(by_rack),
        NetworkTier.MACHINE: gpus // len(allocation),
    }
