# SPDX-License-Identifier: Apache-2.0
"""Which of several placements or path assignments lets jobs take turns best (CASSINI's Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import fmean

from controller.interleave.circle import SharedLink
from controller.interleave.solve import Interleaving, interleave

MOST = 10


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A candidate by its place in the list given, and what it would come to.

    `compatibility` is the mean score of the links that several jobs share, 1 where there are none; with
    loops it is that of the compromise, so `lost` says what the loops cost of it.
    """

    index: int
    compatibility: float
    lost: float
    result: Interleaving


def rank(
    candidates: Sequence[Sequence[SharedLink]],
    periods: Mapping[str, int],
    *,
    most: int = MOST,
    workers: int = 1,
    loops: bool = True,
    seed: int = 0,
    fast: bool | None = None,
) -> list[RankedCandidate]:
    """The first `most` candidates, each the links that its jobs would share, most compatible first.

    Of equals the earlier comes first. The thesis discards candidates whose affinity graph has a loop:
    `loops` False does so too. `workers` threads share the work; kernels run in them at once, the plain
    search does not gain by it. The order does not depend on `workers`.
    """
    if most < 1 or workers < 1:
        raise ValueError(f"most and workers are whole numbers from 1, not {most} and {workers}")

    def judge(index: int) -> RankedCandidate:
        result = interleave(candidates[index], periods, seed=seed, fast=fast)
        shared = [c for c in result.circles if len(c.link.demands) > 1]
        score = fmean(c.score for c in shared) if shared else 1.0
        return RankedCandidate(index, score, fmean(c.loss for c in shared) if shared else 0.0, result)

    with ThreadPoolExecutor(workers) as pool:
        judged = list(pool.map(judge, range(min(most, len(candidates)))))
    kept = [r for r in judged if loops or not r.result.loops]
    return sorted(kept, key=lambda r: (-round(r.compatibility, 9), r.index))
