# SPDX-License-Identifier: Apache-2.0
"""CASSINI's testbed: its jobs, the figures of a run, and what a stopped run keeps."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from polyrhythm.cli import main
from polyrhythm.paper.cassini_testbed import CASSINI, METHODS, OURS, PLAIN, comparison
from polyrhythm.paper.cassini_testbed_jobs import (
    DLRM,
    MODELS,
    SERVERS,
    TRACES,
    cassini_cluster,
    shape,
    trace,
)
from polyrhythm.paper.overview_rows import cassini_testbed
from polyrhythm.paper.resumable import Row, Task
from sim.cluster import JobRequest
from sim.placed_job import placed_request


@pytest.mark.parametrize("kind", TRACES)
def test_traces_are_drawn_from_the_table_and_by_the_seed(kind: str) -> None:
    jobs = trace(kind, 0, 1, 12)
    assert jobs == trace(kind, 0, 1, 12)
    assert jobs != trace(kind, 1, 1, 12)
    assert {j.model for j in jobs} <= {*MODELS, DLRM}
    assert all(1 <= j.gpus <= 12 and 200 <= j.iterations <= 1000 for j in jobs)
    if kind == "poisson":
        assert len({j.arrival_ns for j in jobs}) == 12
    else:
        assert sum(j.gpus for j in jobs) == SERVERS
    if kind == "dynamic":
        assert [j.model for j in jobs if j.arrival_ns] == [DLRM, "ResNet50"]


def _run(lengths: dict[str, int], marks: float, **more: float) -> Row:
    return {
        "jobs": [{"model": DLRM, "name": "d", "ideal_ms": 100.0, "lengths": lengths, "marks": marks}],
        **more,
    }


def test_figures_are_of_all_iterations_and_ours_is_compared_where_cassini_cannot_help() -> None:
    lengths = {m: {"150.0": 98, "300.0": 2} for m in METHODS} | {OURS: {"110.0": 100}}
    found: dict[Task, Row] = {("dynamic", 0, "themis", m): _run({"200.0": 100}, 900.0) for m in METHODS}
    found |= {("dynamic", 1, "themis", m): _run(own, 100.0) for m, own in lengths.items()}
    found["dynamic", 0, "themis", CASSINI] |= {"score": 1.0, "loops": 0}
    found["dynamic", 1, "themis", CASSINI] |= {"score": 0.8, "loops": 0}
    row = comparison("dynamic", "themis", found)
    assert row["methods"][PLAIN] == {
        "mean_ms": 176.5,
        "p99_ms": 200.0,
        "alone_ms": 100.0,
        "marks": 5.0,
        "iterations": 200,
    }
    assert row["bound"] == 1.765
    assert row["shorter"][OURS]["mean"] == pytest.approx(176.5 / 155, abs=1e-3)
    assert row["hard_draws"] == 1
    assert row["ours_over_cassini_where_hard"]["mean"] == pytest.approx(153 / 110, abs=1e-3)
    figures = {f.what: f for f in cassini_testbed({"rows": [row]})}
    assert figures["dynamic trace, themis: mean iteration time shorter with CASSINI, x"].verdict == (
        "not reproduced"
    )
    assert figures["dynamic trace, themis: fewer ECN marks of DLRM with CASSINI, x"].ours == 1.0
    assert [f.verdict for f in figures.values()][-1] == "order only"
    *_, twice = cassini_testbed({"rows": [row | {"hard_draws": 2}]})
    assert twice.verdict == "surpassed"


@pytest.mark.long
def test_a_quick_run_reports_every_method_and_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["paper", "cassini-testbed", "--quick", "--traces", "snapshot", "--schedulers", "gandiva"]
    words += ["--json", "--out", str(tmp_path), "--workers", "1"]
    assert main(words) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert set(row["methods"]) == set(METHODS)
    for own in row["methods"].values():
        assert own["mean_ms"] >= 0.95 * own["alone_ms"]
        assert own["p99_ms"] > own["mean_ms"]
    assert len(list(tmp_path.glob("*.svg"))) == 2
    kept = (tmp_path / "rows.jsonl").read_text()
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [row]
    assert (tmp_path / "rows.jsonl").read_text() == kept


def test_the_profile_of_a_job_alone_is_what_its_nic_can_carry() -> None:
    """The servers of DLRM send to all others at once: its Up phases are as long as the bytes of a NIC take."""
    for gpus in (2, 3, 8):
        request = JobRequest("d", DLRM, 0, gpus, 200, shape(DLRM, gpus, Random(1)))
        servers = cassini_cluster()
        placed = placed_request(servers, request, tuple((s.name, 1) for s in servers.servers[:gpus]))
        sent = sum(f.bytes_per_iteration for f in placed.job.flows if f.src == placed.job.hosts[0])
        assert placed.job.profile.up_ns == pytest.approx(sent * 8 / 50, rel=0.01)
