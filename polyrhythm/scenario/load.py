# SPDX-License-Identifier: Apache-2.0
"""Finds, reads and checks scenario files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from controller.model import Job
from polyrhythm.scenario.build import Scenario, build
from polyrhythm.scenario.config import FileConfig, ScenarioConfig
from polyrhythm_files import SUFFIXES, ConfigError, InvalidValueError, convert, listed, read_document
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


def load_scenario(path: Path, scale: float | None = None) -> Scenario:
    """Read, check and build a scenario. `scale` replaces that of the file.

    Raises:
        ConfigError: the file cannot be read or is no legal scenario.
    """
    document = read_document(path)
    config = convert(document, ScenarioConfig)
    if scale is not None:
        config = replace(config, scale=scale)
    with document.checks():
        return build(config, _fabric_file(config, path))


def load_placements(
    path: Path, job: str, candidates: Sequence[tuple[str, ...]]
) -> tuple[Scenario, tuple[Job, ...]]:
    """The scenario of `path`, and its job `job` once for each candidate, a list of other hosts for it.

    Raises:
        ConfigError: `path` is no legal scenario.
        InvalidValueError: ("job",): the scenario has no such job; ("candidates", i, ...): candidate i is not
            legal.
    """
    document = read_document(path)
    config = convert(document, ScenarioConfig)
    with document.checks():
        fabric = _fabric_file(config, path)
        scenario = build(config, fabric)
    own = next((j for j in config.jobs if j.name == job), None)
    if own is None:
        legal = listed([j.name for j in config.jobs])
        raise InvalidValueError(("job",), f"{job!r} is no job of {path}; legal: {legal}")
    jobs = []
    for i, hosts in enumerate(candidates):
        if len(hosts) != len(own.hosts):
            raise InvalidValueError(
                ("candidates", i), f"{len(hosts)} hosts; legal: {len(own.hosts)}, as job {job} has"
            )
        there = replace(config, jobs=(replace(own, hosts=hosts),))
        try:
            jobs.append(build(there, fabric).workloads[0].job)
        except InvalidValueError as error:
            at = error.loc[3:] if error.loc[:3] == ("jobs", 0, "hosts") else ()
            raise InvalidValueError(("candidates", i, *at), error.message) from None
    return scenario, tuple(jobs)


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
