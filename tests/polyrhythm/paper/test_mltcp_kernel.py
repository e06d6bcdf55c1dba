# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm paper mltcp --kernel`: two jobs over the kernel's TCP."""

from __future__ import annotations

import os

import pytest

from hostagent.kernel_mltcp import NAME, KernelMltcpError
from polyrhythm.cli import main
from polyrhythm.paper.mltcp_kernel import SETTLED, TwoJobs, check_needs, measure, summary, to_text


def test_jobs_are_interleaved_from_the_iteration_after_the_last_long_one() -> None:
    short = [100.0] * SETTLED
    assert summary([[150, 140, *short], [100, 111, *short]], 100)["interleaved_after"] == 2
    assert summary([[150, 140, *short], [100, 120, 120, *short[1:]]], 100)["interleaved_after"] is None
    assert summary([short, short], 100)["interleaved_after"] == 0
    found = summary([[150.04, *short], [130, *short]], 100)
    assert (found["mean_ms"], found["settled_ms"]) == (106.7, 100.0)
    assert found["iterations_ms"][0][0] == 150.0


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("polyrhythm.paper.mltcp_kernel.TOOLS", {})
    assert main(["paper", "mltcp", "--kernel"]) == 1
    assert "only root" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.alone
def test_on_the_kernels_tcp_mltcp_separates_two_jobs_and_reno_does_not() -> None:
    try:
        check_needs()
    except KernelMltcpError as error:
        pytest.skip(str(error))
    # Half the default's times. Now and then Reno's jobs part by chance too, or the machine stands still.
    for delay_ms in (40.0, 60.0, 30.0):
        report = measure(TwoJobs(14, sent_bytes=1_200_000, compute_ms=300.0, offset_ms=delay_ms))
        reno, ours = report["controls"]["reno"], report["controls"][NAME]
        if ours["settled_ms"] < reno["settled_ms"] and report["speedup_mean"] > 1:
            break
    assert ours["settled_ms"] < reno["settled_ms"]
    assert report["speedup_mean"] > 1
    text = to_text(report)
    assert "reno a" in text
    assert len(text.splitlines()) == 2 + 14 + 2
