# SPDX-License-Identifier: Apache-2.0
"""The figures of the report, from runs made up by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from polyrhythm.paper.real_training.capture import Tuple5
from polyrhythm.paper.real_training.parts import MOST_BUSY, PARTS, RATES_BPS, WARMUP, PartResult
from polyrhythm.paper.real_training.report import losses_equal, report, to_text
from polyrhythm.paper.real_training.runs import MeasuredJob, Run, on_planned_paths

COLLIDE = PARTS[0]


def run(ms: float, *, busy: float = 0.5, planned: float | None = None, state: str = "s") -> Run:
    """Job a takes `ms` for each measured step, job b 100 ms; the steps before take an hour."""
    before = (3.6e6,) * WARMUP
    jobs = {
        "a": MeasuredJob((*before, ms, ms), "l", state),
        "b": MeasuredJob((*before, 100.0, 100.0), "k", "t"),
    }
    return Run(jobs, busy, 1, planned)


def result(ecmp: list[Run], ours: list[Run], killed: Run | None = None, void: int = 0) -> PartResult:
    return PartResult(COLLIDE, RATES_BPS[1], tuple(ecmp), tuple(ours), void, killed)


def test_speedup_is_the_median_of_pairs_and_void_pairs_do_not_count() -> None:
    slow = MOST_BUSY + 0.01
    found = report([
        result(
            [run(200), run(140), run(9000, busy=slow)],
            [run(100, planned=1.0), run(100, planned=0.995), run(100, planned=1.0)],
            void=1,
        )
    ])  # fmt: skip
    # Pairs of 1.5 and 1.2: the means over job a (2 and 1.4) and job b (1).
    assert found["speedup_collide"] == pytest.approx(1.35)
    assert found["bytes_on_planned_tuples"] == 0.995
    assert found["host_cpu_busy"] == slow
    assert found["void_runs"] == 3
    part = found["parts"]["collide"]
    assert (part["repeats"], part["link_mbps"]) == (2, 12.5)
    assert part["jobs"]["a"]["ecmp"] == {"mean_ms": 170.0, "p99_ms": 170.0}
    assert part["jobs"]["b"]["ours"] == {"mean_ms": 100.0, "p99_ms": 100.0}
    assert "speed-up 1.35" in to_text(found)


def test_without_a_valid_pair_there_is_no_figure() -> None:
    found = report([result([run(200, busy=1.0)], [run(100)])])
    assert found["speedup_collide"] is None
    assert found["parts"]["collide"]["jobs"]["a"]["ours"] == {"mean_ms": None, "p99_ms": None}
    assert "speed-up void" in to_text(found)


@pytest.mark.parametrize("where", ["ecmp", "ours", "killed"])
def test_losses_are_equal_only_if_they_are_in_every_run(where: str) -> None:
    runs = {name: run(100) for name in ("ecmp", "ours", "killed")}
    same = result([runs["ecmp"]], [runs["ours"]], runs["killed"])
    assert losses_equal([same])
    runs[where] = run(100, state="other")
    assert not losses_equal([same, result([runs["ecmp"]], [runs["ours"]], runs["killed"])])


def test_bytes_on_planned_paths_are_those_that_left_for_the_planned_spine() -> None:
    a, b = "10.0.0.1", "10.0.1.1"
    there, back = Tuple5(a, 1, b, 2), Tuple5(b, 2, a, 1)
    carried = {
        ("leaf1", "spine1"): Counter({there: 900, Tuple5("10.0.0.2", 1, b, 2): 5000}),
        ("leaf1", "spine2"): Counter({Tuple5(a, 9, b, 2): 100}),
        ("leaf2", "spine1"): Counter({back: 500}),
        ("leaf2", "spine2"): Counter({back: 500}),
    }
    flows = {
        (a, b): ("h1", "leaf1", "spine1", "leaf2", "h3"),
        (b, a): ("h3", "leaf2", "spine2", "leaf1", "h1"),
    }
    assert on_planned_paths([flows], carried) == pytest.approx(1400 / 2000)
    assert on_planned_paths([flows], {}) is None
    assert on_planned_paths([], carried) is None
