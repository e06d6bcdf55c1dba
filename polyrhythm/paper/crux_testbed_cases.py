# SPDX-License-Identifier: Apache-2.0
"""The testbed of CRUX with 96 GPUs (Figure 18), its models, and the cases of Figures 19 to 22."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from sim.cluster import Cluster, JobRequest, machines
from sim.network import HostInternals, Network
from sim.scheduler import scheduler_named
from sim.shape import PhaseShape, Shape
from sim.simulation import Simulation, SimulationSettings
from topo.generate import leaf_spine
from topo.graph import Topology

TORS, AGGREGATIONS, HOSTS, GPUS_A_HOST, NICS = 6, 8, 12, 8, 4
NIC_BPS = 200_000_000_000
# A PCIe 4.0 x16 link carries about 24 GB/s. Two GPUs, which may belong to two jobs, share one to their NIC.
PCIE_BPS = 192_000_000_000
QPS = 6
"""Queue pairs between two NICs. Chosen: a collective library opens several."""
ECMP, CRUX, OURS = "ecmp", "crux", "polyrhythm"
_ENDLESS = 10**9


def figure_18() -> Topology:
    """The testbed: 12 hosts with 8 GPUs and 4 NICs of 200 Gbit/s, two hosts on each of 6 ToRs.

    Each ToR has 2 x 100 Gbit/s to each of 8 aggregation switches. NIC r of host hN is "hN.r".
    """
    wired = leaf_spine(
        TORS, AGGREGATIONS, HOSTS * NICS // TORS, host_bps=NIC_BPS, fabric_bps=NIC_BPS, name="crux-testbed"
    )
    hosts = tuple(
        replace(h, name=f"h{n // NICS + 1}.{n % NICS + 1}", server=f"h{n // NICS + 1}")
        for n, h in enumerate(wired.hosts)
    )
    return replace(wired, hosts=hosts)


@dataclass(frozen=True, slots=True)
class TestbedModel:
    """An iteration of a model: `phases` times `before_ms` of compute, then communication beside `beside_ms`
    of compute.

    In a phase every NIC sends for `traffic_ms` at the rate of a PCIe link, if the job is on two hosts and all
    their NICs. `flops` is the rate that a GPU sustains while it computes, in flop/s. The paper gives none of
    these values; they are ours. GPT is sharded layer by layer and waits for every layer. BERT and ResNet
    overlap most of their communication.
    """

    name: str
    phases: int
    before_ms: float
    traffic_ms: float
    beside_ms: float
    flops: float

    def shape(self, gpus: int, hosts: int, nics: int) -> Shape:
        """The iteration on so many hosts, over `nics` NICs of each: a ring on each rail, which share the
        bytes.
        """
        size = self.traffic_ms / 1e3 * PCIE_BPS / 8 * NICS / nics
        groups = tuple(tuple(range(r * hosts, (r + 1) * hosts)) for r in range(nics))
        phase = PhaseShape(
            "fused_ring",
            size,
            before_ns=round(self.before_ms * 1e6),
            beside_ns=round(self.beside_ms * 1e6),
            limit_bps=PCIE_BPS,
            groups=groups,
        )
        compute_s = self.phases * (self.before_ms + self.beside_ms) / 1e3
        return Shape((phase,) * self.phases, qps=QPS, flops=self.flops * compute_s * gpus)


GPT = TestbedModel("GPT", 24, 20, 12, 0, 155e12)
BERT = TestbedModel("BERT", 6, 23, 12, 22, 80e12)
RESNET = TestbedModel("ResNet", 1, 90, 55, 180, 30e12)


@dataclass(frozen=True, slots=True)
class TestbedJob:
    """A job on some hosts and some of their NICs, both by number. All four NICs mean a GPU on each."""

    name: str
    model: TestbedModel
    gpus: int
    hosts: tuple[int, ...]
    nics: tuple[int, ...] = (1, 2, 3, 4)

    def request(self, arrival_ns: int) -> JobRequest:
        """The job for the simulator. It never ends."""
        return JobRequest(
            name=self.name,
            model=self.model.name,
            arrival_ns=arrival_ns,
            gpus=self.gpus,
            iterations=_ENDLESS,
            shape=self.model.shape(self.gpus, len(self.hosts), len(self.nics)),
            ranks=tuple(f"h{h}.{r}" for r in self.nics for h in self.hosts),
        )


@dataclass(frozen=True, slots=True)
class TestbedCase:
    """A group of bars: its jobs, and the change of each model's completion time in the paper, in %."""

    figure: int
    label: str
    jobs: tuple[TestbedJob, ...]
    paper: Mapping[str, float]


