# SPDX-License-Identifier: Apache-2.0
"""The verbs driver by ctypes, in a process of its own over the tests' libibverbs and libmlx5."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agent_rig import ROOT
from shim_rig import needs_compiler

# Creates a queue pair as its owner, drives it to RTS, then moves it by the driver.
OWNER = """
import ctypes, sys
from polyrhythm_job.verbs import Verbs, VerbsError
verbs = Verbs()
print(verbs.devices())
library = ctypes.CDLL("libibverbs.so.1")
library.ibv_create_qp.restype = ctypes.c_void_p
library.ibv_modify_qp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
pair = library.ibv_create_qp(None, ctypes.byref(ctypes.c_int(2)))
for state in (1, 2, 3)[: int(sys.argv[1])]:
    attributes = (ctypes.c_int * 64)(state)
    assert library.ibv_modify_qp(pair, attributes, 1) == 0
for port in map(int, sys.argv[2:]):
    try:
        verbs.move(pair, port)
    except (VerbsError, ValueError) as error:
        print(error)
"""


def own(built: Path, log: Path, *arguments: str, **more: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "hostagent" / "job_library"),
        "LD_LIBRARY_PATH": str(built),
        "FAKE_LOG": str(log),
    }
    done = subprocess.run(
        [sys.executable, "-c", OWNER, *arguments], env={**environment, **more}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_compiler
def test_a_queue_pair_of_this_process_is_moved(built: Path, tmp_path: Path) -> None:
    said = own(built, tmp_path / "log", "3", "50001", "65535")
    assert said == "['mlx5_0']\n"
    assert [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("port")] == [
        "port 1 50001",
        "port 1 65535",
    ]


@needs_compiler
def test_what_cannot_be_moved_says_why(built: Path, tmp_path: Path) -> None:
    assert "Invalid argument" in own(built, tmp_path / "log", "2", "50001")
    assert "source port 80 is outside 49152-65535" in own(built, tmp_path / "log", "3", "80")
    assert "not supported" in own(built, tmp_path / "log", "3", "50001", FAKE_REFUSES_MOVES="1")
