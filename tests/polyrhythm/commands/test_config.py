# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm config`: legal files, mistakes with their place, and schemas."""

import json
from pathlib import Path

import pytest

from polyrhythm.cli import main
from polyrhythm.scenario import scenario_path


def test_files_are_checked_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = scenario_path("two_vgg19")
    bad = tmp_path / "bad.yaml"
    bad.write_text(good.read_text().replace("period_ms: 260", "perod_ms: 260", 1))
    odd = tmp_path / "odd.toml"
    odd.write_text("colour = 1\n")
    assert main(["config", "check", str(good)]) == 0
    assert main(["config", "check", str(bad), str(odd), str(good)]) == 2
    out, err = capsys.readouterr()
    assert out == f"{good}: a legal scenario file\n" * 2
    first, second = err.splitlines()
    assert first.startswith(f"{bad}:12: jobs[0].perod_ms: unknown key (is period_ms meant?); legal: name")
    assert second.startswith(f"{odd}:1: the kind of file is not clear; legal for --kind: scenario")
    assert main(["config", "check", "--kind", "agent", str(odd)]) == 2
    assert f"{odd}:1: colour: unknown key; legal: agent, tls" in capsys.readouterr().err


def test_schemas_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema", "priority"]) == 0
    assert json.loads(capsys.readouterr().out)["required"] == ["links", "jobs"]
