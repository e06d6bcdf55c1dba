# SPDX-License-Identifier: Apache-2.0
"""Policies in `polyrhythm run`: one shift for jobs that do not fit, MLTCP where it gains."""

import json
from pathlib import Path

import pytest
from run_rig import figures, run


def scenario(folder: Path, jobs: list[tuple[int, int, int]], iterations: int) -> Path:
    """Jobs of (period, up, gpus), each on a pair of hosts, over one cable."""
    count = len(jobs)
    content = {
        "name": "pairs",
        "fabric": {
            "kind": "leaf_spine", "leaves": 2, "spines": 1, "hosts_per_leaf": count,
            "host_gbps": 50, "fabric_gbps": 50,
        },
        "iterations": iterations,
        "jobs": [
            {
                "name": f"j{i}", "model": "m", "gpus": gpus, "hosts": [f"h{i + 1}", f"h{count + i + 1}"],
                "period_ms": period, "phases": [{"start_ms": 0, "end_ms": up, "gbps": 50}],
            }
            for i, (period, up, gpus) in enumerate(jobs)
        ],
    }  # fmt: skip
    path = folder / "pairs.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.slow
def test_cassini_as_published_gains_at_a_score_of_0_8(tmp_path: Path) -> None:
    """Snapshot 4 of Table 4.3: what does not fit is shifted all the same, and not held."""
    found, _ = figures(
        tmp_path, scenario(tmp_path, [(287, 164, 2), (287, 180, 2)], 12), "--policy", "cassini"
    )
    measured = found["scenarios"]["pairs"]
    assert measured["deterministic"] is True
    assert measured["speedup_mean"] > 1.2
    for job in measured["jobs"]:
        assert job["polyrhythm"]["mean_iteration_ms"] < 1.25 * 287
        assert "then at its own pace" in job["why"]


@pytest.mark.slow
def test_with_one_level_jobs_get_mltcp_and_keep_more_gpus_busy(tmp_path: Path) -> None:
    file = scenario(tmp_path, [(632, 214, 2), (296, 136, 8)], 15)
    found, _ = figures(tmp_path, file, "--levels", "1")
    measured = found["scenarios"]["pairs"]
    assert all("MLTCP senders" in job["why"] for job in measured["jobs"])
    assert measured["gpu_utilisation"]["polyrhythm"] > 1.03 * measured["gpu_utilisation"]["ecmp"]


@pytest.mark.parametrize("value", ["0", "7", "two", "-1"])
def test_a_number_of_levels_that_no_switch_has_is_refused(value: str) -> None:
    done = run("two_vgg19", f"--levels={value}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no whole number from 1 to 6" in done.stderr


@pytest.mark.long
def test_a_sender_with_a_window_comes_from_the_policy_or_from_the_scenario(tmp_path: Path) -> None:
    file = scenario(tmp_path, [(260, 120, 2), (260, 120, 2)], 12)
    found, _ = figures(tmp_path, file, "--policy", "mltcp", "--sender", "mltcp-reno")
    measured = found["scenarios"]["pairs"]
    content = json.loads(file.read_text())
    for job in content["jobs"]:
        job["sender"] = "mltcp-reno"
    file.write_text(json.dumps(content))
    own, _ = figures(tmp_path, file, "--policy", "ecmp")
    for planned, chosen in zip(measured["jobs"], own["scenarios"]["pairs"]["jobs"], strict=True):
        assert planned["ecmp"]["mean_iteration_ms"] > 1.3 * 260
        for row in (planned, chosen):
            # From a common start; the first of these iterations still overlap.
            assert row["polyrhythm"]["mean_iteration_ms"] < 0.92 * planned["ecmp"]["mean_iteration_ms"]
