# SPDX-License-Identifier: Apache-2.0
"""The kinds of files that a person writes: for each its declared types, its schema and how it is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from polyrhythm_files import LARGE, ConfigError, json_schema, read_document


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: the module with its types, their names, and the function that reads and checks a file.

    `places` is the function of polyrhythm.file_places that checks what the file names on this machine.

    Modules are imported when a kind is used: some need numpy or gRPC.
    """

    title: str
    module: str
    types: tuple[str, ...]
    loader: tuple[str, str]
    places: str = ""

    def schema(self) -> dict[str, Any]:
        """The JSON schema of such files."""
        module = import_module(self.module)
        return json_schema([getattr(module, name) for name in self.types], self.title)

    def check(self, path: Path) -> None:
        """Read and check a file. Raises ConfigError."""
        module, name = self.loader
        load: Callable[[Path], object] = getattr(import_module(module), name)
        load(path)


FILE_KINDS: Mapping[str, FileKind] = {
    "scenario": FileKind(
        "Polyrhythm scenario",
        "polyrhythm.scenario.config",
        ("ScenarioConfig",),
        ("polyrhythm.scenario.load", "load_scenario"),
    ),
    "topology": FileKind(
        "Polyrhythm topology",
        "topo.file_types",
        (
            "LeafSpineFile",
            "ThreeTierFile",
            "RailFile",
            "ExplicitFile",
            "WholeTopology",
            "TutorialTopology",
        ),
        ("topo.files", "load_topology"),
    ),
    "fabric": FileKind(
        "Polyrhythm fabric description",
        "controller.process.config",
        ("FabricFile",),
        ("controller.process.config", "load_fabric"),
        "fabric_places",
    ),
    "agent": FileKind(
        "Polyrhythm host agent",
        "hostagent.config",
        ("Config",),
        ("hostagent.config", "load_config"),
        "agent_places",
    ),
    "interleave": FileKind(
        "Polyrhythm links and jobs to interleave",
        "polyrhythm.interleave_file",
        ("InterleaveFile",),
        ("polyrhythm.interleave_file", "load_interleave_task"),
    ),
    "jobs": FileKind(
        "Polyrhythm jobs by their collectives and parallelism",
        "polyrhythm.jobs_file",
        ("JobsFile",),
        ("polyrhythm.jobs_file", "load_jobs"),
    ),
    "placement": FileKind(
        "Polyrhythm candidate placements of a job",
        "polyrhythm.placement_file",
        ("PlacementFile",),
        ("polyrhythm.placement_file", "load_placement_task"),
    ),
    "priority": FileKind(
        "Polyrhythm links and jobs to order by priority",
        "polyrhythm.priority_file",
        ("PriorityFile",),
        ("polyrhythm.priority_file", "load_priority_task"),
    ),
    "sweep": FileKind(
        "Polyrhythm simulations of every combination",
        "polyrhythm.sweep.file",
        ("SweepFile",),
        ("polyrhythm.sweep.file", "load_sweep"),
    ),
    "tokens": FileKind(
        "Polyrhythm tokens of the REST API",
        "controller.northbound.tokens",
        ("TokensFile",),
        ("controller.northbound.tokens", "load_tokens"),
    ),
}


def kind_of(path: Path) -> str:
    """The kind of a file, by its keys.

    Raises:
        ConfigError: the file cannot be read, or its keys are those of no kind.
    """
    if path.suffix.lower() in (".graphml", ".csv", ".conf"):
        return "topology"
    from topo.files import is_foreign

    document = read_document(path, LARGE)
    if is_foreign(document.value):
        return "topology"
    value = document.value if isinstance(document.value, dict) else {}
    if "agent" in value:
        return "agent"
    if "fabric" in value:
        return "scenario"
    if "topology" in value or "ecn" in value:
        return "fabric"
    if "kind" in value or "prefixes" in value or ("hosts" in value and "links" in value):
        return "topology"
    if "tokens" in value:
        return "tokens"
    if "traces" in value:
        return "sweep"
    if "scenario" in value:
        return "placement"
    if "jobs" in value and "links" in value:
        return "interleave" if isinstance(value["links"], list) else "priority"
    if "jobs" in value:
        return "jobs"
    raise document.error((), f"the kind of file is not clear; legal for --kind: {', '.join(FILE_KINDS)}")


def check_file(path: Path, kind: str | None = None) -> str:
    """Read and check a file of a kind, or of the kind that its keys show; returns the kind.

    Raises:
        ConfigError: with file, line and path of the first mistake.
    """
    if kind is not None and kind not in FILE_KINDS:
        raise ConfigError(f"{kind}: no kind of file; legal: {', '.join(FILE_KINDS)}")
    found = kind or kind_of(path)
    FILE_KINDS[found].check(path)
    return found


def missing_places(path: Path, kind: str) -> list[ConfigError]:
    """The sockets, folders and files that a legal file of a kind names, and that are not on this machine.

    Raises ConfigError if the file is not legal.
    """
    name = FILE_KINDS[kind].places
    if not name:
        return []
    check: Callable[[Path], list[ConfigError]] = getattr(import_module("polyrhythm.file_places"), name)
    return check(path)
