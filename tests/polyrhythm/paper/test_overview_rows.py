# SPDX-License-Identifier: Apache-2.0
"""The verdicts on figures beside the papers'."""

import pytest

from polyrhythm.paper import EXPERIMENTS
from polyrhythm.paper.overview import QUICK
from polyrhythm.paper.overview_rows import (
    ABSENT,
    EXTRACTORS,
    cassini_snapshots,
    cassini_testbed,
    crux_testbed,
    crux_trace,
    mltcp,
    untuned,
)


def test_the_figure_that_a_workload_is_calibrated_to_is_no_result() -> None:
    def report(calibration: object) -> dict[str, object]:
        fabric = {
            "paper": {"crux_full": 0.62, "crux_ps_pa": 0.62, "sincronia": 0.39},
            "utilisation": {"crux_full": 0.62, "crux_ps_pa": 0.61, "sincronia": 0.5},
            "order": {"a < b": False},
            "margin": {"a < b": [-0.01, 0.001]},
        }
        placed = {"gain": [0.05, 0.01], "paper": [0.39, 0.62]}
        return {"calibration": calibration, "fabrics": {"clos": fabric}, "schedulers": {"none": placed}}

    verdicts = [[row.verdict for row in crux_trace(report(c))] for c in ({"volume": 1}, None)]
    # crux_ps_pa has the paper's figure because crux_full has it.
    assert verdicts[0] == ["calibrated", "calibrated", "calibrated", "not reproduced", "order only"]
    assert verdicts[1] == ["reproduced", "reproduced", "calibrated", "not reproduced", "order only"]


def test_a_sign_that_the_jobs_were_chosen_for_is_no_result() -> None:
    changes = {"A": (-15.0, -33.0), "B": (-15.0, -14.0), "C": (-33.0, -15.0), "D": (-15.0, 4.0)}
    change = {model: {"paper_pct": paper, "pct": ours} for model, (paper, ours) in changes.items()}
    report = {"cases": [{"figure": "19", "case": "c", "change": change}]}
    verdicts = [row.verdict for row in crux_testbed(report)]
    assert verdicts == ["calibrated", "reproduced", "calibrated", "not reproduced"]


@pytest.mark.parametrize(
    ("table", "thesis", "ours", "times", "verdict"),
    [
        ("4.3", 1.4, 2.0, {"fair": [280, 202], "cassini": [140, 143]}, "order only"),
        ("4.3", 1.4, 1.42, {"fair": [205, 202], "cassini": [145, 143]}, "reproduced"),
        ("4.3", 1.4, 1.42, {"fair": [410, 202], "cassini": [290, 143]}, "order only"),
        ("4.3", 1.0, 1.03, {"fair": [558, 257], "cassini": [540, 256]}, "not reproduced"),
        ("3.1", 1.4, 1.42, {"fair": [205, 202], "unfair": [145, 143]}, "calibrated"),
        ("3.1", 1.4, 1.0, {"fair": [205, 202], "unfair": [205, 143]}, "not reproduced"),
    ],
)
def test_a_larger_gain_from_a_slower_baseline_is_no_success(
    table: str, thesis: float, ours: float, times: dict[str, list[float]], verdict: str
) -> None:
    found = {"gain": ours, "thesis_gain": thesis, "mean_ms": times}
    row = {"case": "c", "table": table, "thesis_compatible": table == "3.1", "verdict": found}
    (figure,) = cassini_snapshots({"snapshots": [row], "groups": []})
    assert figure.verdict == verdict
    assert f"({times['fair'][1]})" in figure.why


@pytest.mark.parametrize(
    ("draws", "mean", "verdict"),
    [(2, 1.05, "surpassed"), (1, 1.05, "order only"), (3, 1.0, "not reproduced")],
)
def test_one_draw_shows_nothing_beyond_cassini(draws: int, mean: float, verdict: str) -> None:
    row = {
        "trace": "dynamic",
        "scheduler": "themis",
        "bound": None,
        "paper": None,
        "hard_draws": draws,
        "ours_over_cassini_where_hard": {"mean": mean, "p99": 1.0},
    }
    (figure,) = cassini_testbed({"rows": [row]})
    assert figure.verdict == verdict


@pytest.mark.parametrize(
    ("ratio", "half", "verdict"),
    [(0.9, 0.05, "order only"), (0.9, 0.2, "not reproduced"), (0.9995, 0.0, "not reproduced")],
)
def test_a_gain_on_untuned_jobs_is_beyond_its_interval(ratio: float, half: float, verdict: str) -> None:
    place = {"trace": "muri", "load": 0.5, "policy": "crux"}
    row = {**place, "jct_to_ecmp": ratio, "jct_to_ecmp_pm": half, "worst_job": 1.0}
    (figure,) = untuned({"losses": [], "rows": [row]})
    assert figure.verdict == verdict


@pytest.mark.parametrize(
    ("iterations", "verdict"),
    [(4, "reproduced"), (33, "reproduced"), (34, "not reproduced"), (None, "not reproduced")],
)
def test_fewer_iterations_until_jobs_take_turns_are_not_better(iterations: int | None, verdict: str) -> None:
    report = {"convergence_ms": [], "iterations_to_interleave": iterations, "starts": 1, "iterations": 40}
    (row,) = mltcp(report)
    assert row.verdict == verdict


def test_every_experiment_of_a_paper_has_rows() -> None:
    # The battery draws its own scenarios, and real-training runs jobs of its own; no paper has them.
    assert set(EXTRACTORS) == set(QUICK) == set(EXPERIMENTS) - {"all", "battery", "real-training"}
    assert all(row.verdict == "not run" and row.why for row in ABSENT)
