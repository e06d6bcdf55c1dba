# SPDX-License-Identifier: Apache-2.0
"""The text of the battery's report says who loses, and where the planner expected too much."""

from typing import Any

import pytest

from polyrhythm.paper.battery import to_text
from polyrhythm.paper.battery_metrics import totals


def row(number: int, **changed: Any) -> dict[str, Any]:
    return {
        "number": number,
        "name": f"battery-1-{number}",
        "kind": "looped",
        "jobs": 4,
        "spans": 1,
        "gpu_utilisation": {"alone": 0.6, "ecmp": 0.42, "polyrhythm": 0.46},
        "ecmp_interval": 0.01,
        "ecmp_loss_pct": 30.0,
        "gain_pct": {"polyrhythm": 9.5},
        "worse_than_ecmp": False,
        "worse_than_best": False,
        "worse_than_best_in_floor": False,
        "worst_job": {"job": "job1", "ratio": 1.2},
        "worst_ratio": {"polyrhythm": 1.2},
        "twins_apart": [],
        "judge": {"expected": 0.46, "measured": 0.46, "interval": 0.02, "error_pct": 0.0},
        "notes": {},
        "deterministic": True,
    } | changed


def text(*rows: dict[str, Any]) -> list[str]:
    report = {"seed": 1, "rows": list(rows), **totals(rows, "polyrhythm")}
    return to_text(report).splitlines()


def test_nobody_is_named_where_nobody_loses() -> None:
    assert not [line for line in text(row(1), row(2)) if line.startswith("battery-")]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {"worse_than_ecmp": True, "gpu_utilisation": {"alone": 0.6, "ecmp": 0.42, "polyrhythm": 0.4}},
            "battery-1-2: WORSE than ECMP: GPU utilisation 40.0 % after 42.0 +- 1.0 %",
        ),
        (
            {"worst_job": {"job": "job3", "ratio": 1.61}},
            "battery-1-2: job3 takes 1.61 times its iteration under ECMP",
        ),
        (
            {"judge": {"expected": 0.46, "measured": 0.405, "interval": 0.089, "error_pct": 13.6}},
            "battery-1-2: the plan expects a GPU utilisation of 46.0 %, measured 40.5 +- 8.9 %",
        ),
        (
            {"judge": {"expected": 0.4, "measured": 0.45, "interval": 0.0, "error_pct": -11.1}},
            "battery-1-2: the plan expects a GPU utilisation of 40.0 %, measured 45.0 +- 0.0 %",
        ),
    ],
)
def test_a_scenario_that_loses_or_is_misjudged_is_named(changed: dict[str, Any], line: str) -> None:
    assert [each for each in text(row(1), row(2, **changed)) if each.startswith("battery-")] == [line]


def test_a_plan_that_says_nothing_is_not_misjudged() -> None:
    judge = {"expected": None, "measured": 0.4, "interval": 0.0, "error_pct": None}
    assert not [line for line in text(row(1), row(2, judge=judge)) if line.startswith("battery-")]
