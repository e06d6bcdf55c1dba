# SPDX-License-Identifier: Apache-2.0
"""Rates: what each flow gets when links are shared max-min fairly, higher classes first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.routing.backend import backend
from controller.routing.fabric import Fabric, Floats, Ints, LeafDemand

CLASSES = 8


def with_nics(links: Ints, capacity: Floats, src: Ints, dst: Ints, nic_bps: Floats) -> tuple[Ints, Floats]:
    """Paths and capacities with the NICs' own links: flow f leaves NIC src[f] and enters NIC dst[f]."""
    fabric_links, nics = len(capacity), len(nic_bps)
    first = (fabric_links + src)[:, None].astype(np.int32)
    last = (fabric_links + nics + dst)[:, None].astype(np.int32)
    return np.concatenate((first, last, links), axis=1), np.concatenate((capacity, nic_bps, nic_bps))


def maxmin(
    paths: Ints, capacity: Floats, klass: NDArray[np.int8] | None = None, *, plain: bool = False
) -> Floats:
    """Max-min fair rates in bit/s under strict priority: class 0 first, up to CLASSES of them.

    paths (flows, hops) are links, -1 pads at the end; capacity (links,) in bit/s. A flow without links has
    no limit: inf.

    Raises:
        ValueError: a class that is not in 0..CLASSES - 1.
    """
    classes = np.zeros(len(paths), dtype=np.int8) if klass is None else klass
    if len(classes) and not (classes.min() >= 0 and classes.max() < CLASSES):
        raise ValueError(f"priority classes go from 0 to {CLASSES - 1}")
    rates: Floats = backend(plain).maxmin(paths, classes, capacity, CLASSES)
    return rates


def flow_rates(
    fabric: Fabric,
    demand: LeafDemand,
    choice: Ints,
    nics: tuple[Ints, Ints, Floats],
    klass: NDArray[np.int8] | None = None,
    *,
    plain: bool = False,
) -> Floats:
    """Rates of an assignment. `nics`: the source and destination NIC of each flow, and the NICs' bit/s.

    A flow without a path gets 0 and takes nothing from the others.
    """
    paths, capacity = with_nics(fabric.links(demand, choice), fabric.capacity, *nics)
    paths[choice < 0] = -1
    rates = maxmin(paths, capacity, klass, plain=plain)
    return np.where(choice < 0, 0.0, rates)


def caps(rates: Floats, epsilon: float = 0.05) -> Floats:
    """The rates that agents may enforce: (1 + epsilon) * share, so that a freed link is noticed."""
    if epsilon < 0:
        raise ValueError(f"epsilon must not be negative, not {epsilon}")
    return (1 + epsilon) * rates
