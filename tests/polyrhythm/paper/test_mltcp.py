# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper mltcp`: the thesis' figures at the harness."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET

import pytest

from hostagent.nic.mltcp import SHAPES
from polyrhythm.cli import main
from polyrhythm.paper.mltcp_packets import run_pair


def test_report_and_files(tmp_path, capsys) -> None:
    out = tmp_path / "mltcp"
    words = ["--starts", "1", "--iterations", "16", "--seed", "3", "--json", "--out", str(out)]
    assert main(["paper", "mltcp", *words]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((out / "report.json").read_text())
    assert report["convergence_ms"] == pytest.approx([66.7, 94.1, 99.2, 99.9], rel=0.01)
    assert report["iterations_to_interleave"] <= 30
    assert set(report["packets"]) == set(report["fluid"]) == set(SHAPES)
    for name in SHAPES:
        rising = not name.startswith("2-")
        assert report["fluid"][name]["takes_turns"] is rising
        assert report["packets"][name]["took_turns"] == int(rising)
    assert report["packets"]["1.75r+0.25"]["speedup_mean"] > 1
    assert len(report["noise"]) == 5
    rows = list(csv.reader((out / "offsets.csv").read_text().splitlines()))
    assert [row[0] for row in rows[1:]] == list(SHAPES)
    assert ET.parse(out / "iteration-times.svg").getroot().tag.endswith("svg")


def test_the_same_seed_gives_the_same_times() -> None:
    shape = SHAPES["1.75r+0.25"]
    assert run_pair(shape, 20, 5, seed=2) == run_pair(shape, 20, 5, seed=2)
    assert run_pair(shape, 20, 5, seed=2) != run_pair(shape, 20, 5, seed=3)


def test_a_job_that_meets_none_is_not_slowed() -> None:
    # The second job sends in the first one's pause from the start.
    for job in run_pair(SHAPES["1.75r+0.25"], 125, 8, jitter_ms=0):
        assert max(job) < 1.01 * 260


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--starts", "0"], "--starts: 0; legal"), (["--iterations", "2"], "--iterations: 2; legal")],
)
def test_bad_options(capsys, words, said) -> None:
    assert main(["paper", "mltcp", *words]) == 2
    assert said in capsys.readouterr().err
