# SPDX-License-Identifier: Apache-2.0
"""The links that the channels of a job cross under a plan, on the fabric as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.routing.paths import paths as paths_between
from sim.decide import Decider, FabricState, JobDecision
from sim.jobrun import JobRun, Ways
from sim.network import Network
from sim.task_graph import Channel

Paths = tuple[tuple[int, ...] | None, ...]
Portions = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class ChannelPaths:
    """By channel: the links, None where no path is alive, the portions of the bits on them, and the paths
    that switches choose from (see `JobRun`)."""

    paths: Paths
    portions: Portions = ()
    ways: tuple[Ways, ...] = ()


def channel_paths(
    network: Network,
    fabric: FabricState,
    decider: Decider,
    decided: JobDecision | None,
    channels: Sequence[Channel],
) -> ChannelPaths:
    """Where the channels of a job send. A flow goes as the plan says. Without a path in the plan, or where
    that path is down, it goes by ECMP.
    """
    paths: list[tuple[int, ...] | None] = []
    portions: list[tuple[float, ...]] = []
    ways: list[Ways] = []
    for channel in channels:
        remote = channel.src != channel.dst
        choices: Ways = ()
        if decided and remote and channel.flow in decided.moved:
            found = paths_between(fabric.topology, fabric.forwarding, channel.src, channel.dst)
            choices = tuple(network.links(nodes) for nodes in found)
            # One path is no choice.
            ways.append(choices if len(choices) > 1 else ())
            paths.append(choices[0] if choices else None)
            portions.append(())
            continue
        ways.append(())
        if decided and remote and channel.flow in decided.sprayed:
            links, parts = network.spread(fabric.spread(channel.src, channel.dst))
            paths.append(links or None)
            portions.append(parts)
            continue
        nodes = decided.paths.get(channel.flow) if decided else None
        if nodes is None or not fabric.alive(nodes):
            nodes = decider.ecmp_path(fabric, channel.flow, channel.src, channel.dst)
        paths.append(network.links(nodes) if nodes else None)
        portions.append((1.0,) * len(paths[-1] or ()))
    return ChannelPaths(
        tuple(paths),
        tuple(portions) if decided and decided.sprayed else (),
        tuple(ways) if decided and decided.moved else (),
    )


def most_load(run: JobRun, capacity: NDArray[np.float64]) -> dict[int, float]:
    """The most that a job can ever send over each of its links, in bit/s. `capacity` is that of all links."""
    load: dict[int, float] = {}
    for channel, limit in enumerate(run.program.channel_limit):
        rate = run.best_rate(channel, limit, capacity)
        for link, portion in run.may_cross(channel):
            load[link] = load.get(link, 0.0) + rate * portion
    return load
