# SPDX-License-Identifier: Apache-2.0
"""When a figure surpasses a paper's, reproduces it, or shares its order only."""

import pytest

from polyrhythm.paper.verdicts import compared


@pytest.mark.parametrize(
    ("paper", "ours", "neutral", "rising", "verdict"),
    [
        (1.6, 1.65, 1.0, True, "reproduced"),
        (1.6, 1.9, 1.0, True, "surpassed"),
        (1.6, 1.2, 1.0, True, "order only"),
        (1.6, 0.9, 1.0, True, "not reproduced"),
        (-15.0, -33.0, 0.0, False, "surpassed"),
        (-33.0, -15.0, 0.0, False, "order only"),
        (-33.0, 2.0, 0.0, False, "not reproduced"),
        (97.7, 90.0, None, True, "not reproduced"),
        # A fiftieth of the paper's effect.
        (1.6, 1.012, 1.0, True, "not reproduced"),
        # The paper has no effect, so no order.
        (1.002, 0.5, 1.0, True, "not reproduced"),
    ],
)
def test_a_number_beside_the_papers(
    paper: float, ours: float, neutral: float | None, rising: bool, verdict: str
) -> None:
    assert compared(paper, ours, near=0.1, neutral=neutral, rising=rising) == verdict


@pytest.mark.parametrize(
    ("paper", "ours", "error", "verdict"),
    [
        (97.7, 98.8, 0.4, "surpassed"),
        (97.7, 98.8, 0.7, "reproduced"),
        # An interval does not excuse what is worse.
        (97.7, 96.8, 0.7, "not reproduced"),
    ],
)
def test_what_is_better_within_its_error_is_reproduced(
    paper: float, ours: float, error: float, verdict: str
) -> None:
    assert compared(paper, ours, near=0.5, neutral=None, rising=True, error=error) == verdict


@pytest.mark.parametrize(("ours", "verdict"), [(0.05, "order only"), (0.035, "not reproduced")])
def test_a_sign_within_the_error_is_none(ours: float, verdict: str) -> None:
    assert compared(0.23, ours, near=0.03, neutral=0.0, rising=True, error=0.04) == verdict
