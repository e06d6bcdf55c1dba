# SPDX-License-Identifier: Apache-2.0
"""The group `cluster` of `polyrhythm bench plan`: its inputs, and its figures on a small fabric."""

from collections import Counter

import pytest

from controller.planner import first_plan, plan
from polyrhythm.bench.plan import cluster as bench
from polyrhythm.bench.plan import clusters
from topo.generate import leaf_spine, rail

_SMALL = leaf_spine(4, 4, 8, host_bps=clusters.RATE_BPS, fabric_bps=clusters.RATE_BPS)


def test_ring_jobs_load_every_host_alike() -> None:
    jobs = clusters.ring_jobs(_SMALL, 3, 30, seed=1)
    assert jobs == clusters.ring_jobs(_SMALL, 3, 30, seed=1)
    assert [len(j.flows) for j in jobs] == [10, 10, 10]
    assert not set(jobs[0].hosts) & set(jobs[1].hosts)
    sent = Counter(f.src for f in jobs[0].flows)
    assert max(sent.values()) - min(sent.values()) <= 1
    assert all(f.src != f.dst for j in jobs for f in j.flows)


def test_a_change_replaces_one_job() -> None:
    x = bench.inputs(_SMALL, 3, 30, seed=1)
    before = plan(x)
    y = bench.changed(x, before, seed=1)
    assert [j.name for j in y.jobs] == ["j1", "j2", "new"]
    assert set(y.jobs[-1].hosts) == set(x.jobs[0].hosts)
    assert set(first_plan(y).jobs) == {"j1", "j2", "new"}


@pytest.mark.slow
def test_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    small_rails = rail(2, 2, 4, 4, host_bps=clusters.RATE_BPS, fabric_bps=clusters.RATE_BPS)
    monkeypatch.setattr(bench, "cluster", lambda: _SMALL)
    monkeypatch.setattr(bench, "rails", lambda: small_rails)
    monkeypatch.setattr(
        bench, "inputs", lambda topology, jobs, flows, seed, most_ms=2_000: _inputs(topology, seed)
    )
    report = bench.measure(1, 1)
    names = {"first_ms", "change_ms", "full_ms", "publish_ms", "change_publish_ms"}
    names |= {"paths_speedup", "ports_speedup"}
    assert set(report) == names | {"many_first_ms", "many_full_ms", "huge_first_ms", "huge_mib"}
    assert all(value > 0 for value in report.values())


def _inputs(topology: object, seed: int, real=bench.inputs):  # type: ignore[no-untyped-def]
    return real(topology, 2, 12, seed)
