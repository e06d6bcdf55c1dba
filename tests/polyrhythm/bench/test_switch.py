# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench switch`: what it measures is there, and what it cannot measure has its reason."""

import json
import os
import shutil

import pytest

from polyrhythm.bench import switch as bench
from polyrhythm.bench import traffic
from polyrhythm.cli import main

QUICK = ["--packets", "640", "--runs", "1", "--seconds", "0.2"]


def figures(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    assert main(["bench", "switch", "--json", *QUICK, *options]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


def test_the_pipeline_alone(capsys: pytest.CaptureFixture[str]) -> None:
    result = figures(capsys, "--no-wire")
    assert isinstance(result["pipeline_pps"], int)
    assert result["pipeline_pps"] > 0
    assert [result[name] for name in ("wire_pps", "bmv2_wire_pps", "ratio")] == [None] * 3
    assert result["wire_reason"] == "not asked for"


def test_without_root_the_wire_has_its_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.os, "geteuid", lambda: 1000)
    result = figures(capsys)
    assert result["wire_pps"] is None
    assert "need root" in str(result["wire_reason"])


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2")
def test_the_wire_carries_packets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "BMV2", "no_such_switch")
    result = figures(capsys, "--payload", "64")
    assert isinstance(result["wire_pps"], int), result
    assert result["wire_pps"] > 0
    assert result["ratio"] is None
    assert result["bmv2_wire_reason"] == "no_such_switch is not on PATH"


@pytest.mark.parametrize("option", [["--packets", "0"], ["--payload", "9000"], ["--seconds", "-1"]])
def test_options_without_sense(capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    assert main(["bench", "switch", *option]) == 2
    assert "must be" in capsys.readouterr().err


def test_the_flows_differ_in_their_source_port_only() -> None:
    frames = traffic.frames(100)
    assert len({frame[34:36] for frame in frames}) == traffic.FLOWS
    assert len({frame[:34] + frame[36:] for frame in frames}) == 1
