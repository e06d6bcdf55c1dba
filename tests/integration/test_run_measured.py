# SPDX-License-Identifier: Apache-2.0
"""A run in which the controller has to find everything out: jobs that announce nothing, one that changes its
pattern, hosts whose clocks are off."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from run_rig import uncounted

SCENARIO = """
name: unknown
fabric: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 2, host_gbps: 50, fabric_gbps: 50}
warmup: 2
iterations: %d
clock_offset_ms: 50000
clock_drift_ppm: 80
jobs:
  - name: a
    model: VGG19
    gpus: 2
    hosts: [h1, h3]
    period_ms: 260
    announces: nothing
    phases: [{start_ms: 0, end_ms: 60, gbps: 50}]
    changes:
      - iteration: 28
        period_ms: 360
        phases: [{start_ms: 0, end_ms: 60, gbps: 50}, {start_ms: 100, end_ms: 160, gbps: 50}]
  - name: b
    model: VGG19
    gpus: 2
    hosts: [h2, h4]
    period_ms: 360
    announces: nothing
    phases: [{start_ms: 0, end_ms: 150, gbps: 50}]
"""


def command(path: Path, target: Path) -> list[str]:
    run = [sys.executable, "-m", "polyrhythm", "run", str(path)]
    return [*run, "--once", "--offsets", "0", "--json", str(target)]


@pytest.mark.slow
def test_what_nobody_says_is_measured_and_a_change_is_planned_for(tmp_path: Path) -> None:
    path = tmp_path / "unknown.yaml"
    path.write_text(SCENARIO % 30)
    target, kept = tmp_path / "figures.json", tmp_path / "kept"
    done = subprocess.run(
        [*command(path, target), "--keep", str(kept)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=uncounted(),
    )
    assert done.returncode == 0, done.stderr
    scenario = json.loads(target.read_text())["scenarios"]["unknown"]
    assert scenario["deterministic"] is True
    assert scenario["notes"]["polyrhythm"] == []
    log = (kept / "unknown" / "polyrhythm" / "controller.log").read_text()
    # What it does anew is noticed by the third iteration of it, and planned for.
    assert "job a has changed its communication pattern" in log
    assert "in iteration 30)" in log
    first, second = scenario["jobs"]
    assert "measured over 6 iterations: 36" in first["why"]
    assert "measured over 6 iterations: 36" in second["why"]
    # 122 + 152 ms of sending in 363, sharing the link in time: the new slots hold on hosts 100 s apart.
    assert first["period_ms"] == second["period_ms"]
    assert 361 < first["period_ms"] < 370


@pytest.mark.slow
def test_declared_profiles_are_believed_if_one_says_so(tmp_path: Path) -> None:
    path = tmp_path / "unknown.yaml"
    text = SCENARIO.split("    changes:", maxsplit=1)[0] % 4 + SCENARIO[SCENARIO.index("  - name: b") :]
    path.write_text(text.replace("    announces: nothing\n", ""))
    target = tmp_path / "figures.json"
    done = subprocess.run(
        [*command(path, target), "--profile", "declared"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for job in json.loads(target.read_text())["scenarios"]["unknown"]["jobs"]:
        assert job["why"].endswith("profile as the job declares it")
