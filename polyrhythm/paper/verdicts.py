# SPDX-License-Identifier: Apache-2.0
"""When our figure surpasses a paper's, reproduces it, shares its order, or none of these."""

from __future__ import annotations

VERDICTS = ("surpassed", "reproduced", "order only", "not reproduced", "calibrated", "not run")
"""surpassed: better than the paper's number by more than the tolerance. reproduced: within it. order only: on
the same side of the baseline as in the paper (see `same_order`). calibrated: our workload was chosen to give
this figure, or this order or sign. not reproduced: none of these. not run: there is no figure of ours."""

LEAST_EFFECT = 0.1
"""Our effect is at least this part of the paper's, or it is none. Chosen."""


def compared(
    paper: float, ours: float, *, near: float, neutral: float | None, rising: bool, error: float = 0.0
) -> str:
    """The verdict on a number. `near` is the tolerance, in the unit of both, and `error` half of the interval
    that holds our figure: what is better by less than both is reproduced, but not surpassed. `neutral` is the
    value of "no effect"; None: there is none. `rising`: larger is better."""
    gain = (ours - paper) if rising else (paper - ours)
    if abs(gain) <= near or 0 < gain <= near + error:
        return "reproduced"
    if gain > 0:
        return "surpassed"
    if neutral is not None and same_order(paper, ours, near=near, neutral=neutral, error=error):
        return "order only"
    return "not reproduced"


def same_order(paper: float, ours: float, *, near: float, neutral: float, error: float = 0.0) -> bool:
    """Whether both are on the same side of the baseline: the paper's figure by more than the tolerance, ours
    by more than its error and by at least LEAST_EFFECT of the paper's effect."""
    effect, our_effect = paper - neutral, ours - neutral
    return (
        effect * our_effect > 0
        and abs(effect) > near
        and abs(our_effect) > error
        and abs(our_effect) >= LEAST_EFFECT * abs(effect)
    )
