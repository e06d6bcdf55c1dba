# SPDX-License-Identifier: Apache-2.0
"""One iteration of a job as a value: phases of compute with one collective each.

A shape names no hosts. With the hosts of a job it becomes a TaskGraph and, for the planner, a Job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from controller.model import Flow, Job, Profile
from controller.wire.collectives import Collective
from controller.wire.traffic import flow_name
from sim.collectives import Collectives, Transport
from sim.task_graph import GATE, TaskGraph, TaskGraphBuilder, TaskGraphError
from sim.units import PS_PER_NS

MESSAGES = "messages"
FUSED = "fused_"
COLLECTIVES = (*Collective, *(FUSED + name for name in Collective), MESSAGES, "none")
"""Those that begin with FUSED are one step with the same bytes. MESSAGES: those of the phase, in one step;
each rank waits for what it sends and receives only."""

# The floating-point operations of one A100 in a second, at the 40 % utilisation that large training reaches.
# They are used for jobs whose flops are unknown.
FLOPS_PER_GPU_SECOND = 312e12 * 0.4


@dataclass(frozen=True, slots=True)
class PhaseShape:
    """`before_ns` of compute, then the collective beside `beside_ns` of compute, then `after_ns`.

    `size` is the collective's bytes, as `controller.wire.collectives.rounds` takes it. `groups` are ranks
    that each run a collective of their own at the same time; empty: one group of all ranks. `limit_bps` caps
    each pair of endpoints, 0: no cap. `messages` are those of the phase as (sending rank, receiving rank,
    bytes) if it is no collective.
    """

    collective: str
    size: float
    before_ns: int = 0
    beside_ns: int = 0
    after_ns: int = 0
    limit_bps: float = 0.0
    groups: tuple[tuple[int, ...], ...] = ()
    messages: tuple[tuple[int, int, float], ...] = ()

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            raise TaskGraphError(f"{self.collective!r} is no collective; legal: {', '.join(COLLECTIVES)}")
        if min(self.size, self.before_ns, self.beside_ns, self.after_ns, self.limit_bps) < 0:
            raise TaskGraphError("a phase's bytes, times and cap cannot be negative")


@dataclass(frozen=True, slots=True)
class Shape:
    """One iteration. `qps` queue pairs share each pair of endpoints; `overhead` is bits on the wire per
    bit of payload; `flops` of the whole job per iteration (0: by its compute and GPUs)."""

    phases: tuple[PhaseShape, ...]
    qps: int = 1
    overhead: float = 1.0
    flops: float = 0.0

    @property
    def compute_ns(self) -> int:
        """The GPUs' compute in an iteration."""
        return sum(p.before_ns + p.beside_ns + p.after_ns for p in self.phases)


def program(shape: Shape, job: str, ranks: Sequence[str], *, barriers: bool = False) -> TaskGraph:
    """The shape on these hosts, one per rank (several ranks may be of one host).

    If all phases are messages, each rank has a loop of its own, as the workers of the emulated hosts do:
    it goes on when it has sent and received its own messages. Otherwise, or with `barriers`, all ranks wait
    for one another after each phase.
    """
    if not barriers and all(phase.collective == MESSAGES for phase in shape.phases):
        return _needs_time(_loop_by_rank(shape, job, ranks), job)
    builder = TaskGraphBuilder()
    last: list[int] = []
    for phase in shape.phases:
        transport = Transport(shape.qps, phase.limit_bps or np.inf, shape.overhead)
        collectives = Collectives(builder, job, transport)
        if phase.before_ns:
            last = [builder.compute(last, phase.before_ns * PS_PER_NS)]
        ends: list[int] = []
        for group in phase.groups or (tuple(range(len(ranks))),):
            members = [ranks[r] for r in group]
            if phase.collective == MESSAGES:
                ends.append(
                    collectives.steps(last, [[(ranks[a], ranks[b], m) for a, b, m in phase.messages]])
                )
            elif phase.collective != "none":
                what = Collective(phase.collective.removeprefix(FUSED))
                fused = phase.collective.startswith(FUSED)
                ends.append(collectives.collective(last, what, members, phase.size, fused=fused))
        if phase.beside_ns:
            ends.append(builder.compute(last, phase.beside_ns * PS_PER_NS))
        last = [builder.barrier(ends or last)]
        if phase.after_ns:
            last = [builder.compute(last, phase.after_ns * PS_PER_NS)]
    return _needs_time(builder.build(busy_ps=shape.compute_ns * PS_PER_NS), job)


