# SPDX-License-Identifier: Apache-2.0
"""The jobs of CASSINI's testbed: the 13 models of Table 4.2 of the thesis, and three kinds of traces.

The thesis prints what each model keeps in memory, its batches, and few times. So all else follows from rules
that were fixed before any result:

- Gradients are the memory of Table 4.2, the lower end where it prints a range. Data-parallel jobs all-reduce
  them after the compute, in a ring. That gives VGG16 84 to 155 ms on 50 Gbit/s; the thesis measured 114.
- The compute grows with the batch, which is drawn from the range of Table 4.2. Vision: VGG16 computes 141 ms
  (4.3) at a batch of 1,400, the others in proportion to the published FLOPs of a forward pass. Language: BERT
  computes 60 ms at a batch of 8, as in our case of Table 3.1, the others in proportion to their memory.
- DLRM keeps its embeddings on all servers: an all-to-all before and one after the middle of the compute, each
  with half of the memory, which is drawn from its range; each pair of servers sends at its share of the NIC.
  The compute is 701 ms at the upper end (Table 3.1), and in proportion to the memory.
- Models are equally probable, jobs have 200 to 1,000 iterations and ask for 1 to 12 GPUs, one a server
  (4.5.1). The load of the Poisson trace is in the middle of the thesis' 80 to 100 %.
- The dynamic trace has jobs on 16 servers when a DLRM and a ResNet50 arrive for the others (4.5.3).
- In a snapshot all jobs begin at once; they are drawn until all servers have one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from polyrhythm.paper.interleave_cases import JITTER, testbed
from sim.cluster import Cluster, JobRequest, machines
from sim.placed_job import placed_request
from sim.shape import PhaseShape, Shape

SERVERS, NIC_BPS = 24, 50e9
LOAD = 0.9
ITERATIONS = (200, 1000)
MOST_GPUS = 12
TRACES = ("poisson", "dynamic", "snapshot")
_MB = 1_000_000
_ARRIVAL_NS = 20_000_000_000
_BUSY = 16


@dataclass(frozen=True, slots=True)
class TableModel:
    """A row of Table 4.2: memory in MB, the range of batches of a GPU, and the compute of a sample in ms."""

    memory: int
    batches: tuple[int, int]
    sample_ms: float


def _vision(memory: int, batches: tuple[int, int], gflop: float) -> TableModel:
    return TableModel(memory, batches, 141 / 1400 * gflop / 15.5)


def _language(memory: int, batches: tuple[int, int]) -> TableModel:
    return TableModel(memory, batches, 60 / 8 * memory / 450)


MODELS = {
    "VGG11": _vision(507, (512, 1800), 7.6),
    "VGG16": _vision(528, (512, 1800), 15.5),
    "VGG19": _vision(549, (512, 1800), 19.6),
    "WideResNet101": _vision(243, (256, 1200), 22.8),
    "ResNet50": _vision(98, (256, 1800), 4.1),
    "BERT": _language(450, (8, 32)),
    "RoBERTa": _language(800, (8, 32)),
    "CamemBERT": _language(266, (8, 32)),
    "XLM": _language(1116, (4, 32)),
    "GPT-1": _language(650, (32, 80)),
    "GPT-2": _language(1623, (32, 80)),
    "GPT-3": _language(1952, (16, 48)),
}
DLRM, DLRM_MEMORY, DLRM_COMPUTE_MS = "DLRM", (890, 1962), 701.0


def cassini_cluster() -> Cluster:
    """The testbed with one GPU a server (thesis, 4.5.1)."""
    return machines(testbed(), 1)


def shape(model: str, gpus: int, random: Random) -> Shape:
    """The iteration of a model on so many GPUs, with hyper-parameters from `random`."""
    if model == DLRM:
        memory = random.randint(*DLRM_MEMORY)
        part = round(DLRM_COMPUTE_MS * memory / DLRM_MEMORY[1] / 2 * 1e6)
        share = NIC_BPS / max(1, gpus - 1)
        phase = PhaseShape("all_to_all", memory * _MB / 2, before_ns=part, limit_bps=share)
        return Shape((phase, phase))
    row = MODELS[model]
    compute = round(row.sample_ms * random.randint(*row.batches) * 1e6)
    return Shape((PhaseShape("fused_ring", row.memory * _MB, before_ns=compute),))


def trace(kind: str, number: int, seed: int, jobs: int) -> list[JobRequest]:
    """The jobs of a trace. `jobs` is the number of those that arrive in a Poisson trace."""
    random = Random(f"{seed}/cassini-testbed/{kind}/{number}")
    if kind == "poisson":
        return _poisson(random, jobs)
    if kind == "snapshot":
        return _filling(random, SERVERS)
    found = _filling(random, _BUSY)
    servers = (SERVERS - _BUSY) // 2
    return found + [
        _request(random, len(found) + i, model, servers, _ARRIVAL_NS)
        for i, model in enumerate((DLRM, "ResNet50"))
    ]


def _poisson(random: Random, jobs: int) -> list[JobRequest]:
    """Jobs that would keep the part LOAD of the GPUs busy if each had the network to itself."""
    drawn = [
        _request(random, i, random.choice((*MODELS, DLRM)), random.randint(1, MOST_GPUS)) for i in range(jobs)
    ]
    servers, work = cassini_cluster(), 0.0
    for request in drawn:
        alone = placed_request(servers, request, tuple((s.name, 1) for s in servers.servers[: request.gpus]))
        work += request.gpus * request.iterations * alone.iteration_ps / 1e3
    gap, at, found = work / LOAD / SERVERS / jobs, 0.0, []
    for request in drawn:
        found.append(replace(request, arrival_ns=round(at)))
        at += random.expovariate(1 / gap)
    return found


def _filling(random: Random, servers: int) -> list[JobRequest]:
    found: list[JobRequest] = []
    while servers:
        gpus = min(servers, random.randint(1, MOST_GPUS))
        found.append(_request(random, len(found), random.choice((*MODELS, DLRM)), gpus))
        servers -= gpus
    return found


def _request(random: Random, number: int, model: str, gpus: int, arrival_ns: int = 0) -> JobRequest:
    return JobRequest(
        f"{model.lower()}-{number}",
        model,
        arrival_ns,
        gpus,
        random.randint(*ITERATIONS),
        shape(model, gpus, random),
        jitter=JITTER,
        contended_jitter=JITTER,
    )
