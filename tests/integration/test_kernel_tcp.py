# SPDX-License-Identifier: Apache-2.0
"""Jobs over the kernel's TCP beside one over RoCEv2, on a Mininet fabric: root and Mininet are needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from shim_rig import SHIM, needs_compiler

from topo.mininet import MininetError, check_host

pytestmark = [pytest.mark.slow, pytest.mark.alone, needs_compiler]

SCENARIO = {
    "name": "beside",
    "fabric": {"kind": "leaf_spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 2, "host_gbps": 50, "fabric_gbps": 50},
    "scale": 8000, "packet_bytes": 1024, "warmup": 2, "iterations": 6, "draws": 1, "profile": "declared",
    "jobs": [
        {
            "name": name, "model": "VGG19", "gpus": 2, "hosts": hosts, "period_ms": 400,
            "phases": [{"start_ms": 0, "end_ms": 260, "gbps": 50}], **more,
        }
        for name, hosts, more in (
            ("tcp", ["h1", "h3"], {"sender": "kernel-tcp", "congestion_control": "reno"}), ("roce", ["h2", "h4"], {}),
        )
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _possible() -> None:
    try:
        check_host()
    except MininetError as error:
        pytest.skip(str(error))
    subprocess.run(["make", "-s", "-C", str(SHIM)], check=True, cwd=SHIM)


def test_tcp_and_roce_share_a_fabric_and_each_is_marked(tmp_path: Path) -> None:
    path, out = tmp_path / "beside.json", tmp_path / "run.json"
    path.write_text(json.dumps(SCENARIO))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "polyrhythm", "run", str(path), "--fabric", "mininet", "--once"),
            *("--json", str(out), "--offsets", "0"),
        ],
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["scenarios"]["beside"]
    jobs = {job["name"]: job for job in found["jobs"]}
    assert set(jobs) == {"tcp", "roce"}
    for job in jobs.values():
        # An iteration takes at least its pause.
        assert job["ideal_iteration_ms"] > 140
        assert job["polyrhythm"]["mean_iteration_ms"] > 140
    # Both send for more than half of each period, so they meet whenever they begin.
    assert jobs["tcp"]["ecmp"]["ecn_marks_per_iteration"] > 0


def test_the_embedded_fabric_has_no_kernel(tmp_path: Path) -> None:
    path = tmp_path / "beside.json"
    path.write_text(json.dumps(SCENARIO))
    done = subprocess.run(
        [sys.executable, "-m", "polyrhythm", "run", str(path), "--once"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "sender: kernel-tcp" in done.stderr
    assert "legal: --fabric mininet" in done.stderr
