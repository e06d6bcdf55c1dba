# SPDX-License-Identifier: Apache-2.0
"""The sessions of the battery: which are run, what is kept, and what a failure does. The sessions are fakes."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from polyrhythm.cli import main
from polyrhythm.fabric.jobs import FIRST_START_NS
from polyrhythm.paper import battery_sessions
from polyrhythm.paper.battery_generator import draw, with_start_offsets
from polyrhythm.paper.battery_sessions import SESSIONS, declared_profiles, iteration_ends_ms
from polyrhythm.run.figures import MeasuredIteration
from polyrhythm.run.processes import RunError
from polyrhythm.run.session import SessionResult, SessionSpec

Fake = Callable[[SessionSpec], None]
MS = 1_000_000
FILES = ["scenario.json", "scenario-1.json", "scenario-2.json"]
"""The scenario file of each draw."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[SessionSpec]:
    """Replace sessions by fakes in which each job has iterations of 1.2 periods; the specs of those begun."""
    specs: list[SessionSpec] = []

    async def fake(spec: SessionSpec, progress: Callable[[float], None]) -> SessionResult:
        specs.append(spec)
        await asyncio.sleep(0)
        hook = hooks.get("before")
        if hook is not None:
            hook(spec)
        return result(spec)

    hooks.clear()
    monkeypatch.setattr(battery_sessions, "run_session", fake)
    return specs


hooks: dict[str, Fake] = {}


def result(spec: SessionSpec) -> SessionResult:
    document = json.loads(spec.scenario.read_text())
    iterations = {}
    for job in document["jobs"]:
        period = job["period_ms"] if spec.mode == "alone" else 1.2 * job["period_ms"] + spec.seed % 10
        iterations[job["name"]] = tuple(
            MeasuredIteration(rank, i, 0, FIRST_START_NS + round((i + 1) * period * 1e6), 0, 0, 0)
            for rank in range(len(job["hosts"]))
            for i in range(200)
        )
    jobs: list[Mapping[str, Any]] = [{"job": job["name"], "expected_ms": None} for job in document["jobs"]]
    profiles = {}
    for i, job in enumerate(document["jobs"]):
        phases = [[round(p["start_ms"] * MS), round(p["end_ms"] * MS), 10**9 + i] for p in job["phases"]]
        profiles[job["name"]] = {"period_ns": round(job["period_ms"] * MS) + i, "phases": phases}
    return SessionResult(iterations, profiles, {"jobs": jobs, "flows": []}, True, ())


def battery(out: Path, *options: str) -> int:
    return main(["paper", "battery", "--most-jobs", "3", "--out", str(out), *options])


