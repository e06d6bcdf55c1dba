# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench interleave`: its instances are what it says, its figures are there and its scores equal."""

from __future__ import annotations

import json
from argparse import Namespace
from random import Random

from circles import plain_score

from controller.interleave.circle import perimeter
from polyrhythm.bench import interleave as bench


def test_instances_lie_on_the_angles_and_are_neither_easy_nor_hopeless() -> None:
    rng = Random(1)
    scores = []
    for i in range(60):
        link, periods = bench.instance(rng, 2 + i % 3)
        assert len(link.demands) == 2 + i % 3
        assert perimeter(list(periods.values())) == 72 * 5_000_000
        for job, phases in link.demands.items():
            for p in phases:
                assert 0 <= p.start_ns < p.end_ns <= periods[job]
                assert p.start_ns % 5_000_000 == p.end_ns % 5_000_000 == 0
        scores.append(plain_score(link, periods, dict.fromkeys(periods, 0)))
    assert min(scores) < 0.9 < max(scores)


def test_figures(monkeypatch, capsys) -> None:
    monkeypatch.setattr(bench, "LINKS", 12)
    monkeypatch.setattr(bench, "_ENUMERATED", 2)
    assert bench.run(Namespace(seed=3, json=True)) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["j3_same_score"] is True
    assert report["links1000_proven"] == 12
    assert report["links1000_descent_mean_score"] <= report["links1000_mean_score"] + 1e-9
    assert {"links1000_exact_ms", "links1000_descent_ms", "j3_speedup"} <= set(report)
