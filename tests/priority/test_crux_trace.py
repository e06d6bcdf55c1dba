# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper crux-trace`: the fabrics, who runs where, the judge, and a moment through the command."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from polyrhythm.cli import main
from polyrhythm.paper.crux_trace import order
from polyrhythm.paper.crux_trace_cases import cluster, fabric, generated, occupancy
from topo.graph import Tier


def test_the_fabrics_are_the_papers() -> None:
    clos = fabric("clos", "")
    assert Counter(s.tier for s in clos.switches) == {Tier.LEAF: 173, Tier.SPINE: 16}
    both = fabric("double_sided", "")
    assert Counter(s.tier for s in both.switches) == {Tier.LEAF: 6, Tier.SPINE: 12, Tier.CORE: 32}
    assert {len({h.leaf for h in nics}) for nics in both.machines.values()} == {2}
    assert min(len(clos.machines), len(both.machines)) * 8 > 2000


def test_nobody_has_a_gpu_that_another_has() -> None:
    on = cluster("clos", "")
    jobs = generated(2.0, on.gpus, 3)
    hour = 3600 * 10**9
    states = occupancy(on, jobs, [i * hour for i in range(48)], 3)
    assert len(states) == 48
    seen = set()
    for state in states:
        held: Counter[str] = Counter()
        for request, placement in state:
            assert sum(g for _, g in placement) == request.gpus
            held.update(dict(placement))
            seen.add(request.name)
        assert max(held.values(), default=0) <= 8
    assert len(seen) > 100
    assert generated(2.0, on.gpus, 3) == jobs
    assert generated(2.0, on.gpus, 4) != jobs


def test_the_order_by_hand() -> None:
    names = ("sincronia", "taccl", "cassini", "crux_pa", "crux_ps_pa", "crux_full", "ours")
    paper = order(dict(zip(names, (0.39, 0.49, 0.48, 0.51, 0.62, 0.62, 0.62), strict=True)))
    assert all(paper.values())
    bad = order(dict(zip(names, (0.5, 0.49, 0.48, 0.45, 0.44, 0.46, 0.4), strict=True)))
    assert not any(bad.values())
    assert "crux_full <= ours" not in order(dict(zip(names[:-1], (0.1,) * 6, strict=True)))


@pytest.mark.slow
def test_a_moment_through_the_command_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--days", "0.5", "--samples", "1", "--window-s", "1", "--without-ours", "--workers", "2"]
    assert main(["paper", "crux-trace", *words, "--json", "--out", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    lines = (tmp_path / "moments.jsonl").read_text().splitlines()
    assert len(lines) == 2 * 6
    for name in ("clos", "double_sided"):
        found = report["fabrics"][name]
        assert all(0 < v <= 1 for v in found["utilisation"].values())
        assert found["gpus_allocated"] > 0
    # Done already: nothing is simulated again, a line that was cut off is made again.
    (tmp_path / "moments.jsonl").write_text("\n".join(lines[:-1]) + '\n{"mark": "')
    assert main(["paper", "crux-trace", *words, "--json", "--out", str(tmp_path)]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["fabrics"] == report["fabrics"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--samples", "0"], "--samples: 0; legal: from 1"),
        (["--days", "nan"], "--days: nan; legal"),
        (["--window-s", "0.1"], "--window-s: 0.1; legal: from 1"),
        (["--trace", "nowhere.csv"], "nowhere.csv"),
        (["--topology", "nowhere.csv"], "nowhere.csv"),
        (["--topology", "nowhere.json"], "nowhere.json"),
    ],
)
def test_bad_input(options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "crux-trace", *options]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
