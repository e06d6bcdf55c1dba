# SPDX-License-Identifier: Apache-2.0
"""From a training job to its flows: collective, parallelism and placement decide who talks to whom.

Ranks are numbered with tensor parallelism fastest, then pipeline, then data, as Megatron-LM does. Bytes are
per iteration and per flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from topo.graph import Host, Topology


class Collective(StrEnum):
    """How the members of a data-parallel group reduce their gradients."""

    RING = "ring"
    TREE = "tree"
    HIERARCHICAL = "hierarchical"
    ALL_TO_ALL = "all_to_all"


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Sizes of the tensor-, pipeline- and data-parallel groups; ranks = their product."""

    tensor: int
    pipeline: int
    data: int

    def __post_init__(self) -> None:
        if min(self.tensor, self.pipeline, self.data) < 1:
            raise ValueError("every dimension of the parallelism is at least 1")

    @property
    def ranks(self) -> int:
        """How many GPUs the job has."""
        return self.tensor * self.pipeline * self.data

    def rank(self, tensor: int, stage: int, copy: int) -> int:
        """The rank at these coordinates."""
        return (copy * self.pipeline + stage) * self.tensor + tensor

    def data_groups(self) -> Iterator[list[int]]:
        """The ranks that hold the same parameters."""
        for stage in range(self.pipeline):
            for tensor in range(self.tensor):
                yield [self.rank(tensor, stage, copy) for copy in range(self.data)]

    def tensor_groups(self) -> Iterator[list[int]]:
        """The ranks that share a stage of one copy."""
        for copy in range(self.data):
            for stage in range(self.pipeline):
                yield [self.rank(tensor, stage, copy) for tensor in range(self.tensor)]

    def pipelines(self) -> Iterator[list[int]]:
        """The ranks that hand activations to one another, first stage first."""
        for copy in range(self.data):
            for tensor in range(self.tensor):
                yield [self.rank(tensor, stage, copy) for stage in range(self.pipeline)]


@dataclass(frozen=True, slots=True)
class Volumes:
    """Bytes an iteration: gradients of one rank's parameters, activations that cross one stage boundary
    (either way) of one rank, and what a rank gives into its tensor-parallel all-reduces."""

    gradient: int
    activation: int = 0
    tensor: int = 0


@dataclass(frozen=True, slots=True)
class Need:
    """A flow between ranks. `kind`: data | pipeline | tensor."""

    src: int
    dst: int
    bytes: int
    kind: str


@dataclass(frozen=True, slots=True)
class NicFlow:
    """A flow between NICs; `part` counts the QPs that share it."""

    src: str
    dst: str
    bytes: int
    kind: str
    part: int = 0


def ring(group: Sequence[int], size: int, kind: str = "data") -> list[Need]:
    """Ring all-reduce of `size` bytes: each member sends 2 (n - 1) / n of them to the next."""
    n = len(group)
    if n < 2:
        return []
    sent = -(-2 * (n - 1) * size // n)
    return [Need(group[i], group[(i + 1) % n], sent, kind) for i in range(n)]


def tree(group: Sequence[int], size: int, kind: str = "data") -> list[Need]:
    """All-reduce over a binary tree: `size` bytes up every edge, and back down."""
    edges = [(group[i], group[(i - 1) // 2]) for i in range(1, len(group))]
    return [n for a, b in edges for n in (Need(a, b, size, kind), Need(b, a, size, kind))]


def all_to_all(group: Sequence[int], size: int, kind: str = "data") -> list[Need]:
    """Every member sends its `size` bytes in equal parts to all, one of which it keeps."""
    part = -(-size // max(len(group), 1))
    return [Need(a, b, part, kind) for a in group for b in group if a != b]


def hierarchical(
    group: Sequence[int], size: int, server: Mapping[int, str], kind: str = "data"
) -> list[Need]:
    """Hierarchical ring: reduce inside each server, ring over servers in as many parallel rings as the
    servers' smallest share of the group, and spread inside (the NVLink part is no flow of the fabric)."""
    servers: dict[str, list[int]] = {}
    for rank in group:
        servers.setdefault(server[rank], []).append(rank)
    width = min(map(len, servers.values()), default=0)
    return [
        need
        for i in range(width)
        for need in ring([members[i] for members in servers.values()], -(-size // width), kind)
    ]


def needs(
    parallelism: Parallelism, volumes: Volumes, collective: Collective, server: Mapping[int, str]
) -> list[Need]:
    """All flows of a job between ranks on different servers. `server` says where each rank is."""
    found: list[Need] = []
    for group in parallelism.data_groups():
        if collective is Collective.RING:
            found += ring(group, volumes.gradient)
        elif collective is Collective.TREE:
            found += tree(group, volumes.gradient)
        elif collective is Collective.ALL_TO_ALL:
            found += all_to_all(group, volumes.gradient)
        else:
            found += hierarchical(group, volumes.gradient, server)
    if volumes.activation:
        for line in parallelism.pipelines():
            for a, b in pairwise(line):
                found += [
                    Need(a, b, volumes.activation, "pipeline"),
                    Need(b, a, volumes.activation, "pipeline"),
                ]
    if volumes.tensor:
        for group in parallelism.tensor_groups():
            found += ring(group, volumes.tensor, "tensor")
    return [n for n in found if server[n.src] != server[n.dst]]


def on_nics(found: Sequence[Need], nics: Sequence[Host]) -> list[NicFlow]:
    """The flows on the fabric, rank r using nics[r]; several between two NICs of one kind become one.

    Raises:
        ValueError: a rank without a NIC.
    """
    merged: dict[tuple[str, str, str], int] = {}
    for n in found:
        if max(n.src, n.dst) >= len(nics):
            raise ValueError(f"rank {max(n.src, n.dst)} has no NIC: {len(nics)} are given")
        key = nics[n.src].name, nics[n.dst].name, n.kind
        merged[key] = merged.get(key, 0) + n.bytes
    return [NicFlow(src, dst, size, kind) for (src, dst, kind), size in merged.items() if src != dst]


def place(topology: Topology, machines: Sequence[str], gpus: int) -> list[Host]:
    """The NIC of each rank, `gpus` ranks a machine: GPU g uses rail g where there are rails for it.

    Raises:
        ValueError: an unknown machine.
    """
    for name in machines:
        if name not in topology.machines:
            raise ValueError(f"the fabric has no host {name!r}")
    rails = [topology.machines[name] for name in machines]
    return [nics[g * len(nics) // gpus if gpus >= len(nics) else g] for nics in rails for g in range(gpus)]


def elephants(flows: Sequence[NicFlow], threshold: int) -> tuple[list[NicFlow], list[NicFlow]]:
    """(flows to be routed, mice that are left to ECMP): `threshold` bytes an iteration and more, or less."""
    large = [f for f in flows if f.bytes >= threshold]
    return large, [f for f in flows if f.bytes < threshold]


def split(flows: Sequence[NicFlow], qps: int) -> list[NicFlow]:
    """Every flow over several QPs, each with its share of the bytes and later a path of its own."""
    if qps < 1:
        raise ValueError(f"a flow has at least one QP, not {qps}")
    return [
        replace(f, bytes=f.bytes // qps + (part < f.bytes % qps), part=part)
        for f in flows
        for part in range(qps)
        if f.bytes // qps + (part < f.bytes % qps) > 0
    ]
