# SPDX-License-Identifier: Apache-2.0
"""The thesis' tables as scenarios, their circles, and the experiment on packets at its harness."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from polyrhythm.paper.cassini_cases import GROUPS, SNAPSHOTS, CassiniCase, scenario
from polyrhythm.paper.cassini_circles import circle, vectors, vgg16_pair
from polyrhythm.scenario import load_scenario


@pytest.mark.parametrize("unfair", [False, True])
@pytest.mark.parametrize("case", SNAPSHOTS + GROUPS, ids=lambda case: case.name)
def test_every_case_is_a_scenario(case: CassiniCase, unfair: bool, tmp_path: Path) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(scenario(case, 5, unfair=unfair)))
    loaded = load_scenario(file)
    timers = [w.increase_timer for w in loaded.workloads]
    assert [w.job.name for w in loaded.workloads] == case.names()
    assert timers == (sorted(timers) if unfair else [1.0] * len(timers))
    assert len(set(timers)) == (len(timers) if unfair else 1)


@pytest.mark.parametrize("case", SNAPSHOTS, ids=lambda case: case.name)
def test_the_scores_of_table_4_3(case: CassiniCase) -> None:
    found = circle(case)
    assert found["proven"]
    assert found["score"] == pytest.approx(case.score, abs=0.005)


def test_compatible_groups_of_table_3_1_fit_and_the_others_do_not() -> None:
    for case in GROUPS:
        assert (circle(case)["score"] > 0.999) == case.compatible


def test_the_test_vectors() -> None:
    assert vgg16_pair()["shifts_ms"] == [114, 141]
    assert vgg16_pair()["score_between"] == 1
    rows = vectors()
    assert [row["exact"] for row in rows] == [True] * 3
    assert [row["score_at_10_ms"] for row in rows] == pytest.approx([row["expected"] for row in rows])
    assert (rows[0]["shift_ms"], rows[0]["rotation_deg"], rows[0]["perimeter_ms"]) == (10, 30, 120)


def test_bad_options_are_told() -> None:
    command = [sys.executable, "-m", "polyrhythm", "paper", "cassini-snapshots"]
    for option, value in (("--iterations", "1"), ("--iterations", "0"), ("--lanes", "0"), ("--seed", "-1")):
        done = subprocess.run([*command, option, value], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{option}: {value}; legal: a whole number from" in done.stderr
        assert "Traceback" not in done.stderr