def files(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def test_the_sessions_of_a_scenario(started: list[SessionSpec], tmp_path: Path) -> None:
    assert battery(tmp_path, "--count", "1") == 0
    scenario = draw(1, 1, 3)
    assert [spec.policy for spec in started] == [
        "routing", "ecmp", "ecmp", "ecmp", "crux", "cassini", "mltcp", *["polyrhythm"] * 3
    ]  # fmt: skip
    assert [spec.mode for spec in started] == ["alone", *["together"] * 9]
    draws = [100_010, 100_011, 100_012]
    assert [spec.seed for spec in started] == [100_010, *draws, *[100_010] * 3, *draws]
    # All have the same end, and announce the same profiles.
    assert {spec.until_ms for spec in started[1:]} == {scenario.spans[-1].end_ms + 100}
    assert len({spec.profiles for spec in started[1:]}) == 1
    # Draw k of ECMP and of ours begin alike, and the other policies as the first draw.
    assert [spec.scenario.name for spec in started[1:]] == [*FILES, *["scenario.json"] * 3, *FILES]
    assert json.loads((tmp_path / "scenarios" / "battery-1-1.json").read_text()) == scenario.document


def test_each_draw_has_a_scenario_file_with_its_start_offsets(
    started: list[SessionSpec], tmp_path: Path
) -> None:
    assert battery(tmp_path, "--only", "1") == 0
    written = [json.loads(spec.scenario.read_text()) for spec in started[1:4]]
    assert written == [with_start_offsets(draw(1, 1, 3), k).document for k in range(3)]
    # A few random offsets may be equal, those of this scenario are not.
    assert all(a != b for a, b in combinations(written, 2))


def test_equal_jobs_announce_one_profile_and_others_their_own() -> None:
    scenario = draw(1, 22)
    first, *twins = scenario.document["jobs"]
    assert twins[0]["phases"] == twins[1]["phases"] != first["phases"]
    measured = {
        "job1": {"period_ns": 144, "phases": [[0, 86, 12]]},
        "job2": {"period_ns": 266, "phases": [[0, 67, 12], [128, 194, 12]]},
        "job3": {"period_ns": 270, "phases": [[0, 65, 14], [130, 200, 14]]},
    }
    found = declared_profiles(scenario, measured)
    assert list(found) == list(measured)
    assert found["job1"] == measured["job1"]
    assert found["job2"] == found["job3"] == {"period_ns": 268, "phases": [[0, 66, 13], [129, 197, 13]]}
    # A job that was not measured has no profile, and its twin keeps its own.
    del measured["job3"]
    assert declared_profiles(scenario, measured) == measured


def test_phases_of_a_declared_profile_are_legal_whatever_was_measured() -> None:
    scenario = draw(1, 22)
    for job in scenario.document["jobs"]:
        job.update(scenario.document["jobs"][0])
    names = ("job1", "job2", "job3")
    for job, name in zip(scenario.document["jobs"], names, strict=True):
        job["name"] = name
    # Medians of starts and lengths alone would overlap: 0 to 60, 50 to 110 of 100.
    spans = ([[0, 60, 1], [60, 90, 1]], [[0, 60, 1], [50, 110, 1]], [[0, 10, 1], [50, 110, 1]])
    measured = {n: {"period_ns": 100, "phases": own} for n, own in zip(names, spans, strict=True)}
    found = declared_profiles(scenario, measured)
    assert found["job1"]["phases"] == [[0, 50, 1], [50, 100, 1]]


def test_a_stopped_battery_goes_on_and_ends_with_the_same_bytes(
    started: list[SessionSpec], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert battery(tmp_path / "whole", "--count", "3") == 0
    whole = files(tmp_path / "whole")
    assert len(started) == 3 * len(SESSIONS)
    rows = whole["sessions-1-3.jsonl"].splitlines(keepends=True)
    # What a kill leaves: some rows in any order, the last one incomplete.
    (tmp_path / "killed").mkdir()
    kept = [rows[i] for i in (12, 3, 0, 20)]
    (tmp_path / "killed" / "sessions-1-3.jsonl").write_bytes(b"".join(kept) + rows[5][:50])
    started.clear()
    assert battery(tmp_path / "killed", "--count", "3", "--jobs", "3") == 0
    assert len(started) == 3 * len(SESSIONS) - 4
    assert files(tmp_path / "killed") == whole
    # A smaller battery forgets no session.
    started.clear()
    assert battery(tmp_path / "killed", "--count", "1") == 0
    assert battery(tmp_path / "killed", "--count", "3") == 0
    assert started == []
    assert files(tmp_path / "killed") == whole
    assert "Traceback" not in capsys.readouterr().err


def test_a_failed_session_is_told_and_the_others_go_on(
    started: list[SessionSpec], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(spec: SessionSpec) -> None:
        if spec.policy == "crux" and spec.scenario.parent.name == "battery-1-1":
            raise RunError("the fabric was killed by signal 9")
        if spec.mode == "alone" and spec.scenario.parent.name == "battery-1-2":
            raise ValueError("iteration 3 was not finished by every worker")

    hooks["before"] = fail
    assert battery(tmp_path, "--count", "3", "--json") == 1
    said = capsys.readouterr()
    assert "battery-1-1, session crux: the fabric was killed by signal 9" in said.err
    assert "battery-1-2, session alone: iteration 3 was not finished by every worker" in said.err
    report = json.loads(said.out)
    assert report["scenarios"] == 1
    assert [row["name"] for row in report["rows"]] == ["battery-1-3"]
    assert [(f["scenario"], f["session"]) for f in report["failed"]] == [
        ("battery-1-1", "crux"),
        ("battery-1-2", "alone"),
    ]
    hooks.clear()
    started.clear()
    assert battery(tmp_path, "--count", "3") == 0
    assert len(started) == 1 + len(SESSIONS)
    assert "failed" not in capsys.readouterr().err


def test_no_scenario_at_all_is_a_report_too(
    started: list[SessionSpec], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(spec: SessionSpec) -> None:
        raise RunError("no memory")

    hooks["before"] = fail
    assert battery(tmp_path, "--count", "2") == 1
    said = capsys.readouterr()
    assert "utilisation_gain_mean: not known" in said.out
    assert "Traceback" not in said.err


def test_a_full_disk_is_told(
    started: list[SessionSpec], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(spec: SessionSpec) -> None:
        if spec.policy == "cassini":
            raise OSError(errno.ENOSPC, "No space left on device", "controller.log")

    hooks["before"] = fill
    assert battery(tmp_path, "--count", "2") == 1
    said = capsys.readouterr()
    assert "battery-1-1, session cassini: controller.log: No space left on device" in said.err
    assert "the same command continues from there" in said.err
    assert said.out == ""


def test_one_scenario_alone(
    started: list[SessionSpec], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert battery(tmp_path, "--only", "5") == 0
    assert "polyrhythm ms  expected ms\n    job1    1" in capsys.readouterr().out
    assert {spec.scenario.parent.name for spec in started} == {"battery-1-5"}
    kept = tmp_path / "only-5" / "battery-1-5" / "scenario.json"
    assert json.loads(kept.read_text()) == draw(1, 5, 3).document
    assert json.loads((tmp_path / "only-5" / "report.json").read_text())["scenarios"] == 1


def test_fewer_sessions_are_run_first_and_all_of_them_later(
    started: list[SessionSpec], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert battery(tmp_path, "--count", "1", "--policies", "none", "--draws", "1") == 0
    assert [spec.workdir.name for spec in started] == ["alone", "ecmp-0", "polyrhythm-0"]
    (row,) = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert list(row["gpu_utilisation"]) == ["alone", "ecmp", "polyrhythm"]
    assert row["ecmp_interval"] == 0
    assert "crux" not in capsys.readouterr().out
    started.clear()
    assert battery(tmp_path, "--count", "1", "--policies", "mltcp-dcqcn,crux") == 0
    assert sorted(spec.workdir.name for spec in started) == [
        "crux", "ecmp-1", "ecmp-2", "mltcp-dcqcn", "polyrhythm-1", "polyrhythm-2"
    ]  # fmt: skip
    started.clear()
    assert battery(tmp_path, "--count", "1", "--jobs", "1") == 0
    assert [spec.workdir.name for spec in started] == ["cassini"]
    assert battery(tmp_path / "at once", "--count", "1", "--jobs", "1") == 0
    again = files(tmp_path / "at once")
    assert again == {name: data for name, data in files(tmp_path).items() if name in again}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--policies", "crux,ecmp"],
            "argument --policies: 'ecmp'; legal: crux, cassini, mltcp-dcqcn, or none",
        ),
        (["--draws", "4"], "argument --draws: must be 3 or less"),
        (["--count", "0"], "argument --count: must be 1 or more"),
        (["--jobs", "0"], "argument --jobs: must be 1 or more"),
        (["--jobs", "two"], "argument --jobs: invalid whole number value"),
        (["--seed", "-1"], "argument --seed: must be 0 or more"),
        (["--most-jobs", "2"], "argument --most-jobs: must be 3 or more"),
        (["--most-jobs", "11"], "argument --most-jobs: must be 10 or less"),
        (["--only", "0"], "argument --only: must be 1 or more"),
        (["--only", "3"], "--only: needs --out"),
        (["--out", "/dev/null/there"], "--out: /dev/null/there"),
    ],
)
def test_bad_options(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["paper", "battery", *given])
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    assert said in capsys.readouterr().err


def test_an_iteration_ends_with_its_last_worker() -> None:
    def at(rank: int, index: int, ms: int) -> MeasuredIteration:
        return MeasuredIteration(rank, index, 0, FIRST_START_NS + ms * 1_000_000, 0, 0, 0)

    records = [at(0, 0, 100), at(1, 0, 110), at(1, 1, 205), at(0, 1, 200), at(0, 2, 300)]
    assert iteration_ends_ms(records, 2) == [110, 205]
    assert iteration_ends_ms(records, 3) == []
    assert iteration_ends_ms([], 2) == []
