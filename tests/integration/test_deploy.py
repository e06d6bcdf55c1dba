# SPDX-License-Identifier: Apache-2.0
"""What deploy/ holds is right: the configuration is taken, the unit is neither root nor capable."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest
from agent_rig import ROOT

from hostagent.config import load_config


def test_the_example_configuration_is_taken() -> None:
    config = load_config(ROOT / "deploy" / "agent.toml")
    assert config.nic.driver == "auto"
    assert config.addresses()["h1"] == "10.0.1.1"


def test_the_unit_is_not_root_and_names_its_capabilities() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / "polyrhythm-agent.service")
    service = unit["Service"]
    assert service["User"] == "polyrhythm"
    assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == ""
    assert service["RuntimeDirectory"] == "polyrhythm"
    assert service["RestartPreventExitStatus"] == "2"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = (ROOT / "deploy" / "polyrhythm-agent.service").read_text(encoding="utf-8")
    file = tmp_path / "polyrhythm-agent.service"
    # Its program is not installed here; any that is there stands for it.
    file.write_text(unit.replace("/opt/polyrhythm/bin/polyrhythm", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False, timeout=300
    )
    assert str(file.name) not in done.stderr, done.stderr
