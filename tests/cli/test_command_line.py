# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: its words, and readers that stop early."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from polyrhythm.cli import COMMANDS


@pytest.mark.parametrize("word", sorted(COMMANDS))
def test_every_command_has_help(word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "polyrhythm", word, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "usage: polyrhythm" in done.stdout


def test_a_reader_that_stops_early_is_no_failure_of_ours() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "polyrhythm", "plan", "two_vgg19", "--json"],
        stdout=write_end, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(write_end)
    assert done.returncode == 1
    assert done.stderr == ""
