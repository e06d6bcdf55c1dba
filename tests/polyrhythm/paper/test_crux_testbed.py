# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper crux-testbed`: the testbed, its cases, the judge, and one figure through the command."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from polyrhythm.cli import main
from polyrhythm.paper.crux_testbed import judge, summary
from polyrhythm.paper.crux_testbed_cases import GPUS_A_HOST, NICS, cases, compute_s, figure_18
from topo.graph import Tier


def test_the_testbed_is_figure_18() -> None:
    fabric = figure_18()
    assert len(fabric.machines) == 12
    assert {len(nics) for nics in fabric.machines.values()} == {4}
    assert {len({h.leaf for h in nics}) for nics in fabric.machines.values()} == {1}
    assert Counter(s.tier for s in fabric.switches) == {Tier.LEAF: 6, Tier.SPINE: 8}
    assert {h.rate_bps for h in fabric.hosts} == {k.rate_bps for k in fabric.links} == {200_000_000_000}


def test_every_case_fits_the_gpus_that_there_are() -> None:
    found = list(cases())
    assert Counter(case.figure for case in found) == {19: 3, 20: 1, 21: 3, 22: 3}
    for case in found:
        on: Counter[int] = Counter()
        beside: Counter[tuple[int, int]] = Counter()
        for job in case.jobs:
            assert len(job.hosts) > 1
            on.update(dict.fromkeys(job.hosts, job.gpus / len(job.hosts)) if job.model.name != "GPT" else {})
            beside.update((h, nic) for h in job.hosts for nic in job.nics)
        assert all(gpus <= GPUS_A_HOST for gpus in on.values())
        # Two GPUs to a NIC: no more than two jobs.
        assert max(beside.values()) <= GPUS_A_HOST // NICS
        assert set(case.paper) == {job.model.name for job in case.jobs}


def test_the_judge_by_hand() -> None:
    case = next(c for c in cases() if c.figure == 21)
    alone = {j.name: compute_s(j) for j in case.jobs}
    slow = {"bert": alone["bert"] * 1.25, "resnet1": alone["resnet1"]}
    good = {"bert": alone["bert"], "resnet1": alone["resnet1"] * 1.02}
    row = judge(case, alone, {"ecmp": [slow], "crux": [good], "polyrhythm": [alone]})
    assert row["utilisation"]["alone"] == pytest.approx(1)
    assert row["utilisation"]["ecmp"] == pytest.approx((16 * 0.8 + 4) / 20)
    assert row["loss_without_pct"] == pytest.approx(16)
    assert row["change"]["BERT"] == {"paper_pct": -15, "pct": -20}
    assert row["change"]["ResNet"] == {"paper_pct": 2, "pct": 2}
    assert row["verdict"] == {"signs": True, "order": True, "gains": True, "keeps": True}
    assert [j["jct_without_s"] for j in row["jobs"]] == [337.5, 270.0]
    worse = judge(case, alone, {"ecmp": [good], "crux": [slow], "polyrhythm": [alone]})
    assert worse["verdict"] == {"signs": False, "order": False, "gains": False, "keeps": None}
    assert summary([row])["keeps_98_pct_there"]
    assert not summary([row, worse])["signs"]


@pytest.mark.slow
def test_a_figure_through_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--figure", "21", "--seeds", "1", "--seconds", "3", "--workers", "2", "--ours", "--json"]
    assert main(["paper", "crux-testbed", *words, "--out", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "report.json").read_text())
    assert (report["signs"], report["order"], report["keeps_98_pct_there"]) == (True, True, True)
    assert report["cases_where_ecmp_loses_8_pct"] == 3
    for row in report["cases"]:
        for job in row["jobs"]:
            assert job["jct_alone_s"] <= job["jct_crux_s"] * 1.001
    assert sorted(p.name for p in tmp_path.iterdir()) == ["figure-21a.svg", "figure-21b.svg", "report.json"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--seeds", "0"], "--seeds: 0; legal"),
        (["--seed", "-1"], "--seed: -1; legal"),
        (["--seconds", "1"], "--seconds: 1; legal: 2 to 3600"),
        (["--seconds", "nan"], "--seconds: nan; legal"),
    ],
)
def test_bad_options(options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "crux-testbed", *options]) == 2
    assert says in capsys.readouterr().err
