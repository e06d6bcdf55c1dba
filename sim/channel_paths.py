# SPDX-License-Identifier: Apache-2.0
"""The links that the channels of a job cross under a plan, on the fabric as it is now."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.decide import Decider, FabricState, JobDecision
from sim.jobrun import JobRun
from sim.network import Network
from sim.task_graph import Channel

Paths = tuple[tuple[int, ...] | None, ...]
Portions = tuple[tuple[float, ...], ...]


def channel_paths(
    network: Network,
    fabric: FabricState,
    decider: Decider,
    decided: JobDecision | None,
    channels: Sequence[Channel],
) -> tuple[Paths, Portions]:
    """By channel the links, None where no path is alive, and the portions of its bits on them (see `JobRun`).

    A flow goes as the plan says. Without a path in the plan, or where that path is down, it goes by ECMP.
    """
    paths: list[tuple[int, ...] | None] = []
    portions: list[tuple[float, ...]] = []
    for channel in channels:
        if decided and channel.flow in decided.sprayed and channel.src != channel.dst:
            links, parts = network.spread(fabric.spread(channel.src, channel.dst))
            paths.append(links or None)
            portions.append(parts)
            continue
        nodes = decided.paths.get(channel.flow) if decided else None
        if nodes is None or not fabric.alive(nodes):
            nodes = decider.ecmp_path(fabric, channel.flow, channel.src, channel.dst)
        paths.append(network.links(nodes) if nodes else None)
        portions.append((1.0,) * len(paths[-1] or ()))
    return tuple(paths), tuple(portions) if decided and decided.sprayed else ()


def most_load(run: JobRun, capacity: NDArray[np.float64]) -> dict[int, float]:
    """The most that a job can ever send over each of its links, in bit/s. `capacity` is that of all links."""
    load: dict[int, float] = {}
    for channel, limit in enumerate(run.program.channel_limit):
        crossed = tuple(run.crossed(channel))
        rate = min([limit, *(capacity[k] / portion for k, portion in crossed)])
        for link, portion in crossed:
            load[link] = load.get(link, 0.0) + float(rate * portion)
    return load
