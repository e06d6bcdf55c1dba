# SPDX-License-Identifier: Apache-2.0
"""Measurements that processes share: kept as they come, gone on from, and ended by Ctrl-C or a kill."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polyrhythm.paper.resumable import collect, kept

ALL = [(("number", i),) for i in range(4)]
"""`dict` of each is its row."""


def test_rows_come_in_order_and_are_not_measured_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = collect(dict, ALL, 2, path, "numbers")
    assert list(rows.items()) == [(task, {"number": i}) for i, task in enumerate(ALL)]
    # No task is a whole number: what is not there would fail.
    assert collect(int, ALL, 1, path, "numbers") == rows
    whole = path.read_text().splitlines()
    path.write_text("\n".join([*whole[:3], whole[3][:20]]))
    assert len(kept(path, ALL)) == 3
    capsys.readouterr()
    with pytest.raises(TypeError):
        collect(int, ALL, 1, path, "numbers")
    assert f"stopped after 3 of 4 instances; {path} has them" in capsys.readouterr().err
    assert len(kept(path, ALL)) == 3
    assert collect(dict, ALL, 1, path, "numbers") == rows
    # Another program's rows, or other tasks', are not taken.
    assert kept(path, ALL[:2]) == {task: rows[task] for task in ALL[:2]}
    path.write_text(json.dumps({"mark": "old", "task": ALL[0], "row": {"number": 9}}) + "\n")
    assert kept(path, ALL) == {}


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from polyrhythm.paper.resumable import collect
out = Path(sys.argv[1])

def measure(task):
    (out / f"pid-{os.getpid()}").touch()
    if task[0]:
        time.sleep(600)
    return {"row": task[0]}

if __name__ == "__main__":
    # Whoever was started in a shell's background would not hear it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        collect(measure, [(i,) for i in range(4)], 2, out / "rows.jsonl", "sleepers")
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stop_loses_no_row_and_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "sleepers.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    rows = tmp_path / "rows.jsonl"
    while not (rows.exists() and rows.read_text() and len(list(tmp_path.glob("pid-*"))) == 2):
        assert process.poll() is None
        time.sleep(0.05)
    if how == signal.SIGINT:
        # As a terminal does: everyone in the group hears it.
        os.killpg(process.pid, how)
    else:
        process.kill()
    _, said = process.communicate(timeout=300)
    assert "Traceback" not in said
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "stopped after 1 of 4 instances" in said
    assert json.loads(rows.read_text())["row"] == {"row": 0}
    left = [int(p.name.removeprefix("pid-")) for p in tmp_path.glob("pid-*")]
    while any(_runs(pid) for pid in left):
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_lines_of_others_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = collect(dict, ALL, 1, path, "numbers")
    ours = path.read_bytes()
    row = json.loads(ours.splitlines()[0])
    for line in (
        b"5", b"null", b"{}", b'{"task": 1}', b"\xff\xfe{}", b"[" * 100_000, b"\0" * 9,
        json.dumps({**row, "row": 5}).encode(), json.dumps({"mark": row["mark"]}).encode(),
    ):  # fmt: skip
        path.write_bytes(line + b"\n" + ours)
        assert kept(path, ALL) == rows
        # No task is a whole number: what is not there would fail.
        assert collect(int, ALL, 1, path, "numbers") == rows
        assert path.read_bytes() == ours


def test_rows_of_other_tasks_stay(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = collect(dict, ALL, 1, path, "numbers")
    others = [(("number", 9),)]
    collect(dict, others, 1, path, "numbers")
    assert kept(path, ALL) == rows
    assert kept(path, others) == {others[0]: {"number": 9}}
    assert collect(int, [*ALL, *others], 1, path, "numbers") == {**rows, others[0]: {"number": 9}}
    assert len(path.read_text().splitlines()) == 5


def test_a_full_disk_leaves_the_rows_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = collect(dict, ALL, 1, path, "numbers")
    write = Path.write_bytes

    def full(file: Path, content: bytes) -> int:
        write(file, content[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        collect(int, ALL, 1, path, "numbers")
    assert list(tmp_path.iterdir()) == [path]
    assert kept(path, ALL) == rows
