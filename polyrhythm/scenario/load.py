# SPDX-License-Identifier: Apache-2.0
"""Finds, reads and checks scenario files."""

from __future__ import annotations

import json
from pathlib import Path

from polyrhythm.scenario.build import Scenario, build
from polyrhythm.scenario.config import FileConfig, ScenarioConfig
from polyrhythm_files import SUFFIXES, ConfigError, InvalidValueError, convert, read_document
from topo.files import load_topology
from topo.graph import Topology

_SHIPPED = Path(__file__).parent.parent / "scenarios"


def scenario_path(name: str) -> Path:
    """The file of a scenario: `name` is a path, or the name of a scenario that we ship.

    Raises:
        ConfigError: no such scenario is shipped.
    """
    path = Path(name)
    if path.suffix.lower() in SUFFIXES or path.exists():
        return path
    candidate = _SHIPPED / f"{name}.yaml"
    if not candidate.exists():
        known = ", ".join(sorted(p.stem for p in _SHIPPED.glob("*.yaml")))
        raise ConfigError(f"{name}: no such scenario; legal: a file, or one of those that we ship: {known}")
    return candidate


def load_scenario(path: Path) -> Scenario:
    """Read, check and build a scenario.

    Raises:
        ConfigError: the file cannot be read or is no legal scenario.
    """
    document = read_document(path)
    config = convert(document, ScenarioConfig)
    with document.checks():
        return build(config, _fabric_file(config, path))


def write_on(path: Path, topology: Path, out: Path) -> None:
    """Write the scenario of `path` as JSON to `out`, with the fabric of a topology file instead of its own.

    Cables without a rate in the topology file get that of the first host of the scenario's own fabric.

    Raises:
        ConfigError: `path` is no legal scenario.
    """
    own = load_scenario(path)
    data = read_document(path).value
    gbps = own.topology.hosts[0].rate_bps * own.scale / 1e9
    data["fabric"] = {"kind": "file", "path": str(topology.resolve()), "gbps": gbps}
    out.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _fabric_file(config: ScenarioConfig, path: Path) -> Topology | None:
    """The fabric of the topology file that a scenario names, if it names one."""
    fabric = config.fabric
    if not isinstance(fabric, FileConfig):
        return None
    try:
        return load_topology(
            path.parent / fabric.path, default_bps=round(fabric.gbps * 1e9), scale=config.scale
        )
    except ConfigError as error:
        raise InvalidValueError(("fabric", "path"), str(error)) from None
