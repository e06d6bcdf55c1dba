# SPDX-License-Identifier: Apache-2.0
"""What deploy/ holds is right: the configuration is taken, the unit is neither root nor capable."""

from __future__ import annotations

import configparser

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
