# SPDX-License-Identifier: Apache-2.0
"""Jobs of very different periods on one time scale, so that an evaluation of them stays cheap.

A job of 10 s meets a thousand iterations of a job of 10 ms in each of its own. What they cost each other
depends on how long either of them sends, as a part of its time, and hardly on how much slower the slow one
is: within each of its phases the fast job is in a steady state. So the slow job is evaluated with all its
phases shortened by one factor, and its iterations are multiplied by that factor afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_GAPS = (32.0, 24.0, 16.0, 12.0, 8.0)
"""How many times longer the iterations of a job may be than those of the next faster one. The first gap is
tried first. Chosen: with 16 or more, GPU utilisation changes by about 0.2 % in the mean, with 8 by 0.4 %, and
with smaller ones by more."""
_MOST_MET = 100.0
"""How many iterations all jobs may begin in one of the slowest job, if a smaller gap can bring that about.
Chosen: bounds the work of an evaluation."""


def shortening(lengths: Sequence[float], fixed: Sequence[bool]) -> list[float]:
    """The factor, at most 1, by which the phases of each job are shortened for an evaluation.

    `lengths` are those of iterations, in any unit. A `fixed` job is not shortened: its slot has a period in
    step with those of other jobs.
    """
    for gap in _GAPS:
        factors = _within(lengths, fixed, gap)
        shorter = [factor * own for factor, own in zip(factors, lengths, strict=True)]
        if sum(max(shorter) / own for own in shorter) <= _MOST_MET:
            break
    return factors


def _within(lengths: Sequence[float], fixed: Sequence[bool], gap: float) -> list[float]:
    """The factors at which no iteration is more than `gap` times as long as the next shorter one."""
    order = sorted(range(len(lengths)), key=lambda j: lengths[j])
    factors = [1.0] * len(lengths)
    for before, j in pairwise(order):
        if not fixed[j]:
            factors[j] = factors[before] * min(1.0, gap * lengths[before] / lengths[j])
    return factors
