# SPDX-License-Identifier: Apache-2.0
"""A fluid model of MLTCP on one link: jobs share it in proportion to F of the part that they have sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

Shape = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class FluidJob:
    """A job that first sends at `start_ms`: for `up_ms` at the link's full rate, then it is silent for
    `compute_ms`.

    Each compute time varies by up to `jitter_ms` in either direction, uniformly.
    """

    start_ms: float
    up_ms: float
    compute_ms: float
    jitter_ms: float = 0.0


def run(
    jobs: Sequence[FluidJob], shape: Shape | None, iterations: int, *, step_ms: float = 0.1, seed: int = 0
) -> list[list[tuple[float, float]]]:
    """When each job sent in each of its first `iterations` iterations: (begin, end) in ms, by job.

    The shares are integrated by the midpoint rule, in steps of at most `step_ms` that end where a job begins
    or ends. `shape` is F; with None the jobs share the link equally.
    """
    weigh = shape if shape is not None else _even
    rng = Random(seed)
    spans: list[list[tuple[float, float]]] = [[] for _ in jobs]
    begin = [job.start_ms for job in jobs]
    sent = [-1.0 if job.start_ms > 0 else 0.0 for job in jobs]
    now = 0.0
    while min(len(done) for done in spans) < iterations:
        active = [i for i, amount in enumerate(sent) if amount >= 0]
        waiting = min((begin[i] for i in range(len(jobs)) if sent[i] < 0), default=math.inf)
        if not active:
            now = waiting
        else:
            share = _shares(jobs, active, sent, weigh)
            step = min(step_ms, waiting - now)
            half = list(sent)
            for i, part in zip(active, share, strict=True):
                half[i] += part * step / 2
            share = _shares(jobs, active, half, weigh)
            for i, part in zip(active, share, strict=True):
                if part > 0:
                    step = min(step, (jobs[i].up_ms - sent[i]) / part)
            now += step
            for i, part in zip(active, share, strict=True):
                sent[i] += part * step
        for i, job in enumerate(jobs):
            if sent[i] < 0 and begin[i] <= now:
                sent[i] = 0.0
            elif sent[i] >= job.up_ms * (1 - 1e-9):
                spans[i].append((begin[i], now))
                sent[i] = -1.0
                begin[i] = now + max(0.0, job.compute_ms + rng.uniform(-job.jitter_ms, job.jitter_ms))
    return [done[:iterations] for done in spans]


def offsets(spans: Sequence[Sequence[tuple[float, float]]]) -> list[float]:
    """How long after the first job the second one began, in ms, by iteration."""
    return [second[0] - first[0] for first, second in zip(spans[0], spans[1], strict=True)]


def _even(ratio: float) -> float:
    return 1.0


def _shares(
    jobs: Sequence[FluidJob], active: Sequence[int], sent: Sequence[float], weigh: Shape
) -> list[float]:
    weights = [weigh(min(1.0, sent[i] / jobs[i].up_ms)) for i in active]
    total = sum(weights)
    return [w / total for w in weights]
