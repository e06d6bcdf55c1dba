# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench agent` runs to its end and says what it promises; how quick it is, nobody asserts here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from agent_rig import ROOT, environment


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "polyrhythm", "bench", "agent", *options],
        capture_output=True, text=True, timeout=900, cwd=ROOT, env=environment(), check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_bench_reports_every_figure_and_late_answers_do_not_end_it() -> None:
    done = bench("--json", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(said) >= {"rss_mib", "cpu_percent", "new_flow_p99_ms", "flows_per_second"}
    assert (said["new_flows"], said["flows"]) == (200, 100)
    assert 0 < said["new_flow_median_ms"] <= said["new_flow_p99_ms"]
    assert 0 <= said["unanswered"] <= said["late_answers"] <= said["new_flows"]
    assert 10 < said["rss_mib"] < 60


def test_a_length_that_makes_no_sense_is_refused() -> None:
    done = bench("--seconds", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "polyrhythm bench agent: --seconds 0.0; legal: 0.5 to 600\n"
