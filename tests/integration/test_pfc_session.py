# SPDX-License-Identifier: Apache-2.0
"""Priority flow control from the scenario file to the report: four jobs over one narrow uplink."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from polyrhythm.run.session import SessionResult, SessionSpec, run_session

SCENARIO = """
name: narrow
fabric: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 3, host_gbps: 50, fabric_gbps: 50}
scale: 10000
buffer_packets: 16
# Nobody slows down for a mark.
ecn: {kmin: 9000, kmax: 10000}
warmup: 1
iterations: 2
profile: declared
jobs:
  - {name: a, model: m, gpus: 2, hosts: [h1, h4], period_ms: 300, phases: [{start_ms: 0, end_ms: 60, gbps: 50}]}
  - {name: b, model: m, gpus: 2, hosts: [h2, h5], period_ms: 300, phases: [{start_ms: 0, end_ms: 60, gbps: 50}]}
  - {name: c, model: m, gpus: 2, hosts: [h3, h6], period_ms: 300, phases: [{start_ms: 0, end_ms: 60, gbps: 50}]}
"""


def session(folder: Path, more: str) -> SessionResult:
    path = folder / "narrow.yaml"
    path.write_text(SCENARIO + more)
    spec = SessionSpec(scenario=path, policy="ecmp", mode="together", seed=1, workdir=folder / "run")
    return asyncio.run(run_session(spec, lambda fraction: None))


@pytest.mark.slow
def test_a_lossless_fabric_loses_nothing_where_a_lossy_one_does(tmp_path: Path) -> None:
    (tmp_path / "lossy").mkdir()
    lossy = session(tmp_path / "lossy", "")
    assert lossy.pfc is None
    assert sum(r.retransmits for records in lossy.iterations.values() for r in records) > 0
    lossless = session(tmp_path, "pfc: {xoff: 8, xon: 4}\n")
    assert sum(r.retransmits for records in lossless.iterations.values() for r in records) == 0
    assert lossless.pfc is not None
    assert lossless.pfc["packets_lost"] == 0
    assert lossless.pfc["pause_frames"] > 0
    # All jobs of ECMP have DSCP 26, which is priority 5.
    assert {row["priority"] for row in lossless.pfc["ports"]} == {5}
    hosts = {row["node"]: row["paused_ms"] for row in lossless.pfc["ports"] if row["node"].startswith("h")}
    assert all(hosts[host] > 0 for host in ("h1", "h2", "h3"))
