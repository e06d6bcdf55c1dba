# SPDX-License-Identifier: Apache-2.0
"""Workloads made by rule: the routing paper's jobs, and Poisson, batch and snapshot arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from controller.wire.traffic import Order, Parallelism
from sim.cluster import JobRequest
from sim.models import data_parallel, model_named
from sim.shape import PhaseShape, Shape
from topo.generate import leaf_spine
from topo.graph import Topology

PAPER_BPS = 100_000_000_000


@dataclass(frozen=True, slots=True)
class LargeModel:
    """A model of the routing paper: `copy_gpus` GPUs hold one copy, split TP x PP."""

    name: str
    parameters: float
    copy_gpus: int
    compute_s: float

    def message_bytes(self, ring: int) -> float:
        """One step's message of a ring all-reduce over `ring` copies: 4 bytes x parameters / copy / ring."""
        return 4 * self.parameters / self.copy_gpus / ring

    def ideal_s(self, ring: int, rate_bps: float = PAPER_BPS) -> float:
        """The all-reduce alone at full rate, in s: 2 (ring - 1) messages."""
        return 2 * (ring - 1) * self.message_bytes(ring) * 8 / rate_bps

    def shape(self, ring: int) -> Shape:
        """Compute, then one ring per (TP, PP) rank over the copies. Rank r of copy c is GPU
        c * copy_gpus + r."""
        size = 4 * self.parameters / self.copy_gpus
        layout = Parallelism(tensor=self.copy_gpus, data=ring, order=Order.TENSOR_PIPELINE_DATA)
        groups = tuple(map(tuple, layout.data_groups()))
        return Shape((PhaseShape("ring", size, before_ns=round(self.compute_s * 1e9), groups=groups),))


LARGE_MODELS = {
    m.name: m
    for m in (
        LargeModel("BLOOM", 176e9, 48, 1.239),
        LargeModel("GPT-3", 175e9, 64, 1.010),
        LargeModel("LLaMA2", 70e9, 128, 2.692),
    )
}


@dataclass(frozen=True, slots=True)
class PlacedModel:
    """A job of the routing paper on its NICs: one host name per rank."""

    name: str
    model: LargeModel
    ring: int
    ranks: tuple[str, ...]
    start_s: float


def paper_fabric(leaves: int = 64, spines: int = 32, nics_per_leaf: int = 32) -> Topology:
    """The routing paper's fabric: 100 Gbps everywhere; each host of the topology is one GPU's NIC."""
    return leaf_spine(leaves, spines, nics_per_leaf, host_bps=PAPER_BPS, fabric_bps=PAPER_BPS)


def paper_jobs(
    topology: Topology, jobs: Sequence[tuple[str, int]], seed: int, *, block: int = 32
) -> list[PlacedModel]:
    """The routing paper's jobs, (model, ring size) each: they fill random ToRs in blocks of up to
    `block` NICs and start uniformly within 1-10 s.

    Raises:
        ValueError: an unknown model, or more NICs wanted than there are.
    """
    random = Random(f"{seed}/paper")
    free: dict[str, list[str]] = {}
    for host in topology.hosts:
        free.setdefault(host.leaf, []).append(host.name)
    placed = []
    for i, (name, ring) in enumerate(jobs):
        if name not in LARGE_MODELS:
            raise ValueError(f"{name!r} is no model of the routing paper; legal: {', '.join(LARGE_MODELS)}")
        model = LARGE_MODELS[name]
        wanted = model.copy_gpus * ring
        if wanted > sum(map(len, free.values())):
            raise ValueError(f"job {i + 1} ({name}, ring {ring}) wants {wanted} NICs; fewer are free")
        ranks: list[str] = []
        while len(ranks) < wanted:
            leaf = random.choice([leaf for leaf, nics in free.items() if nics])
            take = min(block, wanted - len(ranks), len(free[leaf]))
            ranks += free[leaf][:take]
            del free[leaf][:take]
        placed.append(PlacedModel(f"{name}-{i + 1}", model, ring, tuple(ranks), random.uniform(1, 10)))
    return placed


# (model, weight) and (GPUs, weight) of the generated mixes: of the order of published GPU clusters.
MODEL_MIX = (
    ("resnet50", 6),
    ("vgg16", 3),
    ("bert", 4),
    ("gpt2", 2),
    ("dlm", 2),
    ("llama", 2),
    ("gpt-13b", 1),
)
GPU_MIX = ((1, 30), (2, 10), (4, 15), (8, 25), (16, 10), (32, 6), (64, 3), (128, 1))


def poisson(
    jobs: int,
    seed: int,
    *,
    gpus: int,
    horizon_s: float,
    load: float = 0.8,
    largest: int = 128,
) -> list[JobRequest]:
    """Jobs that arrive as a Poisson process over `horizon_s` on a cluster of `gpus` GPUs.

    Lengths are log-normal (sigma 1.5), scaled so that all jobs alone would keep `load` of the GPUs busy.
    """
    random = Random(f"{seed}/poisson")
    at, drawn = 0.0, []
    for _ in range(jobs):
        at += random.expovariate(jobs / horizon_s)
        model = random.choices([m for m, _ in MODEL_MIX], [w for _, w in MODEL_MIX])[0]
        sizes = [(g, w) for g, w in GPU_MIX if g <= min(largest, gpus)]
        size = random.choices([g for g, _ in sizes], [w for _, w in sizes])[0]
        compute_ms = model_named(model).compute_ms * random.uniform(0.7, 1.5)
        drawn.append((at, model, size, round(compute_ms), random.lognormvariate(0.0, 1.5)))
    scale = load * gpus * horizon_s / sum(size * length for _, _, size, _, length in drawn)
    return [
        JobRequest(
            name=f"job-{i}",
            model=model,
            arrival_ns=round(at * 1e9),
            gpus=size,
            iterations=max(1, round(length * scale / (compute_ms / 1e3))),
            shape=data_parallel(model, compute_ms),
        )
        for i, (at, model, size, compute_ms, length) in enumerate(drawn)
    ]


def batch(jobs: int, seed: int, *, gpus: int, hours: float = 1.0) -> list[JobRequest]:
    """Jobs that are all there at time 0, `hours` long on average if all ran at once."""
    requests = poisson(jobs, seed, gpus=gpus, horizon_s=hours * 3600, load=1.0)
    return [replace(r, arrival_ns=0) for r in requests]


def snapshot(jobs: int, seed: int, *, gpus: int, iterations: int = 100) -> list[JobRequest]:
    """Jobs that run at once, `iterations` each, drawn until `jobs` of them fill the GPUs or fit in them."""
    requests: list[JobRequest] = []
    free = gpus
    for request in poisson(50 * jobs, seed, gpus=gpus, horizon_s=1.0):
        if request.gpus <= free and len(requests) < jobs:
            free -= request.gpus
            requests.append(replace(request, arrival_ns=0, iterations=iterations))
    return requests
