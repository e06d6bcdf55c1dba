# SPDX-License-Identifier: Apache-2.0
"""Spraying and flowlets on packets: two jobs over two spines, on the embedded fabric with its controller."""

import asyncio
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest

from polyrhythm.run.session import SessionSpec, run_session

SCENARIO = """
name: two-over-two
fabric: {kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 2, host_gbps: 50, fabric_gbps: 50}
warmup: 1
iterations: 4
profile: declared
nics: {any_order: true}
jobs:
  - {name: a, model: m, gpus: 2, hosts: [h1, h3], period_ms: 100, phases: [{start_ms: 0, end_ms: 60, gbps: 50}]}
  - {name: b, model: m, gpus: 2, hosts: [h2, h4], period_ms: 100, phases: [{start_ms: 0, end_ms: 60, gbps: 50}]}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "action"),
    [("polyrhythm", "spray_in_turn"), ("spray", "spray_in_turn"), ("dlb", "move_flowlets")],
)
def test_jobs_whose_packets_are_spread_run_as_if_alone(tmp_path: Path, policy: str, action: str) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO)
    spec = SessionSpec(scenario=path, policy=policy, mode="together", seed=1, workdir=tmp_path / "run")
    result = asyncio.run(run_session(spec, lambda fraction: None))
    assert result.plan is not None
    assert [s["action"] for s in result.plan["spread"]] == [action] * len(result.plan["spread"])
    assert {job["dscp"] for job in result.plan["jobs"]} == {s["dscp"] for s in result.plan["spread"]}
    for records in result.iterations.values():
        lengths = defaultdict[int, int](int)
        for r in records:
            lengths[r.index] = max(lengths[r.index], r.end_ns - r.start_ns)
        # Alone an iteration takes 100 ms, and the headers' part of the 60 ms. On one spine it would take 160.
        assert mean(list(lengths.values())[1:]) < 105e6
        assert sum(r.retransmits for r in records) == 0
