# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm priority`: what it says, and what it says to bad input."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.model import TRAFFIC_CLASSES
from polyrhythm.cli import main

LINKS = {"l1": {"gbps": 100}, "l2": {"gbps": 50}}


def job(name: str = "a", **changes: Any) -> dict[str, Any]:
    given = {"name": name, "gpus": 8, "flops_per_iteration": 1e15, "compute_ms": 100, "bytes": {"l1": 1e9}}
    return given | changes


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def run(jobs: list[dict[str, Any]], *options: str) -> dict[str, Any]:
        file = tmp_path / "jobs.json"
        file.write_text(json.dumps({"links": LINKS, "jobs": jobs}))
        assert main(["priority", str(file), "--json", *options]) == 0
        out: dict[str, Any] = json.loads(capsys.readouterr().out)
        return out

    return run


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {j["name"]: j for j in report["jobs"]}


def test_example_1(ask: Any) -> None:
    # t_1 = 2 s, t_2 = 1 s on 100 Gbps.
    report = ask(
        [
            job("1", gpus=10, flops_per_iteration=10e9, compute_ms=2000, bytes={"l1": 25e9}),
            job("2", gpus=10, flops_per_iteration=5e9, compute_ms=1000, bytes={"l1": 12.5e9}),
        ]
    )
    assert list(report) == ["jobs", "cut", "lost"]
    first, second = report["jobs"]
    assert set(first) == {"name", "intensity", "correction", "priority", "level", "dscp", "why"}
    assert (first["name"], first["level"], first["dscp"]) == ("2", 0, None)
    assert first["intensity"] == second["intensity"] == pytest.approx(5e9)
    assert first["correction"] == pytest.approx(1.5, rel=2e-3)
    assert second["correction"] == 1.0
    assert first["priority"] == pytest.approx(7.5e9, rel=2e-3)
    assert (report["cut"], report["lost"]) == (pytest.approx(5e9), 0)
    assert "reference" in second["why"]
    assert "before 1 (l1)" in first["why"]


def test_example_2_is_decided_by_the_compute_to_overlap(ask: Any) -> None:
    report = ask(
        [
            job("1", flops_per_iteration=10e9, compute_ms=4000, overlap_start=0.5, bytes={"l1": 12.5e9}),
            job("2", flops_per_iteration=30e9, compute_ms=2000, overlap_start=0.5, bytes={"l1": 37.5e9}),
        ]
    )
    assert [j["name"] for j in report["jobs"]] == ["2", "1"]
    assert all(j["correction"] == 1.0 for j in report["jobs"])
    assert "equal to 1: the job with less compute to overlap is first" in report["jobs"][0]["why"]


def test_intensity_is_by_the_slowest_link(ask: Any) -> None:
    report = ask([job("a", bytes={"l1": 1e9, "l2": 1e9})])
    assert report["jobs"][0]["intensity"] == pytest.approx(1e15 / 0.16)


def test_figure_13_on_two_levels(ask: Any) -> None:
    jobs = [
        job("1", flops_per_iteration=4e15),
        job("2", flops_per_iteration=3e15),
        job("3", flops_per_iteration=4e15, bytes={"l2": 1e9}),
        job("4", flops_per_iteration=3e15, bytes={"l2": 1e9}),
    ]
    report = ask(jobs, "--levels", "2")
    assert {n: j["level"] for n, j in by_name(report).items()} == {"1": 0, "2": 1, "3": 0, "4": 1}
    assert {j["dscp"] for j in report["jobs"]} == set(TRAFFIC_CLASSES.levels[:2])
    assert report["lost"] == 0
    varys = ask(jobs, "--levels", "2", "--method", "varys")
    assert varys["cut"] + varys["lost"] > 0


def test_zero_communication(ask: Any) -> None:
    jobs = [job("a"), job("mute", bytes={}), job("zero", bytes={"l1": 0})]
    report = by_name(ask(jobs, "--levels", "3"))
    for name in ("mute", "zero"):
        assert report[name]["intensity"] is None
        assert report[name]["level"] == 2
        assert "sends nothing" in report[name]["why"]
    assert report["a"]["level"] == 0
    ranks = by_name(ask(jobs))
    assert [ranks[n]["level"] for n in ("a", "mute", "zero")] == [0, 1, 2]


def test_zero_compute_and_zero_flops(ask: Any) -> None:
    report = ask([job("idle", compute_ms=0), job("none", compute_ms=0, flops_per_iteration=0), job("a")])
    jobs = by_name(report)
    assert jobs["none"]["intensity"] == 0
    assert jobs["none"]["level"] == 2
    assert all(1 / 8 <= j["correction"] <= 8 for j in report["jobs"])


def test_one_job_and_no_job(ask: Any) -> None:
    report = ask([job()], "--levels", "4")
    assert report["jobs"][0]["level"] == 0
    assert "shares no link" in report["jobs"][0]["why"]
    assert (report["cut"], report["lost"]) == (0, 0)
    assert ask([]) == {"jobs": [], "cut": 0, "lost": 0}


def test_more_levels_than_jobs_and_than_queues(ask: Any) -> None:
    jobs = [job("a", flops_per_iteration=2e15), job("b")]
    report = by_name(ask(jobs, "--levels", "50"))
    assert [report[n]["level"] for n in "ab"] == [0, 1]
    many = ask([job(f"j{i}", flops_per_iteration=(20 - i) * 1e15) for i in range(10)], "--levels", "10")
    assert [j["level"] for j in many["jobs"]] == list(range(10))
    assert [j["dscp"] for j in many["jobs"]] == [*TRAFFIC_CLASSES.levels, *[None] * 4]
    assert "no DSCP" in many["jobs"][9]["why"]


