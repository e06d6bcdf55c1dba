# SPDX-License-Identifier: Apache-2.0
"""Workloads of the Dally experiment: traces and drawn jobs."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from sim.cluster import WorkloadError
from sim.isolated_workload import at_once, drawn, isolated_jobs, one_by_one
from sim.readers import read_sensetime


def trace(tmp_path, **changes):  # type: ignore[no-untyped-def]
    entry = {
        "job_id": "7",
        "model": "BERT",
        "total_iterations": "8000",
        "time_per_iteration": "0.5",
        "max_parallelism": "4",
        "arrival_time": "12",
    }
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps([entry | changes]))
    return path


def test_the_ideal_time_of_a_trace_job(tmp_path) -> None:  # type: ignore[no-untyped-def]
    requests = read_sensetime(trace(tmp_path))
    (shared,), (each,) = isolated_jobs(requests, each=False), isolated_jobs(requests, each=True)
    assert shared.ideal_s == pytest.approx(1000)
    assert each.ideal_s == pytest.approx(4000)
    assert (shared.demand, shared.arrival_s, shared.skewed) == (4, 12.0, False)


def test_a_model_that_table_1_lacks_is_named_with_its_place(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = trace(tmp_path, model="LLaMA")
    with pytest.raises(WorkloadError, match=r"jobs.json: row 1, column model: .*'LLaMA'; legal: vgg11"):
        isolated_jobs(read_sensetime(path), each=True)


def test_drawn_jobs_have_the_statistics_of_the_paper() -> None:
    jobs = drawn(3000, 1, each=True)
    assert jobs == drawn(3000, 1, each=True) != drawn(3000, 2, each=True)
    demands = Counter(j.demand for j in jobs)
    assert demands[1] / 3000 == pytest.approx(270 / 500, abs=0.03)
    assert demands[8] / 3000 == pytest.approx(109 / 500, abs=0.03)
    assert max(demands) == 56
    assert sum(j.skewed for j in jobs) / 3000 == pytest.approx(212 / 500, abs=0.03)
    work = sum(j.ideal_s for j in jobs) / 3000
    assert work == pytest.approx(93_988, rel=0.1)
    assert max(j.arrival_s for j in jobs) / 3000 == pytest.approx(12_670, rel=0.1)


def test_arrivals() -> None:
    jobs = drawn(20, 1, each=True)
    assert {j.arrival_s for j in at_once(jobs)} == {0.0}
    assert one_by_one(jobs, 1) == jobs
    spread = one_by_one(at_once(jobs), 5)
    assert len({j.arrival_s for j in spread}) == 20
    assert spread == one_by_one(at_once(jobs), 5)
