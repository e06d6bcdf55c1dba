# SPDX-License-Identifier: Apache-2.0
"""What the hash of switches chooses where several cables join a leaf and a spine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.affine_hash import bases, contributions
from controller.routing.bucket_tables import BucketTables, Stages
from controller.routing.cable_fabric import CableFabric
from controller.routing.fabric import Ints, LeafDemand
from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from topo.graph import HashSpec


def cable_stages(fabric: CableFabric, demand: LeafDemand, choice: Ints, tables: BucketTables) -> Stages:
    """Leaf-spine with several cables: the leaf and the spine each choose a cable."""
    up, _ = fabric.tables_up(demand, tables.add)
    spine = fabric.spines_of(demand, choice)
    down = fabric.tables_down(tables.add)[0][demand.dst, spine]
    stage = np.where(spine[:, None] >= 0, np.stack((up, down), axis=1), -1).astype(np.int32)
    return tables.stages(stage, np.stack((choice // fabric.width, choice % fabric.width), axis=1))


def cables_of_ports(
    fabric: CableFabric,
    demand: LeafDemand,
    src: NDArray[np.uint32],
    dst: NDArray[np.uint32],
    ports: Ints,
    spec: HashSpec,
) -> Ints:
    """As `choices_of_ports`, the two cables that the hash gives to each flow, (flows,); -1 without a path."""
    tables = BucketTables(spec)
    up, up_only = fabric.tables_up(demand, tables.add)
    down, down_only = fabric.tables_down(tables.add)
    known = tables.stages(up[:, None], up[:, None])
    value = bases(spec, src, dst) ^ contributions(spec.algorithm)[ports - ROCE_SOURCE_PORTS.start]

    def hashed(table: Ints, only: Ints) -> Ints:
        found = only.copy()
        chooses = np.flatnonzero(table >= 0)
        t = table[chooses]
        found[chooses] = known.tables[
            t, (value[chooses] >> known.shifts[t].astype(np.uint32)) & np.uint32(255)
        ]
        return found

    first = hashed(up, up_only)
    far = np.flatnonzero((first >= 0) & (demand.src != demand.dst))
    spine = np.full(len(first), -1, dtype=np.int32)
    spine[far] = fabric.spine[fabric.begin[demand.src[far]] + first[far]]
    ends = demand.dst[far], spine[far]
    table, only = np.full_like(first, -1), np.full_like(first, -1)
    table[far], only[far] = down[ends], down_only[ends]
    last = hashed(table, only)
    choice = np.where((first >= 0) & (last >= 0), first * fabric.width + last, -1)
    return np.where(demand.src == demand.dst, 0, choice).astype(np.int32)
