# SPDX-License-Identifier: Apache-2.0
"""The group `failures` of `polyrhythm bench plan`: its checks find what is wrong, and its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.live.failover import FailoverSearch
from controller.planner import first_plan
from controller.planner.emergency import Emergencies
from controller.routing.backend import backend
from controller.routing.failover import events
from controller.southbound.table_writes import FabricCondition
from polyrhythm.bench.plan import clusters
from polyrhythm.bench.plan import failures as bench
from topo.generate import leaf_spine

_SMALL = leaf_spine(4, 3, 8, host_bps=clusters.RATE_BPS, fabric_bps=clusters.RATE_BPS)
X = bench.inputs(_SMALL, 3, 30, seed=1)
FLOWS = [f for job in X.jobs for f in job.flows]


def test_both_checks_agree_on_every_answer_and_on_plans_without_one() -> None:
    made = first_plan(X)
    clos = bench.LeafSpineCheck(_SMALL, FLOWS)
    search = FailoverSearch(X, made, FabricCondition())
    wrong = 0
    for event in events(_SMALL):
        (answer,) = search.answers((event,))
        after = answer.reroutes.emergency(made).applied(made)
        assert clos.valid(after, event)
        assert bench.valid_by_tables(_SMALL, FLOWS, after, event)
        # The old plan, as if the failure had no answer.
        assert clos.valid(made, event) == bench.valid_by_tables(_SMALL, FLOWS, made, event)
        wrong += not clos.valid(made, event)
        # A flow that is said to be cut off, and is not.
        lost = next(f for f in FLOWS if after.flows[f.name].path is not None)
        cut = replace(after.flows[lost.name], path=None, source_port=None)
        assert not clos.valid(replace(after, flows={**after.flows, lost.name: cut}), event)
    assert wrong > 10


def test_the_plain_reference_gives_the_same_answers() -> None:
    # So few flows get the kernels only where these are loaded.
    backend()
    made = first_plan(X)
    compiled, plain = Emergencies(X, made), Emergencies(X, made, plain=True)
    assert all(compiled.answer(event) == plain.answer(event) for event in events(_SMALL))


@pytest.mark.slow
def test_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "cluster", lambda: _SMALL)
    monkeypatch.setattr(bench, "inputs", lambda topology, jobs, flows, seed: X)
    report = bench.measure(1, 1)
    assert report["failover_events"] == report["failover_valid"] == 4 + 3 + 12
    assert report["failover_prepare_ms"] > 0
    assert report["failover_speedup"] > 0
    assert report["failover_moved"] > 0
    assert report["failover_cut_off"] > 0
