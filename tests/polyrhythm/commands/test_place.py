# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm place` as a command: the order, the reasons, made candidates, several processes, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from polyrhythm.cli import main


def member(name: str, hosts: list[str], end_ms: float) -> dict:
    phases = [{"start_ms": 0, "end_ms": end_ms, "gbps": 50}]
    return {"name": name, "model": "m", "gpus": 2, "hosts": hosts, "period_ms": 200, "phases": phases}


SCENARIO = {
    "name": "cluster",
    "about": "one spine: every leaf has one uplink",
    "fabric": {
        "kind": "leaf_spine",
        "leaves": 4,
        "spines": 1,
        "hosts_per_leaf": 3,
        "host_gbps": 50,
        "fabric_gbps": 50,
    },
    "jobs": [
        member("fits", ["h1", "h10"], 90),
        member("clashes", ["h4", "h7"], 150),
        member("new", ["h2", "h5"], 90),
    ],
}


def place(tmp_path: Path, *words: str, **file: object) -> int:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(SCENARIO))
    (tmp_path / "place.yaml").write_text(yaml.safe_dump({"scenario": "cluster.yaml", "job": "new", **file}))
    return main(["place", str(tmp_path / "place.yaml"), *words])


CANDIDATES = [["h5", "h8"], ["h2", "h11"], ["h5", "h6"]]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_candidates_are_ranked_with_scores_and_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], processes: int
) -> None:
    words = ("--json", "--processes", str(processes))
    assert place(tmp_path, *words, candidates=CANDIDATES) == 0
    found = json.loads(capsys.readouterr().out)["placements"]
    assert [p["index"] for p in found] == [1, 2, 0]
    assert [round(p["compatibility"], 3) for p in found] == [1.0, 1.0, 0.8]
    assert found[0]["hosts"] == ["h2", "h11"]
    assert {(k["src"], tuple(k["jobs"]), round(k["score"], 3)) for k in found[0]["links"]} == {
        (node, ("fits", "new"), 1.0) for node in ("leaf1", "spine1", "leaf4")
    }
    assert found[1]["links"] == []
    assert "clashes, new together exceed it by 20.0 % of its rate" in found[2]["why"]


def test_the_text_has_the_same_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert place(tmp_path, candidates=CANDIDATES) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1. candidate 1, compatibility 1.000: h2, h11"
    assert lines[1] == "   on all of 4 full links the jobs take turns without excess"
    assert "   leaf1-spine1: fits, new: score 1.000" in lines


def test_dallys_advice_for_a_sensitive_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--sensitivity", "0.42,9.40,195.92", "--waited-s", "7200")
    assert place(tmp_path, "--json", *words, candidates=CANDIDATES) == 0
    found = {p["index"]: p for p in json.loads(capsys.readouterr().out)["placements"]}
    assert {i: (p["tier"], p["wait_s"]) for i, p in found.items()} == {
        0: ("network", 22 * 3600),
        1: ("network", 22 * 3600),
        2: ("rack", 0),
    }
    assert found[2]["communication"] == pytest.approx(9.40 / 7)
    assert found[0]["communication"] > 20 * found[2]["communication"]
    assert place(tmp_path, *words, candidates=CANDIDATES) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "   tier rack, exposed communication 134 % of the compute" in lines
    assert any(line.endswith("Dally would wait 22 h for closer hosts") for line in lines)


@pytest.mark.parametrize("words", ["1,2", "a,b,c", "-1,2,3", "nan,1,1", "1,1,2e6"])
def test_bad_sensitivity(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        place(tmp_path, f"--sensitivity={words}", candidates=CANDIDATES)
    assert ended.value.code == 2
    assert "legal: three numbers from 0" in capsys.readouterr().err


def test_bad_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert place(tmp_path, "--waited-s=-1", candidates=CANDIDATES) == 2
    assert "--waited-s: -1; legal: 0 to 1e+09" in capsys.readouterr().err


def test_without_candidates_free_hosts_are_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place(tmp_path, "--json") == 0
    found = json.loads(capsys.readouterr().out)["placements"]
    assert 1 < len(found) <= 10
    assert len({frozenset(p["hosts"]) for p in found}) == len(found)
    assert not {h for p in found for h in p["hosts"]} & {"h1", "h10", "h4", "h7"}
    assert found[0]["compatibility"] == 1.0


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ({"job": "old"}, ": job: 'old' is no job of "),
        ({"candidates": [["h2"]]}, ": candidates[0]: 1 hosts; legal: 2, as job new has"),
        ({"candidates": [["h2", "h3"], ["h2", "h2"]]}, ": candidates[1][1]: 'h2' is in the list twice"),
        ({"candidates": [["h2", "h99"]]}, ": candidates[0][1]: 'h99' is no host of the fabric; legal: h1, "),
        ({"scenario": "nothing"}, "nothing: no such scenario; legal: a file, or one of those that we ship: "),
        ({"scenario": "gone.yaml"}, "gone.yaml: "),
        ({"candidates": 7}, ": candidates: 7 is wrong; legal: a list of 0 to 64 values"),
        ({"place": 1}, ": place: unknown key"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: dict, said: str
) -> None:
    assert place(tmp_path, **file) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_job_for_which_no_hosts_are_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [member("all", [f"h{i}" for i in range(1, 12)], 90), member("new", ["h1", "h2"], 90)]
    (tmp_path / "full.yaml").write_text(yaml.safe_dump({**SCENARIO, "jobs": jobs}))
    assert place(tmp_path, scenario="full.yaml") == 2
    assert "job new needs 2 hosts, and 1 are free; legal: another job" in capsys.readouterr().err


def test_a_controller_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--running", "--controller", "http://127.0.0.1:9")
    assert place(tmp_path, *words, candidates=CANDIDATES) == 1
    assert "http://127.0.0.1:9/api/v1/placements: " in capsys.readouterr().err
