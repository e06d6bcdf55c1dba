# SPDX-License-Identifier: Apache-2.0
"""Compute jitter, and a job that always sends, from the scenario file to the table: nobody is made worse off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_rig import figures


def pair(folder: Path, jitter_pct: float, first: tuple[int, int] = (260, 120), iterations: int = 40) -> Path:
    """Two jobs on one cable; `first` is the period and the Up time (ms) of the first one."""
    patterns = [first, (260, 120)]
    content = {
        "name": "pair",
        "fabric": {
            "kind": "leaf_spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 2, "host_gbps": 50, "fabric_gbps": 50,
        },
        "iterations": iterations,
        "jobs": [
            {
                "name": f"j{i}", "model": f"m{up}", "gpus": 2, "hosts": [f"h{i + 1}", f"h{i + 3}"],
                "period_ms": period, "jitter_pct": jitter_pct,
                "phases": [{"start_ms": 0, "end_ms": up, "gbps": 50}],
            }
            for i, (period, up) in enumerate(patterns)
        ],
    }  # fmt: skip
    path = folder / "pair.json"
    path.write_text(json.dumps(content))
    return path


def measured(folder: Path, file: Path, *options: str) -> dict[str, Any]:
    found, _ = figures(folder, file, *options)
    scenario: dict[str, Any] = found["scenarios"]["pair"]
    return scenario


@pytest.mark.slow
@pytest.mark.parametrize("jitter_pct", [1, 5])
def test_with_jitter_the_p99_is_no_worse_than_under_ecmp(tmp_path: Path, jitter_pct: int) -> None:
    found = measured(tmp_path, pair(tmp_path, jitter_pct), "--seed", "3")
    assert found["speedup_geometric_mean"] > 1.4
    for job in found["jobs"]:
        # An iteration that waits for its next slot takes twice as long.
        assert job["polyrhythm"]["p99_iteration_ms"] < 1.1 * 265
        assert job["polyrhythm"]["p99_iteration_ms"] < job["ecmp"]["p99_iteration_ms"]


@pytest.mark.long
def test_jitter_of_half_the_compute_time_makes_nobody_worse(tmp_path: Path) -> None:
    found = measured(tmp_path, pair(tmp_path, 50))
    assert found["worst_job"]["ratio"] < 1.1
    assert found["gpu_utilisation"]["polyrhythm"] > 0.97 * found["gpu_utilisation"]["ecmp"]


@pytest.mark.slow
def test_a_job_that_always_sends_is_not_starved_and_the_reason_says_why(tmp_path: Path) -> None:
    found = measured(tmp_path, pair(tmp_path, 0, first=(120, 120), iterations=25))
    assert found["worst_job"]["ratio"] < 1.5
    assert found["gpu_utilisation"]["polyrhythm"] > found["gpu_utilisation"]["ecmp"]
    why = next(j["why"] for j in found["jobs"] if j["name"] == "j0")
    assert "it cannot share leaf1->spine1 in time with j1: together they send 14" in why
