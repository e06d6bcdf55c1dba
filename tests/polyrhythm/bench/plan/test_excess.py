# SPDX-License-Identifier: Apache-2.0
"""The group `excess` of `polyrhythm bench plan`: what it calls the excess of a plan."""

from dataclasses import replace
from random import Random

import pytest

from controller.planner import POLICIES, plan
from polyrhythm.bench.plan import excess as bench
from polyrhythm.bench.plan.clusters import RATE_BPS
from topo.generate import leaf_spine

_SMALL = leaf_spine(4, 4, 4, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


def test_a_balanced_plan_has_none_and_a_crowded_one_has_some() -> None:
    x = bench._full_load(_SMALL, Random(1))
    x = replace(x, policy=POLICIES["optimal"])
    made = plan(x)
    assert bench._excess(x, made) == 0
    name, path = next((n, f.path) for n, f in made.flows.items() if f.path and len(f.path) == 5)
    other = next(s for s in ("spine1", "spine2") if s != path[2])
    crowded = {**made.flows, name: replace(made.flows[name], path=(*path[:2], other, *path[3:]))}
    assert bench._excess(x, replace(made, flows=crowded)) > 0


def test_a_change_keeps_the_load() -> None:
    x = bench._full_load(_SMALL, Random(1))
    y = bench._one_job_anew(x, Random(2))
    assert len(y.jobs) == len(x.jobs)
    assert {j.name for j in y.jobs} != {j.name for j in x.jobs}


@pytest.mark.slow
def test_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "cluster", lambda: _SMALL)
    monkeypatch.setattr(bench, "PERMUTATIONS", 1)
    monkeypatch.setattr(bench, "CHANGES", 2)
    monkeypatch.setattr(bench, "_irregular", lambda down, rng: 0.01 * down)
    report = bench.measure(1, 1)
    assert report["excess_first"] >= report["excess_final"] >= 0
    assert report["excess_irregular"] in (None, 0.08)
    assert all(report[f"excess_{name}_speedup"] > 0 for name in ("paths", "ports", "irregular_paths"))
