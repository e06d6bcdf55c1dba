# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench routing`: the figures that do not depend on the machine's mood."""

from __future__ import annotations

import json

import pytest

from polyrhythm.cli import main

KEYS = {
    "greedy_1500_ms", "greedy_speedup_1500", "greedy_100k_ms", "optimal_2048_us", "optimal_excess",
    "greedy_excess", "fat_tree_8k_ms", "fat_tree_8k_excess", "optimal_vs_ilp", "arrive_leave_us",
    "maxmin_1500_ms", "maxmin_100k_ms", "maxmin_error", "ports_100k_ms", "probes_linear_32",
    "failover_prepare_ms_per_plan", "failover_live_ms",
}  # fmt: skip


@pytest.mark.slow
def test_what_the_bench_finds_is_good(capsys) -> None:
    pytest.importorskip("numba")
    assert main(["bench", "routing", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() >= KEYS
    assert (found["optimal_excess"], found["greedy_excess"]) == (0, 1)
    assert found["fat_tree_8k_excess"] == {"leaf": 0, "core": 0}
    assert found["maxmin_error"] <= 1e-9
    assert found["probes_linear_32"] <= 20
    # The control delay of the embedded fabric, no more: the way around goes out at once.
    assert found["failover_live_ms"] == 1.0
    assert found["arrive_leave_max_load"] == 1
