# SPDX-License-Identifier: Apache-2.0
"""Source ports for many flows at once, as columns. `with_ports` in assign.py is the same choice by names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.routing.assign import Assignment, without_path
from controller.routing.backend import plain_suffices
from controller.routing.cable_fabric import CableFabric
from controller.routing.commodities import FlowPaths, same_hops
from controller.routing.fabric import Ints
from controller.routing.path_ports import usable
from controller.routing.ports import leads, ports_for, repeats, stages
from controller.routing.protocol import ArrayRoutes, RoutingProblem
from controller.wire.rocev2 import ROCE_SOURCE_PORTS

_PORTS = 1 << 16
_ROUNDS = 16
"""How often ports are looked for around those that flows keep. Chosen: pairs of hosts have few flows."""


@dataclass(frozen=True, eq=False)
class AssignedFlows(Mapping[str, Assignment]):
    """The assignments of all flows of a routing problem by name. An `Assignment` is made when somebody asks.

    `paths.hops`, `port` and `kept` have a row for each flow. Every flow with a path has a port, and flows of
    one pair of hosts have different ones. Port -1: no path.
    """

    problem: RoutingProblem
    paths: FlowPaths
    port: Ints
    kept: NDArray[np.bool_]

    def __getitem__(self, name: str) -> Assignment:
        index = self.paths.flows.row[name]
        port = int(self.port[index])
        if port < 0:
            return Assignment(None, None, False, self.why_none(index))
        return Assignment(self.paths.path(index), port, bool(self.kept[index]), "")

    def why_none(self, index: int) -> str:
        """Why the flow of this index has no path."""
        x, c = self.problem, self.problem.columns[index]
        return without_path(x.topology, x.forwarding, c, x.failures.links)

    @cached_property
    def _order(self) -> list[int]:
        """The flows with a path in the order of the paths, then the others."""
        order = self.paths.order
        there = self.port[order] >= 0
        first: list[int] = order[there].tolist()
        return first + np.flatnonzero(self.port < 0).tolist()

    def __iter__(self) -> Iterator[str]:
        return (self.paths.flows.flows[i] for i in self._order)

    def __len__(self) -> int:
        return len(self.port)


def assigned(problem: RoutingProblem, answer: ArrayRoutes, ports: Ints) -> AssignedFlows | None:
    """A source port for the path of each flow: its present one of `ports` (flows,) if that still leads there,
    else the lowest one that no other flow of its pair of hosts has; -1 in `ports`: it has none.

    None where columns do not say enough: the hash is unknown, the answer does not tell parallel cables apart,
    a path has no free port, or a flow has a port outside 0xC000-0xFFFF.
    """
    fabric, flows, choice = answer.fabric, problem.columns, answer.choice
    tells_cables = isinstance(fabric, CableFabric) or usable(problem.topology)
    if not answer.alive or not tells_cables:
        return None
    if ((ports >= 0) & (ports < ROCE_SOURCE_PORTS.start)).any():
        return None
    order = answer.paths.order[choice[answer.paths.order] >= 0]
    spec, demand = problem.topology.hash, problem.demand
    src, dst = flows.numbers.source[flows.src], flows.numbers.destination[flows.dst]
    of_source, of_destination = flows.numbers.base_parts
    base = of_source[flows.src] ^ of_destination[flows.dst]
    wanted = stages(problem.topology, fabric, demand, choice)
    held = same_hops(problem.held.hops, answer.paths.hops) & (choice >= 0) & (ports >= 0)
    stays = held & leads(src, dst, ports, wanted, spec=spec, base=base)
    pair = flows.src.astype(np.int64) * len(flows.numbers.hosts) + flows.dst
    # A pair of hosts and a choice: each port leads along one path, so only these flows compete for ports.
    group = pair * (int(choice.max(initial=0)) + 1) + choice
    key = group * _PORTS + ports
    at = order[stays[order]]
    taken = np.sort(key[at])
    if (taken[1:] == taken[:-1]).any():
        # Of several flows with one port, the first keeps it.
        taken, first = np.unique(key[at], return_index=True)
        at = at[first]
    kept = np.zeros(len(stays), dtype=np.bool_)
    kept[at] = True
    found = np.where(kept, ports, -1).astype(np.int32)
    left = order[~kept[order]]
    rank = repeats(group[left])
    more = np.zeros_like(rank)
    todo = np.arange(len(left))
    for _ in range(_ROUNDS):
        if not len(todo):
            break
        f = left[todo]
        new = ports_for(
            src[f],
            dst[f],
            wanted.take(f),
            skip=rank[todo] + more[todo],
            spec=spec,
            plain=plain_suffices(len(flows)),
            base=base[f],
        )
        found[f] = new
        # Kept ports of the group up to the new one are passed over.
        low, high = (np.searchsorted(taken, group[f] * _PORTS + limit, "right") for limit in (0, new))
        passed = (high - low).astype(np.int32)
        again = passed != more[todo]
        more[todo] = passed
        todo = todo[again]
    key = np.sort((pair * _PORTS + found)[order])
    if len(todo) or (found[order] < 0).any() or (key[1:] == key[:-1]).any():
        return None
    return AssignedFlows(problem, answer.paths, found, kept)
