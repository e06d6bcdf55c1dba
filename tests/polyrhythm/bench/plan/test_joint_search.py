# SPDX-License-Identifier: Apache-2.0
"""The group `joint-search` of `polyrhythm bench plan`: its jobs meet, and its figures are those of the planner."""

import pytest

from controller.planner import plan
from polyrhythm.bench.plan import joint_search as bench


def test_the_jobs_meet_and_one_may_be_far_slower() -> None:
    x = bench.inputs(1, 3)
    assert x == bench.inputs(1, 3)
    made = plan(x)
    assert all("evaluated plans" in j.why for j in made.jobs.values())
    slow = bench.inputs(1, 2, slow=1_000)
    fast, last = (j.profile.period_ns for j in slow.jobs)
    assert last > 400 * fast


def test_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "JOBS", (2,))
    report = bench.measure(1, 1)
    assert report["plan_2_jobs_cpu_ms"] > 0
    assert report["plan_1000_times_slower_cpu_ms"] > 0
    assert report["evaluation_same"] is True