def cases() -> Iterator[TestbedCase]:
    """The cases of Figures 19 to 22. The paper says how many GPUs each job has; their hosts are our choice.

    Figure 19: GPT has three whole hosts and half of two more; the first BERT has the other halves with their
    NICs. Every other BERT has one host under a ToR of GPT. Figure 20: all jobs have their own NICs. Figures
    21 and 22: BERT and ResNet each have one of the two GPUs of a PCIe switch.
    """
    gpt = TestbedJob("gpt", GPT, 32, (1, 3, 5, 7, 9))
    berts = [
        TestbedJob(f"bert{i + 1}", BERT, 8, hosts)
        for i, hosts in enumerate(((7, 9), (2, 12), (4, 11), (6, 10)))
    ]
    for n, changes in ((2, (-11, 3)), (3, (-17, 0)), (4, (-25, 1))):
        yield TestbedCase(
            19, f"GPT-32, {n} BERT-8", (gpt, *berts[:n]), dict(zip(("GPT", "BERT"), changes, strict=True))
        )
    yield TestbedCase(
        20,
        "GPT-48, 2 BERT-16, 2 ResNet-8",
        (
            TestbedJob("gpt", GPT, 48, (1, 3, 5, 7, 9, 11)),
            TestbedJob("bert1", BERT, 16, (2, 4, 6, 8), (1, 2)),
            TestbedJob("bert2", BERT, 16, (2, 4, 6, 8), (3, 4)),
            TestbedJob("resnet1", RESNET, 8, (10, 12), (1, 2)),
            TestbedJob("resnet2", RESNET, 8, (10, 12), (3, 4)),
        ),
        {"GPT": -18, "BERT": -15, "ResNet": 2},
    )
    bert = TestbedJob("bert", BERT, 16, (1, 3, 5, 7))
    places = (((1, 3), (1, 2)), ((5, 7), (1, 2)), ((1, 3), (3, 4)))
    resnets = [TestbedJob(f"resnet{i + 1}", RESNET, 4, *place) for i, place in enumerate(places)]
    for n, changes in ((1, (-15, 2)), (2, (-19, 2)), (3, (-33, 3))):
        paper = dict(zip(("BERT", "ResNet"), changes, strict=True))
        yield TestbedCase(21, f"BERT-16, {n} ResNet-4", (bert, *resnets[:n]), paper)
    resnet = TestbedJob("resnet", RESNET, 8, (1, 3))
    for gpus, changes in ((8, (-7, 1)), (16, (-14, 1)), (24, (-28, 2))):
        bert = TestbedJob("bert", BERT, gpus, (1, 3, 5, 7, 9, 11)[: gpus // 4])
        paper = dict(zip(("BERT", "ResNet"), changes, strict=True))
        yield TestbedCase(22, f"ResNet-8, BERT-{gpus}", (resnet, bert), paper)


@cache
def _cluster() -> Cluster:
    return machines(Network(figure_18(), HostInternals(PCIE_BPS)), GPUS_A_HOST)


def iteration_s(jobs: Sequence[TestbedJob], policy: str, seed: int, seconds: float) -> dict[str, float]:
    """The mean iteration time of each job in s, if all run together for `seconds`. The seed draws their
    starts.
    """
    random = Random(f"{seed}/testbed")
    requests = []
    for job in jobs:
        compute_ns = job.request(0).shape.compute_ns
        requests.append(job.request(round(random.random() * compute_ns)))
    settings = SimulationSettings(policy=policy, seed=seed, until_ns=round(seconds * 1e9), log=False)
    simulation = Simulation(_cluster(), requests, settings, scheduler=scheduler_named("fifo"))
    simulation.run()
    return {name: o.total / o.iterations / 1e12 for name, o in simulation.memory.outcomes.items()}


def compute_s(job: TestbedJob) -> float:
    """The compute time in an iteration of a job, in s."""
    return job.request(0).shape.compute_ns / 1e9
