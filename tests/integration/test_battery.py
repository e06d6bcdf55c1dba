# SPDX-License-Identifier: Apache-2.0
"""Twelve small scenarios of the battery on packets, and a battery that is killed and goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "polyrhythm", "paper", "battery", "--most-jobs", "4", "--json"]


HEARS = """
import signal, sys
from polyrhythm.cli import main
# A shell starts background processes with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_twelve_scenarios(tmp_path: Path) -> None:
    """Of at most three jobs, and without the other policies, which the next test has: 36 sessions, not 120."""
    few = ["--seed", "28", "--most-jobs", "3", "--policies", "none", "--draws", "1"]
    done = subprocess.run(
        [*COMMAND, *few, "--count", "12", "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "report.json").read_text())
    assert report["scenarios"] == 12
    assert report["failed"] == []
    assert report["lossy_scenarios_pct"] >= 60
    assert report["utilisation_gain_mean"] > 5
    for row in report["rows"]:
        used = row["gpu_utilisation"]
        assert all(0 < value < 1 for value in used.values())
        # Nothing is better than to be alone, but for jitter.
        assert max(used.values()) < 1.03 * used["alone"]
    assert report["judge_error_mean_pct"] is not None


@pytest.mark.slow
def test_a_killed_battery_goes_on_and_leaves_no_process(tmp_path: Path) -> None:
    one = [*COMMAND, "--count", "1", "--draws", "1"]
    command = [*one, "--out", str(tmp_path / "killed")]
    rows = tmp_path / "killed" / "sessions-1-4.jsonl"
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not (rows.exists() and rows.read_text().count("\n") >= 2):
        assert process.poll() is None
        time.sleep(0.1)
    children = _children(process.pid)
    assert children
    process.kill()
    process.communicate()
    kept = rows.read_text().splitlines()
    while any(_runs(pid) for pid in children):
        time.sleep(0.1)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(kept) <= set(rows.read_text().splitlines())
    whole = subprocess.run(
        [*one, "--jobs", "1", "--out", str(tmp_path / "whole")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert whole.returncode == 0
    for file in sorted((tmp_path / "whole").rglob("*")):
        if file.is_file():
            again = tmp_path / "killed" / file.relative_to(tmp_path / "whole")
            assert again.read_bytes() == file.read_bytes(), file.name


@pytest.mark.slow
def test_ctrl_c_ends_all_sessions(tmp_path: Path) -> None:
    rows = tmp_path / "sessions-1-4.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", HEARS, *COMMAND[3:], "--count", "1", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (rows.exists() and rows.read_text()):
        assert process.poll() is None
        time.sleep(0.1)
    children = _children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    out, said = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert re.search(r"stopped after [1-9] of 10 sessions", said)
    assert "Traceback" not in said
    assert not any(_runs(pid) for pid in children)


def _children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(folder.name))
    return found


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