def _loop_by_rank(shape: Shape, job: str, ranks: Sequence[str]) -> TaskGraph:
    """A loop for each rank. A message lets its receiver go on by a gate."""
    if shape.qps < 1:
        raise TaskGraphError(f"job {job}: {shape.qps} QPs; it takes at least one")
    builder = TaskGraphBuilder()
    sent: dict[tuple[int, str], int] = {}
    awaited: dict[tuple[int, str], int] = {}
    queue_pairs = [list(_queue_pairs(phase, shape.qps, job, ranks)) for phase in shape.phases]
    for rank, host in enumerate(ranks):
        if rank:
            builder.next_loop()
        last: list[int] = []
        for number, phase in enumerate(shape.phases):
            if phase.before_ns:
                last = [builder.compute(last, phase.before_ns * PS_PER_NS)]
            ends: list[int] = []
            for (src, dst, size), flow in queue_pairs[number]:
                if src == rank:
                    bits = size * 8 * shape.overhead / shape.qps
                    limit = (phase.limit_bps or np.inf) / shape.qps
                    channel = builder.channel(host, ranks[dst], flow)
                    sent[number, flow] = builder.flow(last, channel, bits, limit)
                    ends.append(sent[number, flow])
                if dst == rank:
                    awaited[number, flow] = builder.gate(last)
                    ends.append(awaited[number, flow])
            if phase.beside_ns:
                ends.append(builder.compute(last, phase.beside_ns * PS_PER_NS))
            last = [builder.barrier(ends or last)]
            if phase.after_ns:
                last = [builder.compute(last, phase.after_ns * PS_PER_NS)]
    for key, task in sent.items():
        builder.give(task, awaited[key])
    return builder.build(busy_ps=shape.compute_ns * PS_PER_NS)


def _queue_pairs(
    phase: PhaseShape, qps: int, job: str, ranks: Sequence[str]
) -> Iterator[tuple[tuple[int, int, float], str]]:
    """The messages of a phase, each with the name of each queue pair that carries a part of it."""
    seen: Counter[tuple[str, str]] = Counter()
    for message in phase.messages:
        pair = ranks[message[0]], ranks[message[1]]
        for _ in range(qps):
            yield message, flow_name(job, *pair, seen[pair])
            seen[pair] += 1


def _needs_time(built: TaskGraph, job: str) -> TaskGraph:
    """The graph, if each of its loops takes time or waits for another."""
    timed = (built.span > 0) | (built.bits > 0)
    waits = np.logical_or(timed, built.kind == GATE)
    if not timed.any() or not np.logical_or.reduceat(waits, built.loops[:-1]).all():
        raise TaskGraphError(f"job {job}: an iteration needs time")
    return built


def planner_job(shape: Shape, name: str, model: str, gpus: int, built: TaskGraph, profile: Profile) -> Job:
    """The job as the planner knows it: one Flow per queue pair between different hosts."""
    size: dict[str, float] = {}
    ends: dict[str, tuple[str, str]] = {}
    for channel, bits in zip(built.channels, built.channel_bits, strict=True):
        if channel.src != channel.dst:
            size[channel.flow] = size.get(channel.flow, 0.0) + bits / 8
            ends[channel.flow] = (channel.src, channel.dst)
    return Job(
        name=name,
        model=model,
        gpus=gpus,
        hosts=tuple(dict.fromkeys(h for c in built.channels for h in (c.src, c.dst))),
        profile=profile,
        flops_per_iteration=shape.flops or gpus * max(shape.compute_ns / 1e9, 1e-9) * FLOPS_PER_GPU_SECOND,
        flows=tuple(Flow(flow, name, *ends[flow], round(total)) for flow, total in size.items()),
    )
