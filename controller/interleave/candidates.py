# SPDX-License-Identifier: Apache-2.0
"""Rank placements or paths by how well their jobs can share links in time (CASSINI, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import fmean

from controller.interleave.circle import SharedLink
from controller.interleave.solve import Interleaving, interleave

MOST = 10
"""The number of candidates that are ranked. Chosen: what a scheduler with auctions offers for one job."""


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A candidate, by its `index` in the given list, with its result.

    `compatibility` is the mean score of the links that several jobs share, and 1 if there are none. With
    loops it is the score of the compromise, and `lost` is what the loops cost.
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
    """The first `most` candidates, most compatible first. A candidate is the list of links that its jobs
    share.

    Equally compatible candidates keep their order. The thesis discards candidates whose affinity graph has a
    loop; with `loops` False this function does so too. `workers` threads share the work: the compiled kernels
    run in parallel, the plain search does not become faster. The result does not depend on `workers`.
    """
    if most < 1 or workers < 1:
        raise ValueError(f"most and workers must be whole numbers from 1, not {most} and {workers}")

    def evaluate(index: int) -> RankedCandidate:
        result = interleave(candidates[index], periods, seed=seed, fast=fast)
        shared = [c for c in result.circles if len(c.link.demands) > 1]
        score = fmean(c.score for c in shared) if shared else 1.0
        return RankedCandidate(index, score, fmean(c.loss for c in shared) if shared else 0.0, result)

    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(evaluate, range(min(most, len(candidates)))))
    kept = [r for r in results if loops or not r.result.loops]
    return sorted(kept, key=lambda r: (-round(r.compatibility, 9), r.index))
