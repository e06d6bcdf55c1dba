# SPDX-License-Identifier: Apache-2.0
"""A simulation that is killed, as a process, goes on from its checkpoint and ends with the same bytes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("numba")
TOPOLOGY = {
    "kind": "leaf_spine", "leaves": 8, "spines": 4, "hosts_per_leaf": 2, "host_gbps": 100, "fabric_gbps": 50,
}  # fmt: skip


def start(folder: Path, out: str, hash_seed: int) -> "subprocess.Popen[str]":
    (folder / "fabric.json").write_text(json.dumps(TOPOLOGY))
    return subprocess.Popen(
        [
            # Whoever runs the tests in the background may have had the interrupt ignored. Not by preexec_fn:
            # gRPC, which other tests of this process use, ends a child that forks, before it becomes a program.
            *("env", "--default-signal=INT", sys.executable, "-m", "polyrhythm", "sim"),
            *("--trace", "poisson:250", "--hours", "30"),
            *("--topology", "fabric.json", "--policy", "ecmp,crux", "--samples-s", "7200"),
            *("--checkpoint-s", "0", "--out", out, "--json"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def stop_at(process: "subprocess.Popen[str]", checkpoint: Path, how: signal.Signals) -> int:
    """Signal the process as soon as the checkpoint is there; its exit code."""
    until = time.monotonic() + 600
    while not checkpoint.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)
    process.send_signal(how)
    process.communicate(timeout=300)
    return process.returncode


@pytest.mark.slow
def test_killed_and_interrupted_runs_end_with_the_same_bytes(tmp_path: Path) -> None:
    whole = start(tmp_path, "whole", 1)
    printed, _ = whole.communicate(timeout=600)
    assert whole.returncode == 0
    # Killed in the first policy, interrupted in the second, each time under another hash seed.
    out = tmp_path / "cut"
    assert stop_at(start(tmp_path, "cut", 2), out / "ecmp.checkpoint", signal.SIGKILL) == -signal.SIGKILL
    assert stop_at(start(tmp_path, "cut", 3), out / "crux.checkpoint", signal.SIGINT) == 130
    last = start(tmp_path, "cut", 4)
    again, said = last.communicate(timeout=600)
    assert last.returncode == 0
    # What was finished is not run again.
    assert "ecmp: continuing from" in said
    assert "crux: continuing from" in said
    assert files(out) == files(tmp_path / "whole")
    assert json.loads(again)["policies"] == json.loads(printed)["policies"]
