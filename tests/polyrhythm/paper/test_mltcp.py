# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper mltcp`: the thesis' figures, on packets through embedded P4 switches."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET

import pytest

from controller.wire.senders import PLAIN, SENDERS, as_mltcp
from hostagent.nic.mltcp import SHAPES
from polyrhythm.cli import main
from polyrhythm.paper.mltcp import NEAR, to_text
from polyrhythm.paper.mltcp_packets import COMPUTE_MS, UP_MS, run_pair

ALONE_MS = UP_MS + COMPUTE_MS


@pytest.mark.long
def test_report_and_files(tmp_path, capsys) -> None:
    out = tmp_path / "mltcp"
    words = [
        "--starts",
        "1",
        "--iterations",
        "20",
        "--seed",
        "3",
        "--json",
        "--lanes",
        "1",
        "--out",
        str(out),
    ]
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
    assert set(report["senders"]) == set(SENDERS)
    for plain in PLAIN:
        assert report["senders"][as_mltcp(plain)]["took_turns"] == 1
        assert report["senders"][as_mltcp(plain)]["speedup_mean"] > 1
        assert report["senders"][plain]["speedup_mean"] == 1
    assert report["packets"]["1.75r+0.25"] == report["senders"]["mltcp-dcqcn"]
    assert len(report["noise"]) == 5
    rows = list(csv.reader((out / "offsets.csv").read_text().splitlines()))
    assert [row[0] for row in rows[1:]] == list(SHAPES)
    for figure in ("senders.svg", "shapes.svg"):
        assert ET.parse(out / figure).getroot().tag.endswith("svg")
    assert all(name in to_text(report) for name in (*SENDERS, *SHAPES))


@pytest.mark.long
def test_processes_change_no_figure(capsys) -> None:
    reports = []
    for lanes in ("1", "2"):
        assert main(["paper", "mltcp", "--quick", "--iterations", "10", "--json", "--lanes", lanes]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0] == reports[1]
    assert "noise" not in reports[0]


@pytest.mark.parametrize("plain", PLAIN)
def test_mltcp_separates_two_jobs_that_plain_senders_leave_together(plain: str) -> None:
    longer = [max(both) for both in zip(*run_pair(as_mltcp(plain), 20, 14, seed=1), strict=True)]
    # The first iterations overlap, the last ones do not.
    assert max(longer[:3]) > 1.2 * ALONE_MS
    assert max(longer[-3:]) < NEAR * ALONE_MS


def test_plain_dcqcn_leaves_two_jobs_together() -> None:
    longer = [max(both) for both in zip(*run_pair("dcqcn", 20, 14, seed=1), strict=True)]
    assert min(longer[-3:]) > 1.3 * ALONE_MS


def test_the_same_seed_gives_the_same_times() -> None:
    assert run_pair("mltcp-reno", 20, 5, seed=2) == run_pair("mltcp-reno", 20, 5, seed=2)
    assert run_pair("mltcp-reno", 20, 5, seed=2) != run_pair("mltcp-reno", 20, 5, seed=3)


@pytest.mark.parametrize("sender", ["mltcp-dcqcn", "cubic"])
def test_a_job_that_meets_none_is_not_slowed(sender: str) -> None:
    # The second job sends in the first one's pause from the start.
    for job in run_pair(sender, 125, 6, jitter_ms=0):
        assert max(job) < 1.015 * ALONE_MS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--starts", "0"], "--starts: 0; legal: a whole number from 1"),
        (["--iterations", "2"], "--iterations: 2; legal: a whole number from 10"),
        (["--quick", "--lanes", "0"], "--lanes: 0; legal"),
        (["--seed", "-1"], "--seed: -1; legal"),
        (["--out", "/dev/null/x"], "--out: /dev/null/x: Not a directory; legal: a folder"),
    ],
)
def test_bad_options(capsys, words, said) -> None:
    assert main(["paper", "mltcp", *words]) == 2
    assert said in capsys.readouterr().err