def test_equal_jobs_go_by_name_and_say_so(ask: Any) -> None:
    report = ask([job("c"), job("a"), job("b")], "--levels", "2")
    assert [j["name"] for j in report["jobs"]] == ["a", "b", "c"]
    assert "equal to a, c: names decide" in report["jobs"][1]["why"]
    assert report["cut"] + report["lost"] == pytest.approx(3 * 1e15 / 0.08)
    assert "on one level with" in " ".join(j["why"] for j in report["jobs"])


def test_a_cap_on_the_loss(ask: Any) -> None:
    jobs = [job("big", flops_per_iteration=9e16, compute_ms=80), job("small", compute_ms=60)]
    free = ask(jobs, "--loss-cap", "1")
    assert free["fairness"]["met"]
    assert free["fairness"]["worst_loss"] == max(free["fairness"]["loss"].values())
    assert free["fairness"]["pareto"][-1]["utilisation"] == free["fairness"]["utilisation"]
    assert not ask(jobs, "--loss-cap", "0")["fairness"]["met"]


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({"links": LINKS, "jobs": [job("a"), job("b", flops_per_iteration=2e15)]}))
    assert main(["priority", str(file), "--levels", "2", "--loss-cap", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("level 0  dscp 30  b:")
    assert any(line.startswith("loss cap 1 met") for line in lines)
    assert "0.0 % of it lost" in lines[-1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", ":1: not JSON: Expecting property name enclosed in double quotes (column 2)"),
        ("[]", ":1: an empty list is wrong; legal: a table with the keys links, jobs"),
        ('{"links": {}}', "jobs: missing; legal: a list"),
        ('{"links": {}, "jobs": [], "x": 1}', "x: unknown key; legal: links, jobs"),
        ('{"links": {}, "jobs": {}}', "jobs: an empty table is wrong; legal: a list"),
        ('{"links": {"l": 5}, "jobs": []}', "links.l: 5 is wrong; legal: a table with the keys gbps"),
        ('{"links": {"l": {"gbps": 0}}, "jobs": []}', "links.l.gbps: 0 is wrong; legal: a number from 1e-09"),
        ('{"links": {"l": {"gbps": NaN}}, "jobs": []}', "NaN is no number"),
        ('{"links": {"l": {"gbps": 1}, "l": {"gbps": 1}}, "jobs": []}', "links.l: this key is there twice"),
        ('{"links": {}, "jobs": [{}]}', "jobs[0].name: missing; legal: text"),
        ('{"links": {"\\ud800": {"gbps": 1}}, "jobs": []}', "half a character"),
        ('{"links": {}, "jobs": ' + "[" * 100_000, "nested deeper than 64 levels"),
    ],
)
def test_malformed_files(text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    assert main(["priority", str(file), "--json"]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": ""}, "jobs[1].name: '' is wrong; legal: text of one"),
        ({"name": "\ud800"}, "jobs[1].name: '\\ud800' has half a character"),
        ({"name": "a"}, "jobs[1].name: there are two jobs 'a'"),
        ({"gpus": 0}, "jobs[1].gpus: 0 is wrong; legal: a whole number from 1"),
        ({"gpus": True}, "jobs[1].gpus: true"),
        ({"flops_per_iteration": -1}, "jobs[1].flops_per_iteration: -1 is wrong; legal: a number from 0"),
        ({"compute_ms": "5"}, "jobs[1].compute_ms: '5' is wrong; legal: a number"),
        ({"overlap_start": 1.5}, "jobs[1].overlap_start: 1.5 is wrong; legal: a number from 0 to 1"),
        ({"bytes": {"l9": 1}}, "jobs[1].bytes.l9: no such link; legal: l1, l2"),
        ({"bytes": {"l1": -1}}, "jobs[1].bytes.l1: -1"),
        ({"bytes": {"l1": 0.5}}, "jobs[1].bytes.l1: 0.5 is wrong; legal: 0, or 1 to"),
        ({"bytes": [1]}, "jobs[1].bytes: a list is wrong; legal: a table of"),
        ({"colour": "red"}, "jobs[1].colour: unknown key; legal: name, gpus"),
    ],
)
def test_malformed_jobs(
    change: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(json.dumps({"links": LINKS, "jobs": [job("a"), job("b") | change]}))
    assert main(["priority", str(file)]) == 2
    assert f"{file}:1: {says}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--levels", "0"], "--levels: '0'; legal: a whole number from 1"),
        (["--levels", "two"], "--levels: 'two'"),
        (["--loss-cap", "2"], "--loss-cap: '2'; legal: a number from 0 to 1"),
        (["--seed", "-1"], "--seed: -1; legal: a whole number from 0"),
        (["--loss-cap", "nan"], "--loss-cap: 'nan'"),
        (["--loss-cap", "0.5", "--method", "varys"], "not with --method varys; legal: crux"),
    ],
)
def test_bad_options(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({"links": LINKS, "jobs": []}))
    assert main(["priority", str(file), *options]) == 2
    assert says in capsys.readouterr().err


def test_a_cap_for_more_jobs_than_can_be_played_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({"links": LINKS, "jobs": [job(f"j{i}") for i in range(201)]}))
    assert main(["priority", str(file), "--loss-cap", "0.5"]) == 2
    assert "jobs: 201; legal with --loss-cap: at most 200" in capsys.readouterr().err


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["priority", str(tmp_path / "none.json")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["priority", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    (tmp_path / "latin.json").write_bytes(b'{"links": "\xe9"}')
    assert main(["priority", str(tmp_path / "latin.json")]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_long_lists_are_cut(ask: Any) -> None:
    report = ask([job(f"j{i:02}") for i in range(30)], "--levels", "3")
    why = report["jobs"][0]["why"]
    assert "and 21 more" in why
    assert len(why) < 400
