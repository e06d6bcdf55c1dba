# SPDX-License-Identifier: Apache-2.0
"""A command in a process of its own: what it prints, and its end with the process that started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from polyrhythm.paper.processes import run_command_apart

PATIENCE_S = 100
"""How long a test waits for what must happen; it fails then."""
SETTLED_S = 1.0
"""Time for the processes of a pool to import and to compute. Chosen."""
SCRIPT = """
import sys
from pathlib import Path
from polyrhythm.paper.processes import run_command_apart

if __name__ == "__main__":
    words = ("paper", "crux-microbench", "--cases", "100000", "--workers", "2")
    run_command_apart(words, Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_command_prints_to_a_file_and_says_how_it_ended(tmp_path: Path) -> None:
    printed, log = tmp_path / "printed", tmp_path / "log"
    assert run_command_apart(("plan", "snapshot1", "--json"), printed, log) == 0
    assert json.loads(printed.read_text())
    assert run_command_apart(("paper", "dally", "--workers", "0"), printed, log) == 2
    assert printed.read_text() == ""
    assert "--workers: 0" in log.read_text()


@pytest.mark.slow
def test_a_command_ends_though_its_pool_has_tasks_left(tmp_path: Path) -> None:
    # It stops at its third case; other cases are under way then.
    words = ("paper", "crux-microbench", "--cases", "3", "--workers", "2", "--json")
    assert run_command_apart(words, tmp_path / "printed", tmp_path / "log") == 0
    assert json.loads((tmp_path / "printed").read_text())["cases"] == 3


def test_a_kill_leaves_neither_the_command_nor_its_processes(tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "printed"), str(tmp_path / "log")],
        start_new_session=True,
    )
    session = process.pid
    # The script, the command, and the two processes of its pool.
    while _pythons(session) < 4:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    while _pythons(session):
        time.sleep(0.05)


@pytest.mark.parametrize("everyone", [True, False])
def test_ctrl_c_ends_an_experiment_in_silence(everyone: bool) -> None:
    # A shell that starts a command in the background makes it ignore SIGINT.
    program = (
        "import signal, sys\n"
        "from polyrhythm.cli import main\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    sys.exit(main(['paper', 'crux-microbench', '--cases', '100000', '--workers', '2']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    # The command, and the two processes of its pool. The first result comes when they compute.
    while _pythons(process.pid) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(SETTLED_S)
    # As a terminal does, to everyone in the group; or as `kill` does.
    (os.killpg if everyone else os.kill)(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert said == ""
    while _pythons(process.pid):
        time.sleep(0.05)


def _pythons(session: int) -> int:
    """The processes of a session that run Python programs, but multiprocessing's trackers."""
    found = 0
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            if (
                os.getsid(process.pid) == session
                and process.status() != psutil.STATUS_ZOMBIE
                and "resource_tracker" not in words
            ):
                found += 1
        except (psutil.Error, ProcessLookupError):
            continue
    return found
