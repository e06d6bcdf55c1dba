# SPDX-License-Identifier: Apache-2.0
"""The figures of the battery, computed by hand on small inputs."""

from __future__ import annotations

from typing import Any

import pytest

from polyrhythm.paper.battery_generator import Span
from polyrhythm.paper.battery_metrics import (
    BatteryJob,
    SpanFigures,
    TwinsApart,
    half_interval,
    mean_iteration_ms,
    over_draws,
    overall_utilisation,
    span_figures,
    totals,
    twins_apart,
    utilisation,
    worst_ratio,
)

A, B = BatteryJob("a", 8, 60.0, "shape"), BatteryJob("b", 2, 30.0, "shape")


def test_the_mean_is_over_whole_iterations_of_the_window() -> None:
    ends = [100.0, 200.0, 310.0, 400.0, 520.0]
    # From 200 to 400: two iterations.
    assert mean_iteration_ms(ends, 150, 450) == 100
    assert mean_iteration_ms(ends, 200, 520) == pytest.approx(320 / 3)


def test_what_a_starved_job_has_not_finished_counts() -> None:
    # One iteration of 100 ms, then one that lasts at least 700 ms.
    assert mean_iteration_ms([100.0, 200.0], 100, 900) == 400
    # No iteration ends in the window, or one alone.
    assert mean_iteration_ms([100.0], 200, 900) == 700
    assert mean_iteration_ms([], 200, 900) == 700
    assert mean_iteration_ms([300.0], 200, 900) == 600
    # The rest of the window after a steady job's last iteration does not count.
    assert mean_iteration_ms([100.0, 200.0, 300.0], 100, 380) == 100


def test_utilisation() -> None:
    assert utilisation([A, B], {"a": 100.0, "b": 60.0}) == pytest.approx((8 * 0.6 + 2 * 0.5) / 10)


def test_spans_count_by_time_and_gpus() -> None:
    spans = [Span(0, 100, 500, ("a",)), Span(500, 600, 800, ("a", "b"))]
    ends = {"a": [100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 720.0], "b": [600.0, 660.0, 720.0, 780.0]}
    first, second = span_figures([A, B], spans, ends)
    assert first == SpanFigures({"a": 100.0}, 0.6, {"a": (100.0,) * 4})
    assert second.mean_ms == {"a": 120.0, "b": 60.0}
    assert second.utilisation == pytest.approx((8 * 0.5 + 2 * 0.5) / 10)
    # 400 ms x 8 GPUs and 200 ms x 10 GPUs.
    expected = (3200 * 0.6 + 2000 * 0.5) / 5200
    assert overall_utilisation([A, B], spans, [0.6, 0.5]) == pytest.approx(expected)


def test_the_confidence_interval() -> None:
    assert half_interval([0.5]) == 0
    assert half_interval([0.5, 0.5, 0.5]) == 0
    # A standard deviation of 0.1, so 4.303 x 0.1 / sqrt(3).
    assert half_interval([0.4, 0.5, 0.6]) == pytest.approx(0.2484, abs=1e-4)


def test_the_worst_job_is_found_in_any_span() -> None:
    def figures(**mean_ms: float) -> SpanFigures:
        return SpanFigures(mean_ms, 0.5)

    ecmp = [
        [figures(a=100, b=100), figures(a=200)],
        [figures(a=120, b=100), figures(a=200)],
    ]
    mean = over_draws(ecmp)
    assert worst_ratio(mean, [figures(a=110, b=90), figures(a=300)]) == (1.5, "a")
    assert worst_ratio(mean, [figures(a=110, b=170), figures(a=300)]) == (1.7, "b")


def test_the_figures_of_draws_are_means_over_all_their_iterations() -> None:
    first = [SpanFigures({"a": 100.0}, 0.6, {"a": (90.0, 110.0)}), SpanFigures({"b": 50.0}, 0.5, {"b": ()})]
    second = [SpanFigures({"a": 130.0}, 0.4, {"a": (130.0,)}), SpanFigures({"b": 70.0}, 0.5, {"b": (70.0,)})]
    assert over_draws([first, second]) == [
        SpanFigures({"a": 115.0}, 0.5, {"a": (90.0, 110.0, 130.0)}),
        SpanFigures({"b": 60.0}, 0.5, {"b": (70.0,)}),
    ]


