# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm soak` finds a process that grows, and none of ours does."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from polyrhythm.chaos.soak import growth, sample, too_much
from polyrhythm.cli import main


def samples(grown: float) -> list[dict[str, float]]:
    return [{"mib": 50 + grown * i / 100, "files": 20.0 + i % 2, "threads": 9.0} for i in range(100)]


def test_what_grows_is_told_from_noise() -> None:
    assert too_much({"a": growth(samples(0.0)), "b": growth(samples(2.0))}) == []
    (said,) = too_much({"a": growth(samples(0.0)), "b": growth(samples(30.0))})
    assert said.startswith("b has grown by 15")
    assert growth([{"mib": 1.0, "files": 2.0, "threads": 3.0}])["mib_grown"] == 0.0


GROWS = """\
import os, sys, threading
over = threading.Event()
for _ in sys.stdin:
    threading.Thread(target=over.wait, daemon=True).start()
    os.open(os.devnull, os.O_RDONLY)
    print(flush=True)
"""


def test_a_sample_is_what_the_system_says_of_a_process() -> None:
    """Of a process of its own: threads and files of the test's process come and go."""
    with subprocess.Popen(
        [sys.executable, "-c", GROWS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        samples = []
        for _ in range(2):
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
            samples.append(sample(process.pid))
        process.stdin.close()
    before, after = samples
    assert after["files"] == before["files"] + 1
    assert after["threads"] == before["threads"] + 1
    assert after["mib"] > 1


@pytest.mark.slow
@pytest.mark.alone
def test_nothing_grows_while_links_fail_and_sessions_break(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = os.environ.get("POLYRHYTHM_SOAK_S", "32")
    code = main(["soak", "--seconds", seconds, "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert (figures["what"], code) == ([], 0)
    assert figures["processes"].keys() == {"controller", "h1", "h2", "h3", "h4"}
    assert figures["answers"] > 0
