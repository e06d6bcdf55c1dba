# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: its words, and readers that stop early."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "polyrhythm: the following arguments are required: COMMAND; see polyrhythm --help\n"),
        (
            ["jobs", "end"],
            "polyrhythm jobs end: the following arguments are required: JOB; see polyrhythm jobs end --help\n",
        ),
        (
            ["history", "--al\nl"],
            "polyrhythm history: unrecognized arguments: --al\\x0al; see polyrhythm history --help\n",
        ),
        (
            ["bench", "switch", "x"],
            "polyrhythm bench switch: unrecognized arguments: x; see polyrhythm bench switch --help\n",
        ),
    ],
)
def test_bad_use_is_told_in_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err == said


def test_json_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(code: int, *words: str) -> dict:
        assert main([*words, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    pki = str(tmp_path / "pki")
    assert printed(0, "pki", "init", "--dir", pki)["certificate"] == f"{pki}/ca.pem"
    assert set(printed(0, "pki", "host", "h1", "--dir", pki)) == {
        "certificate",
        "key",
        "authority",
        "expires",
    }
    tokens = str(tmp_path / "tokens.toml")
    assert len(printed(0, "pki", "token", "me", "--role", "job", "--file", tokens)["token"]) == 43
    (tmp_path / "bad.toml").write_text("colour = 1")
    [good, bad] = printed(2, "config", "check", tokens, str(tmp_path / "bad.toml"))["files"]
    assert good == {"file": tokens, "kind": "tokens", "mistakes": []}
    assert ":1: the kind of file is not clear" in bad["mistakes"][0]
    assert "PRIO_7" in printed(0, "pipeline", "traffic-manager", "--target", "stratum")["text"]
    packed = printed(0, "pipeline", "pack", "--target", "bmv2", "-o", str(tmp_path / "bmv2.bin"))
    assert packed["bytes"] == (tmp_path / "bmv2.bin").stat().st_size
    stf = Path(__file__).parents[1] / "data" / "stf"
    (tmp_path / "x.stf").write_text("packet 0 00\nexpect 1 00\n")
    [test] = printed(1, "stf", str(stf / "copies.json"), str(tmp_path / "x.stf"))["tests"]
    assert not test["passed"]
    assert test["failures"]
