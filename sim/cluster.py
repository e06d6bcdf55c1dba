# SPDX-License-Identifier: Apache-2.0
"""GPU servers on a fabric, the requested jobs, and the placement of a job on servers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sim.mltcp import SHAPES
from sim.network import Network
from sim.shape import Shape
from sim.units import NEVER, PS_PER_NS

Placement = tuple[tuple[str, int], ...]
"""(server, GPUs of it) in rank order."""

LAST_NS = NEVER // PS_PER_NS
"""The last time that the simulator's clock can show."""


class WorkloadError(ValueError):
    """The cluster cannot run this workload. The message names the job and what would be legal."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server: its number of GPUs, the hosts of the topology that are its NICs, and its leaf."""

    name: str
    gpus: int
    nics: tuple[str, ...]
    leaf: str


@dataclass(frozen=True)
class Cluster:
    """A network and the servers on it."""

    network: Network
    servers: tuple[Server, ...]

    @cached_property
    def server(self) -> Mapping[str, Server]:
        """Servers by name."""
        return {s.name: s for s in self.servers}

    @cached_property
    def gpus(self) -> int:
        """All GPUs."""
        return sum(s.gpus for s in self.servers)


def machines(network: Network, gpus_per_server: int) -> Cluster:
    """Turn each machine of the topology into a server with this number of GPUs."""
    return Cluster(
        network,
        tuple(
            Server(name, gpus_per_server, tuple(h.name for h in nics), nics[0].leaf)
            for name, nics in network.topology.machines.items()
        ),
    )


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job as it is submitted. `iterations` run once it has its GPUs.

    `ranks` places it by hand, a host per rank; None leaves that to the scheduler, and the shape's
    collectives then run over the job's servers (split over the NICs that its GPUs use). `delays_ns` is how
    much later than its job each rank begins (empty: not at all). Each compute time differs at random by up
    to the part `jitter`, and by up to `contended_jitter` while the job has no time-shift and shares a link
    that can be short with another job. `mltcp` names the shape of its senders' MLTCP (`sim.mltcp.SHAPES`);
    "": none. A policy that says what all senders do overrules it. `source` is where its GPUs were read, for
    messages: "file: row 2, column num_gpu".
    """

    name: str
    model: str
    arrival_ns: int
    gpus: int
    iterations: int
    shape: Shape
    ranks: tuple[str, ...] | None = None
    mltcp: str = ""
    source: str = field(default="", repr=False, compare=False)
    delays_ns: tuple[int, ...] = ()
    jitter: float = 0.0
    contended_jitter: float = 0.0


def check(cluster: Cluster, requests: Sequence[JobRequest]) -> None:
    """Refuse jobs that the cluster can never run.

    Raises:
        WorkloadError: names the job.
    """
    seen: set[str] = set()
    for request in requests:
        where = f"{request.source}: " if request.source else ""
        if request.name in seen:
            raise WorkloadError(f"{where}job {request.name}: there are two of this name")
        seen.add(request.name)
        if request.arrival_ns < 0:
            raise WorkloadError(
                f"job {request.name}: it arrives at {request.arrival_ns} ns; legal: 0 or later"
            )
        if request.arrival_ns > LAST_NS:
            raise WorkloadError(
                f"{_row_of(request)}job {request.name}: it arrives at {request.arrival_ns / 1e9:g} s; "
                f"legal: up to {LAST_NS / 1e9:g}, where the simulator's clock ends"
            )
        if request.iterations < 1:
            raise WorkloadError(f"job {request.name}: {request.iterations} iterations; legal: 1 or more")
        if not 1 <= request.gpus <= cluster.gpus:
            raise WorkloadError(
                f"{where}job {request.name}: it wants {request.gpus} GPUs; "
                f"legal: 1 to the cluster's {cluster.gpus}"
            )
        if request.mltcp and request.mltcp not in SHAPES:
            raise WorkloadError(
                f"job {request.name}: MLTCP {request.mltcp!r}; legal: {', '.join(SHAPES)}, or none"
            )
        if not (0 <= request.jitter < 1 and 0 <= request.contended_jitter < 1):
            raise WorkloadError(f"job {request.name}: a jitter is a part of the compute, from 0 to below 1")
        if request.delays_ns and (
            len(request.delays_ns) != len(request.ranks or ()) or min(request.delays_ns) < 0
        ):
            raise WorkloadError(
                f"job {request.name}: delays of {request.delays_ns} ns; legal: one of 0 or more for each rank"
            )
        for host in request.ranks or ():
            if host not in cluster.network.topology.host:
                raise WorkloadError(f"job {request.name}: the fabric has no host {host!r}")


def check_lengths(requests: Sequence[JobRequest]) -> None:
    """Refuse jobs that cannot end while the simulator's clock runs.

    Raises:
        WorkloadError: names the row or the job.
    """
    for request in requests:
        computes_ns = request.iterations * request.shape.compute_ns
        if request.arrival_ns + computes_ns > LAST_NS:
            raise WorkloadError(
                f"{_row_of(request)}job {request.name}: its {request.iterations} iterations compute for "
                f"{computes_ns / 1e9:g} s; legal: an end within {LAST_NS / 1e9:g} s, or --until-s"
            )


def _row_of(request: JobRequest) -> str:
    """The row that a job was read from, as an error begins; empty for a job without one."""
    return f"{request.source.partition(', column')[0]}: " if request.source else ""


def ranks_of(cluster: Cluster, request: JobRequest, placement: Placement) -> tuple[tuple[str, ...], Shape]:
    """The host of each rank of the job, and the shape over these hosts.

    On servers with several NICs the collective runs once per rail. Each rail connects the NICs at the same
    place of every server and carries its part of the bytes.
    """
    if request.ranks is not None:
        return request.ranks, request.shape
    used = []
    for name, gpus in placement:
        server = cluster.server[name]
        used.append(server.nics[: max(1, math.ceil(gpus * len(server.nics) / server.gpus))])
    rails = min(map(len, used))
    if rails == 1:
        return tuple(nics[0] for nics in used), request.shape
    ranks = tuple(nics[rail] for rail in range(rails) for nics in used)
    groups = tuple(tuple(range(r * len(used), (r + 1) * len(used))) for r in range(rails))
    phases = tuple(replace(p, size=p.size / rails, groups=groups) for p in request.shape.phases)
    return ranks, replace(request.shape, phases=phases)


class FreeGpus:
    """The free GPUs, and the rule by which jobs are packed.

    A job that fits into one server goes to the fullest server with enough room. A larger job takes servers of
    one leaf if one leaf has enough free GPUs; otherwise it takes servers of the leaves with the most free
    GPUs first. It takes whole servers where it can.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._free = {s.name: s.gpus for s in cluster.servers}
        self._leaves: dict[str, list[str]] = {}
        for server in cluster.servers:
            self._leaves.setdefault(server.leaf, []).append(server.name)
        self.total = cluster.gpus

    def place(self, gpus: int) -> Placement | None:
        """Take a placement of `gpus` GPUs. Returns None if not enough GPUs are free."""
        if gpus > self.total:
            return None
        fitting = [s for s, n in self._free.items() if n >= gpus]
        if fitting:
            best = min(fitting, key=lambda s: self._free[s])
            return self.take(((best, gpus),))
        room = {leaf: sum(self._free[s] for s in names) for leaf, names in self._leaves.items()}
        enough = [leaf for leaf, n in room.items() if n >= gpus]
        leaves = (
            [min(enough, key=lambda leaf: room[leaf])] if enough else sorted(room, key=lambda k: -room[k])
        )
        parts: list[tuple[str, int]] = []
        for leaf in leaves:
            for server in sorted(self._leaves[leaf], key=lambda s: -self._free[s]):
                take = min(self._free[server], gpus)
                if take:
                    parts.append((server, take))
                    gpus -= take
        return self.take(tuple(parts))

    def give_back(self, placement: Placement) -> None:
        """Return the GPUs of a job."""
        for server, gpus in placement:
            self._free[server] += gpus
            self.total += gpus

    def take(self, placement: Placement) -> Placement:
        """Take these GPUs, which must be free, and return them."""
        for server, gpus in placement:
            self._free[server] -= gpus
            self.total -= gpus
        return placement
