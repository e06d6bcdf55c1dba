# SPDX-License-Identifier: Apache-2.0
"""The verdicts on figures beside the papers'."""

import pytest

from polyrhythm.paper import EXPERIMENTS
from polyrhythm.paper.overview import QUICK
from polyrhythm.paper.overview_rows import ABSENT, EXTRACTORS, VERDICTS, compared, crux_trace


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
    ],
)
def test_a_number_beside_the_papers(
    paper: float, ours: float, neutral: float | None, rising: bool, verdict: str
) -> None:
    assert compared(paper, ours, near=0.1, neutral=neutral, rising=rising) == verdict


def test_the_figure_that_a_workload_is_calibrated_to_is_no_result() -> None:
    def report(calibration: object) -> dict[str, object]:
        fabric = {
            "paper": {"crux_full": 0.62, "sincronia": 0.39},
            "utilisation": {"crux_full": 0.62, "sincronia": 0.5},
            "order": {"a < b": False},
            "margin": {"a < b": [-0.01, 0.001]},
        }
        return {"calibration": calibration, "fabrics": {"clos": fabric}}

    verdicts = [[row.verdict for row in crux_trace(report(c))] for c in ({"volume": 1}, None)]
    assert verdicts[0] == ["calibrated", "order only", "not reproduced"]
    assert verdicts[1] == ["reproduced", "order only", "not reproduced"]


def test_every_experiment_of_a_paper_has_rows() -> None:
    # The battery draws its own scenarios, and real-training runs jobs of its own; no paper has them.
    assert set(EXTRACTORS) == set(QUICK) == set(EXPERIMENTS) - {"all", "battery", "real-training"}
    assert all(row.verdict == "not run" and row.why for row in ABSENT)
    assert {row.verdict for row in ABSENT} <= set(VERDICTS)
