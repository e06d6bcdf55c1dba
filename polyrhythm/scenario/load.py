# SPDX-License-Identifier: Apache-2.0
"""Reads a scenario file and says what is wrong with it by file, line, path and legal values."""

from __future__ import annotations

import json
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from polyrhythm.scenario.config import ExplicitConfig, FileConfig, LeafSpineConfig, ScenarioConfig
from polyrhythm.scenario.domain import Scenario, build
from polyrhythm_files import ConfigError, InvalidValueError
from topo.files import load_topology
from topo.graph import Topology

Loc = tuple[str | int, ...]

MAX_FILE_BYTES = 4 << 20
# Aliases repeat what they name: a few lines of YAML can stand for more values than there is memory for.
MAX_VALUES = 200_000

_KINDS = tuple(
    get_args(model.model_fields["kind"].annotation)[0]
    for model in (LeafSpineConfig, ExplicitConfig, FileConfig)
)


def scenario_path(name: str) -> Path:
    """The file of a scenario: a path as it is, or the name of one that we ship."""
    path = Path(name)
    if path.suffix in {".yaml", ".yml", ".json"} or path.exists():
        return path
    shipped = Path(__file__).parent.parent / "scenarios"
    candidate = shipped / f"{name}.yaml"
    if not candidate.exists():
        known = ", ".join(sorted(p.stem for p in shipped.glob("*.yaml")))
        raise ConfigError(f"{name}: no such scenario file; the ones that come along are: {known}")
    return candidate


def load_scenario(path: Path) -> Scenario:
    """Reads, validates and builds a scenario.

    Raises:
        ConfigError: the file cannot be read or is not a legal scenario.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, which no scenario is")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        lines: dict[Loc, int] = {}
        data = _plain(root, (), lines, path)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}:1: not YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}:1: nested too deeply") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: a scenario is a mapping of {_keys(ScenarioConfig)}")
    try:
        config = ScenarioConfig.model_validate(data)
        return build(config, _fabric_file(config, path))
    except ValidationError as error:
        raise ConfigError(_explain(path, lines, data, error)) from error
    except InvalidValueError as problem:
        raise ConfigError(
            f"{path}:{_line(lines, problem.loc)}: {_dotted(problem.loc)}: {problem.message}"
        ) from problem


def write_on(path: Path, topology: Path, out: Path) -> None:
    """Write the scenario of `path` as JSON to `out`, with the fabric of a topology file instead of its own.

    Cables to which the file gives no rate get that of the first host of the scenario's own fabric.

    Raises:
        ConfigError: `path` is no legal scenario.
    """
    own = load_scenario(path)
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    gbps = own.topology.hosts[0].rate_bps * own.scale / 1e9
    data["fabric"] = {"kind": "file", "path": str(topology.resolve()), "gbps": gbps}
    out.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _fabric_file(config: ScenarioConfig, path: Path) -> Topology | None:
    """The fabric of the file that a scenario names, if it names one."""
    fabric = config.fabric
    if not isinstance(fabric, FileConfig):
        return None
    try:
        return load_topology(
            path.parent / fabric.path, default_bps=round(fabric.gbps * 1e9), scale=config.scale
        )
    except ConfigError as error:
        raise InvalidValueError(("fabric", "path"), str(error)) from None


def _plain(node: yaml.Node | None, loc: Loc, lines: dict[Loc, int], path: Path) -> Any:
    """The node as plain Python data; `lines` learns the line of every path."""
    if node is None:
        return None
    lines[loc] = node.start_mark.line + 1
    if len(lines) > MAX_VALUES:
        raise ConfigError(f"{path}:{lines[loc]}: more than {MAX_VALUES:,} values, which no scenario has")
    if isinstance(node, yaml.MappingNode):
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = _plain(key_node, (*loc, "key"), lines, path) if key_node else None
            if not isinstance(key, str):
                raise ConfigError(f"{path}:{key_node.start_mark.line + 1}: keys are words, not {key!r}")
            if key in mapping:
                where = _dotted((*loc, key))
                raise ConfigError(f"{path}:{key_node.start_mark.line + 1}: {where}: said twice")
            mapping[key] = _plain(value_node, (*loc, key), lines, path)
            lines[(*loc, key)] = key_node.start_mark.line + 1
        return mapping
    if isinstance(node, yaml.SequenceNode):
        # A tuple, for the configuration is frozen and read strictly.
        return tuple(_plain(child, (*loc, i), lines, path) for i, child in enumerate(node.value))
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (ValueError, KeyError, AttributeError):
        # What YAML's own types make of words that look like theirs: the 31st of June, !!int x.
        kind = node.tag.rpartition(":")[2]
        raise ConfigError(f"{path}:{lines[loc]}: {_dotted(loc)}: {_shown(node.value)} is no {kind}") from None


def _line(lines: dict[Loc, int], loc: Loc) -> int:
    while loc and loc not in lines:
        loc = loc[:-1]
    return lines.get(loc, 1)


def _dotted(loc: Loc) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "(the file)"


def _shown(value: object) -> str:
    """A value of the file for a message, cut where it is long."""
    # Whole numbers of thousands of digits have no decimal form in Python.
    text = hex(value) if isinstance(value, int) and value.bit_length() > 256 else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _keys(model: type[BaseModel]) -> str:
    return ", ".join(model.model_fields)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in {Union, UnionType, tuple} or get_origin(annotation) is not None:
        return [m for arg in get_args(annotation) for m in _models(arg)]
    return []


def _model_at(loc: Loc, data: Any) -> type[BaseModel] | None:
    """The model that reads the mapping at `loc`; a union is told by its `kind`."""
    model: type[BaseModel] | None = ScenarioConfig
    for part in loc:
        data = data[part]
        if isinstance(part, int) or model is None:
            continue
        candidates = _models(model.model_fields[part].annotation)
        fitting = [
            m
            for m in candidates
            if "kind" not in m.model_fields
            or (isinstance(data, dict) and data.get("kind") in get_args(m.model_fields["kind"].annotation))
        ]
        model = fitting[0] if fitting else None
    return model


def _explain(path: Path, lines: dict[Loc, int], data: Any, error: ValidationError) -> str:
    # A misspelt key is both unknown and missing: naming the unknown one helps more.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    # A discriminated union puts its tag into the location, where the file has no such level.
    told: Loc = first["loc"]
    loc: Loc = tuple(p for i, p in enumerate(told) if p not in _KINDS or p in told[:i])
    kind = first["type"]
    if kind == "extra_forbidden":
        model = _model_at(loc[:-1], data)
        legal = f"; legal keys: {_keys(model)}" if model else ""
        message = f"unknown key{legal}"
    elif kind == "missing":
        model = _model_at(loc[:-1], data)
        message = f"missing; needed beside {_keys(model)}" if model else "missing"
    elif kind == "union_tag_not_found":
        loc, message = (*loc, "kind"), f"missing; legal: {', '.join(_KINDS)}"
    elif kind == "union_tag_invalid":
        loc = (*loc, "kind")
        message = f"{_shown(first['ctx']['tag'])} is not legal; legal: {', '.join(_KINDS)}"
    else:
        given = first["input"]
        shown = f" (it says {_shown(given)})" if isinstance(given, str | int | float | bool) else ""
        # Lists are read as tuples, mappings as models; a file has neither.
        words = first["msg"].replace("valid tuple", "list").replace("Tuple", "List")
        words = words.removesuffix(" or object to extract fields from").replace("valid dictionary", "mapping")
        message = words[0].lower() + words[1:] + shown
    return f"{path}:{_line(lines, loc)}: {_dotted(loc)}: {message}"
