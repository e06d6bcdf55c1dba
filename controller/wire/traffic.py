# SPDX-License-Identifier: Apache-2.0
"""From what a training job is to its flows: collectives, parallelism and the place of each rank.

Pure: hosts are names, and bytes are per iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from controller.wire.collectives import Collective, pair_count, rounds
from controller.wire.limits import MAX_FLOWS_OF_JOB

MAX_PAIRS = 1_000_000
"""Pairs of ranks of one job that talk to each other (chosen: listing them takes about a second)."""
MAX_RANKS = 1_000_000
"""GPUs of a job whose flows follow from what it is (chosen: far more than the largest job has)."""


class TrafficError(ValueError):
    """A job that cannot be as it is described. The message is one line and says what is legal."""


class Order(StrEnum):
    """How ranks are numbered; the dimension that is named first is the fastest.

    TENSOR_DATA_PIPELINE is Megatron-LM's default. TENSOR_PIPELINE_DATA gives each copy of the model a block
    of ranks, as the routing paper's jobs do (Megatron-LM: --use-tp-pp-dp-mapping).
    """

    TENSOR_DATA_PIPELINE = "tensor-data-pipeline"
    TENSOR_PIPELINE_DATA = "tensor-pipeline-data"


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Sizes of the tensor-, pipeline- and data-parallel groups. A job has as many ranks as their product.

    `expert` neighbours of each data-parallel group share one set of experts; it divides `data`.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    order: Order = Order.TENSOR_DATA_PIPELINE

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data", "expert"):
            if getattr(self, name) < 1:
                raise TrafficError(f"{name} {getattr(self, name)}; legal: 1 or more")
        if self.data % self.expert:
            raise TrafficError(
                f"expert {self.expert} does not divide data {self.data}; legal: a divisor of {self.data}"
            )

    @property
    def ranks(self) -> int:
        """How many GPUs the job has."""
        return self.tensor * self.pipeline * self.data

    def rank(self, tensor: int, stage: int, copy: int) -> int:
        """The rank at these coordinates, each counted from 0."""
        if self.order is Order.TENSOR_PIPELINE_DATA:
            return (copy * self.pipeline + stage) * self.tensor + tensor
        return (stage * self.data + copy) * self.tensor + tensor

    def data_groups(self) -> Iterator[list[int]]:
        """The ranks that hold the same parameters."""
        for stage in range(self.pipeline):
            for tensor in range(self.tensor):
                yield [self.rank(tensor, stage, copy) for copy in range(self.data)]

    def expert_groups(self) -> Iterator[list[int]]:
        """The ranks that send tokens to one another's experts."""
        for group in self.data_groups():
            for first in range(0, self.data, self.expert):
                yield group[first : first + self.expert]

    def expert_data_groups(self) -> Iterator[list[int]]:
        """The ranks that hold the same experts."""
        for group in self.data_groups():
            for first in range(self.expert):
                yield group[first :: self.expert]

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
    """Bytes of one rank in an iteration.

    `data`: the gradients that it gives into the collective of its data-parallel group, without those of
    experts, which are `expert_data`. `tensor`: what it gives into its tensor-parallel all-reduces.
    `pipeline`: what it sends over a stage boundary, each way. `expert`: what it gives into the all-to-alls
    between experts.
    """

    data: int = 0
    tensor: int = 0
    pipeline: int = 0
    expert: int = 0
    expert_data: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a job is. `collective` is that of its data-parallel groups.

    Each pair of NICs has `queue_pairs` queue pairs for each kind of traffic, which share the bytes. The GPUs
    exchange what their layers need (tensor, pipeline, expert) `exchanges` times an iteration, in equal parts,
    and each time compute; then they reduce the gradients.
    """

    parallelism: Parallelism
    volumes: Volumes
    collective: Collective = Collective.RING
    queue_pairs: int = 1
    exchanges: int = 1


@dataclass(frozen=True, slots=True)
class TrafficFlow:
    """A queue pair between two NICs: bytes in each exchange and in the reduction of an iteration.

    `number` counts the flows between the same two NICs from 0.
    """

    src: str
    dst: str
    number: int
    exchange_bytes: int
    reduce_bytes: int

    def iteration_bytes(self, exchanges: int) -> int:
        """Bytes in an iteration with so many exchanges."""
        return self.exchange_bytes * exchanges + self.reduce_bytes


def flow_name(job: str, src: str, dst: str, number: int = 0) -> str:
    """The fabric-wide name of a flow: "job/src>dst", with "#number" for the second and each further one."""
    return f"{job}/{src}>{dst}" + (f"#{number}" if number else "")


@dataclass(frozen=True, slots=True)
class RankPlaces:
    """Where the ranks are: rank r uses NIC nics[r], which is in server servers[r].

    Ranks of one server talk to each other over NVLink, not over the fabric.
    """

    nics: tuple[str, ...]
    servers: tuple[str, ...]


def spread(servers: Sequence[tuple[str, Sequence[str]]], gpus: int) -> RankPlaces:
    """The NIC of each of `gpus` ranks, in equal numbers on each of `servers` (name, its NICs), in order.

    With fewer NICs than GPUs in a server, neighbouring GPUs share a NIC. With more, the first ones are used.

    Raises:
        TrafficError: the GPUs cannot be spread evenly, or are more than MAX_RANKS.
    """
    if gpus > MAX_RANKS:
        raise TrafficError(f"{gpus:,} GPUs; legal: up to {MAX_RANKS:,} where flows follow from what a job is")
    if not servers or gpus % len(servers):
        raise TrafficError(
            f"{gpus} GPUs on {len(servers)} hosts are not the same number on each; "
            f"legal: a multiple of {max(1, len(servers))}"
        )
    each = gpus // len(servers)
    nics = [own[g * len(own) // each if each >= len(own) else g] for _, own in servers for g in range(each)]
    return RankPlaces(tuple(nics), tuple(name for name, _ in servers for _ in range(each)))


def flows_of(traffic: Traffic, places: RankPlaces) -> tuple[TrafficFlow, ...]:
    """The flows of a job on the fabric, in the order in which its groups name them.

    Raises:
        TrafficError: the parallelism does not multiply to the ranks, nothing is sent over the fabric, or
            there are more than MAX_PAIRS pairs of ranks or MAX_FLOWS_OF_JOB flows.
    """
    layout = traffic.parallelism
    if layout.ranks != len(places.nics):
        raise TrafficError(
            f"tensor {layout.tensor} x pipeline {layout.pipeline} x data {layout.data} are {layout.ranks} "
            f"GPUs, and the job has {len(places.nics)}; legal: factors of {len(places.nics)}"
        )
    if traffic.queue_pairs < 1 or traffic.exchanges < 1:
        raise TrafficError("queue pairs and exchanges; legal: 1 or more")
    _check_pairs(traffic)
    # Collective libraries open queue pairs of their own for every group of ranks, so each kind has its own.
    merged: dict[tuple[str, str, str], int] = {}
    most = MAX_FLOWS_OF_JOB // traffic.queue_pairs
    for kind, collective, groups, size in _parts(traffic):
        for group in groups if size else ():
            for step in rounds(collective, group, size, places.servers):
                carried = step.total_bytes
                for a, b in step.pairs:
                    if places.servers[a] != places.servers[b]:
                        key = places.nics[a], places.nics[b], kind
                        merged[key] = merged.get(key, 0) + carried
                        if len(merged) > most:
                            raise TrafficError(
                                f"more than {MAX_FLOWS_OF_JOB:,} flows; legal: up to {MAX_FLOWS_OF_JOB:,} "
                                "in a job"
                            )
    if not any(merged.values()):
        raise TrafficError(
            "the job sends nothing over the fabric; legal: bytes for a group that spans several hosts"
        )
    return _queue_pairs(merged, traffic)


@dataclass(frozen=True, slots=True)
class TrafficPhase:
    """An Up phase of a job: `sizes` are the bytes of each flow. Then its GPUs compute for `compute_ns`."""

    sizes: tuple[int, ...]
    compute_ns: int


def phases_of(flows: Sequence[TrafficFlow], exchanges: int, compute_ns: int) -> tuple[TrafficPhase, ...]:
    """The phases of an iteration in which the GPUs compute for `compute_ns`.

    Each exchange is followed by its equal part of the compute time, and the last of them by the reduction of
    the gradients. A job without exchanges reduces, then computes.
    """
    exchanged = tuple(f.exchange_bytes for f in flows)
    reduced = tuple(f.reduce_bytes for f in flows)
    if not any(exchanged):
        return (TrafficPhase(reduced, compute_ns),)
    cuts = [compute_ns * k // exchanges for k in range(exchanges + 1)]
    found = [TrafficPhase(exchanged, b - a) for a, b in pairwise(cuts)]
    return (*found, TrafficPhase(reduced, 0)) if any(reduced) else tuple(found)


def busy_s(flows: Sequence[TrafficFlow], sizes: Sequence[float], bps: Mapping[str, int]) -> float:
    """How long the busiest NIC needs, in s, when each flow carries `sizes` bytes. `bps`: rate by NIC."""
    carried: dict[tuple[str, bool], float] = {}
    for flow, size in zip(flows, sizes, strict=True):
        for end in ((flow.src, True), (flow.dst, False)):
            carried[end] = carried.get(end, 0.0) + size
    return max((8 * size / bps[nic] for (nic, _), size in carried.items()), default=0.0)


def _parts(traffic: Traffic) -> list[tuple[str, Collective, Iterator[list[int]], int]]:
    layout, volumes = traffic.parallelism, traffic.volumes
    return [
        ("data", traffic.collective, layout.data_groups(), volumes.data),
        ("expert data", traffic.collective, layout.expert_data_groups(), volumes.expert_data),
        ("pipeline", Collective.SEND_RECEIVE, layout.pipelines(), volumes.pipeline),
        ("tensor", Collective.RING, layout.tensor_groups(), volumes.tensor),
        ("expert", Collective.ALL_TO_ALL, layout.expert_groups(), volumes.expert),
    ]


def _check_pairs(traffic: Traffic) -> None:
    layout, volumes, ranks = traffic.parallelism, traffic.volumes, traffic.parallelism.ranks
    pairs = 0
    for collective, members, size in (
        (traffic.collective, layout.data, volumes.data),
        (traffic.collective, layout.data // layout.expert, volumes.expert_data),
        (Collective.SEND_RECEIVE, layout.pipeline, volumes.pipeline),
        (Collective.RING, layout.tensor, volumes.tensor),
        (Collective.ALL_TO_ALL, layout.expert, volumes.expert),
    ):
        if size:
            pairs += pair_count(collective, members) * (ranks // members)
    if pairs > MAX_PAIRS:
        raise TrafficError(f"{pairs:,} pairs of GPUs that talk to each other; legal: up to {MAX_PAIRS:,}")


def _queue_pairs(merged: dict[tuple[str, str, str], int], traffic: Traffic) -> tuple[TrafficFlow, ...]:
    """Each kind of traffic between two NICs over its queue pairs, which share the bytes evenly."""
    found: list[TrafficFlow] = []
    numbers: dict[tuple[str, str], int] = {}
    for (src, dst, kind), total in merged.items():
        reduces = kind in ("data", "expert data")
        sent = total if reduces else -(-total // traffic.exchanges)
        for part in range(traffic.queue_pairs):
            size = sent // traffic.queue_pairs + (part < sent % traffic.queue_pairs)
            if not size:
                continue
            number = numbers.get((src, dst), 0)
            numbers[src, dst] = number + 1
            found.append(TrafficFlow(src, dst, number, 0 if reduces else size, size if reduces else 0))
    return tuple(found)