def test_twins() -> None:
    jobs = [BatteryJob(name, 8, 60.0, "shape") for name in "abc"] + [BatteryJob("d", 4, 60.0, "shape")]
    means = {"a": 100.0, "b": 111.0, "c": 150.0, "d": 300.0}
    link, other = frozenset({("leaf1", "spine1")}), frozenset({("leaf1", "spine2")})
    # c contends elsewhere, d has other GPUs.
    where = {"a": link, "b": link, "c": other, "d": link}
    # Without enough iterations, as of a job that starves, the means decide.
    found = twins_apart(jobs, SpanFigures(means, 0.5), where)
    assert found == [TwinsApart("b", "a", pytest.approx(1.11), True)]
    assert twins_apart(jobs, SpanFigures(means | {"b": 109.0}, 0.5), where) == []
    # A job that is not there in this span has no figure.
    assert twins_apart(jobs, SpanFigures({"a": 100.0}, 0.5), dict.fromkeys("abcd", link)) == []


@pytest.mark.parametrize(
    ("slow", "unequal"),
    [
        ((130.0, 131.0, 129.0, 130.0), True),
        # The same mean, but one iteration in four explains it.
        ((100.0, 100.0, 100.0, 220.0), False),
        ((130.0, 130.0, 130.0, 130.0), True),
        ((111.0, 112.0, 110.0, 113.0), False),
    ],
)
def test_chance_does_not_make_twins_unequal(slow: tuple[float, ...], unequal: bool) -> None:
    jobs = [BatteryJob(name, 8, 60.0, "shape") for name in "ab"]
    fast = (100.0, 102.0, 98.0, 100.0) if len(set(slow)) > 1 else (100.0,) * 4
    figures = SpanFigures({"a": 100.0, "b": sum(slow) / 4}, 0.5, {"a": fast, "b": slow})
    (pair,) = twins_apart(jobs, figures, {"a": frozenset(), "b": frozenset()})
    assert pair == TwinsApart("b", "a", pytest.approx(sum(slow) / 400), unequal)


def row(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "gain_pct": {"polyrhythm": 10.0},
        "ecmp_loss_pct": 20.0,
        "worse_than_ecmp": False,
        "worse_than_best": False,
        "worse_than_best_in_floor": False,
        "worst_job": {"job": "job1", "ratio": 1.1},
        "twins_apart": [],
        "judge": {"error_pct": 2.0},
    } | changed


def test_totals() -> None:
    rows = [
        row("one"),
        row("two", gain_pct={"polyrhythm": -5.0}, worse_than_ecmp=True, ecmp_loss_pct=4.9),
        row("three", worst_job={"job": "job7", "ratio": 1.7}, judge={"error_pct": -6.0}),
        row(
            "four",
            worse_than_best=True,
            worse_than_best_in_floor=True,
            twins_apart=[{"unequal": True}, {"unequal": False}],
            judge={"error_pct": None},
        ),
    ]
    assert totals(rows, "polyrhythm") == {
        "scenarios": 4,
        "lossy_scenarios_pct": 75.0,
        "utilisation_gain_mean": 6.25,
        "utilisation_worse": 1,
        "worse_than_best": 1,
        "worse_than_best_in_floor": 1,
        "worst_job_ratio": 1.7,
        "worst_job": {"scenario": "three", "job": "job7"},
        "unequal_twins": 1,
        "twins_apart": 2,
        "judge_error_mean_pct": pytest.approx(10 / 3),
        "judge_error_worst_pct": 6.0,
    }
    assert totals([], "polyrhythm") == {
        "scenarios": 0,
        "lossy_scenarios_pct": None,
        "utilisation_gain_mean": None,
        "utilisation_worse": 0,
        "worse_than_best": 0,
        "worse_than_best_in_floor": 0,
        "worst_job_ratio": None,
        "worst_job": None,
        "unequal_twins": 0,
        "twins_apart": 0,
        "judge_error_mean_pct": None,
        "judge_error_worst_pct": None,
    }
