# SPDX-License-Identifier: Apache-2.0
"""Simulate a choice of the loop or of a baseline flow by flow: which utilisation does it reach?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.interleave.joint.fluid import mean_length, salt_of, start_of
from controller.interleave.joint.instance import UNSCHEDULED, Choice
from polyrhythm.paper.interleave_cases import InterleaveCase, JobCase, network_of
from sim.engine import KernelEngine
from sim.jobrun import FREE as AT_ITS_PACE
from sim.jobrun import IterationSchedule, JobRun
from sim.mltcp import weights
from sim.output import MarkEstimate
from sim.shape import PhaseShape, Shape, program
from sim.task_graph import TaskGraph
from sim.units import PS_PER_NS

UNSEEN = (70_001, 70_002, 70_003)
"""Seeds of jitter and starts that no search has used."""
ITERATIONS = 150
_MOST_BEGUN = 20_000
_NEVER_DONE = 1 << 40
_MLTCP_STEPS = 16
_KEPT = 400


@dataclass(frozen=True, slots=True)
class SimulatedChoice:
    """The result of a choice over all seeds.

    `utilisation` is the GPU utilisation, 0 to 1. `slowdown` has quantiles of the iteration time over that of
    the job alone, over all iterations. `marks` has the ECN marks per iteration of each job and seed.
    """

    utilisation: float
    slowdown: tuple[float, ...]
    marks: tuple[float, ...]


def program_of(job: JobCase) -> TaskGraph:
    """The job for the simulator: each Up phase is a ring in one step, followed by its compute."""
    n = len(job.hosts)
    phases = tuple(
        # In a fused ring of this size every flow carries the bytes of the phase at its rate.
        PhaseShape(
            "fused_ring",
            s.up_ns * s.rate_bps / 8e9 * n / (2 * (n - 1)),
            after_ns=s.compute_ns,
            limit_bps=float(s.rate_bps),
        )
        for s in job.steps
    )
    return program(Shape(phases), job.name, job.hosts)


def runs_of(case: InterleaveCase, choice: Choice, seed: int) -> list[JobRun]:
    """The jobs under a choice. The seed draws the jitter and the starts."""
    network, instance = network_of(case.fabric), case.instance
    chosen = iter(
        network.links(every[way]) for every, way in zip(case.candidates, choice.path_choice, strict=True)
    )
    # One class for each used level.
    runs = []
    for j, (job, player) in enumerate(zip(case.jobs, instance.jobs, strict=True)):
        paths = {f"{job.name}/{a}>{b}": next(chosen) for a, b in job.pairs}
        built = program_of(job)
        period, shift = choice.timings[j]
        runs.append(
            JobRun(
                name=job.name,
                program=built,
                paths=tuple(paths[c.flow] for c in built.channels),
                klass=1 + choice.level[j],
                iterations=_NEVER_DONE,
                ready=round(start_of(seed, j, player.alone_ns) * PS_PER_NS),
                schedule=AT_ITS_PACE
                if choice.timings[j] == UNSCHEDULED
                else IterationSchedule(0, shift * PS_PER_NS, period * PS_PER_NS),
                jitter=round(instance.jitter * 1e6),
                salt=salt_of(seed, j),
                weights=weights(steps=_MLTCP_STEPS) if choice.mltcp[j] else (),
            )
        )
    return runs


def simulate_choice(
    case: InterleaveCase, choice: Choice, seeds: Sequence[int] = UNSEEN, iterations: int = ITERATIONS
) -> SimulatedChoice:
    """Simulate a choice with each seed, for `iterations` iterations of the longest job."""
    network, players = network_of(case.fabric), case.instance.jobs
    weight = np.array([p.weight for p in players])
    compute = np.array([p.compute_ns for p in players], dtype=np.float64)
    own = [max(p.alone_ns, r[0]) for p, r in zip(players, choice.timings, strict=True)]
    begun = sum(max(own) / t for t in own)
    horizon = round(max(own) * min(iterations, _MOST_BEGUN / begun)) * PS_PER_NS
    used: list[float] = []
    slower: list[NDArray[np.float64]] = []
    marks: list[float] = []
    marking = MarkEstimate()
    for seed in seeds:
        engine = KernelEngine(network.capacity, network.marks, runs_of(case, choice, seed), 0, log=True)
        engine.advance(horizon)
        lengths = []
        for run, player in zip(engine.export(), players, strict=True):
            count = sum(run.lengths.values())
            opened = horizon - run.begin if run.begin >= 0 else 0
            lengths.append(mean_length(run.total, count, opened) / PS_PER_NS)
            slower.append(
                np.repeat(
                    np.array(list(run.lengths), dtype=np.float64) / PS_PER_NS / player.alone_ns,
                    list(run.lengths.values()),
                )
            )
            congested = float(run.congested.sum())
            marks.append(congested / marking.packet_bits * marking.probability / max(1, count))
        used.append(float((weight * compute / np.array(lengths)).sum() / weight.sum()))
    every = np.concatenate(slower) if slower else np.zeros(0)
    quantiles = np.quantile(every, np.linspace(0, 1, _KEPT)) if len(every) else np.zeros(0)
    return SimulatedChoice(float(np.mean(used)), tuple(quantiles.tolist()), tuple(marks))
