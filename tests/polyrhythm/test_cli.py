# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: its words, and readers that stop early."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from polyrhythm.cli import COMMANDS, main


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


@pytest.mark.parametrize(
    "words",
    [
        ["run", "two_vgg19"], ["plan", "two_vgg19"], ["sim", "--trace", "two_vgg19"], ["interleave", "x.json"],
        ["bench", "routing"], ["bench", "compress"], ["bench", "interleave"], ["bench", "sim"],
        ["controller", "--fabric", "x.json"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_negative_seed_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--seed", "-1"])
    assert ended.value.code == 2
    assert "argument --seed: " in capsys.readouterr().err


def test_a_full_disk_is_told_in_a_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "polyrhythm", "plan", "two_vgg19", "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "polyrhythm plan: No space left on device\n"


def test_a_closed_output_loses_what_is_written_and_no_more() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m polyrhythm plan two_vgg19 >&-"],
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
