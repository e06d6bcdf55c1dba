# SPDX-License-Identifier: Apache-2.0
"""Slurm's description of the network as a fabric: `topology.conf` and `topology.yaml`.

https://slurm.schedmd.com/topology.conf.html and topology.yaml.html: switches by name, each with the nodes or
the switches below it. Slurm knows a tree, so a switch has one cable to the switch above it. The files have no
rates (`LinkSpeed` is for people to read) and no ports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from polyrhythm_files import LARGE, ConfigError, Document, InvalidValueError, Loc, read_text, shown
from topo.generate import explicit
from topo.graph import Topology
from topo.wiring import MAX_NICS, NAME_LEGAL, inferred_tiers

MOST_NAMES = 200_000
"""Names of one list of hosts. Chosen: as in a topology file."""
_KEYS = ("SwitchName", "Nodes", "Switches", "LinkSpeed")
_MOST_DIGITS = 18
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_PAIR = re.compile(r"(\w+)=(\S+)")
_BLOCKS = "blocks have no switches; legal: a tree (topology/tree)"


@dataclass(frozen=True, slots=True)
class _Row:
    """A switch of a file, what is below it, and where the file says so."""

    name: str
    nodes: Sequence[str]
    children: Sequence[str]
    loc: Loc


def expanded(text: str) -> list[str]:
    """The names of a Slurm host list: `n[01-03,7],gpu4` is n01, n02, n03, n7 and gpu4.

    Raises:
        ValueError: brackets or ranges that are no list of names, or more than MOST_NAMES names.
    """
    found: list[str] = []
    for word in _words(text):
        parts = re.split(r"\[([^\[\]]*)\]", word)
        if any(c in part for part in parts[::2] for c in "[]") or not word.strip():
            raise ValueError(f"{shown(word)} is no list of names; legal: names such as n1 and n[01-16,20]")
        lists = [list(_numbers(part)) if i % 2 else [part] for i, part in enumerate(parts)]
        for combined in product(*lists):
            found.append("".join(combined))
            if len(found) > MOST_NAMES:
                raise ValueError(f"{shown(word)} has too many names; legal: at most {MOST_NAMES:,}")
    return found


def slurm_conf(path: Path, *, host_bps: int, fabric_bps: int) -> Topology:
    """The fabric of a `topology.conf`, with these rates.

    Raises:
        ConfigError: with file and line.
    """
    rows = []
    for line, text in _lines(read_text(path, LARGE.max_bytes)):
        try:
            rows.append(_conf_row(text, line))
        except ValueError as error:
            raise ConfigError(f"{path}:{line}: {error}") from None
    try:
        return _fabric(rows, path.stem, host_bps, fabric_bps)
    except InvalidValueError as error:
        where = error.loc[0] if error.loc else 1
        raise ConfigError(f"{path}:{where}: {error.message}") from None


def is_slurm_yaml(value: object) -> bool:
    """Whether the value of a file looks like a `topology.yaml`: a list of named topologies."""
    return isinstance(value, list) and bool(value) and all(
        isinstance(item, Mapping) and "topology" in item for item in value
    )  # fmt: skip


def slurm_yaml(document: Document, *, host_bps: int, fabric_bps: int) -> Topology:
    """The fabric of a `topology.yaml`: of its default topology, or the first tree.

    Raises:
        ConfigError: with file, line and path.
    """
    with document.checks():
        index, chosen = _chosen(document.value)
        loc: Loc = (index, "tree", "switches")
        rows = _yaml_rows(chosen["tree"], loc)
        return _fabric(rows, str(chosen["topology"]), host_bps, fabric_bps)


def _chosen(topologies: Sequence[Mapping[str, Any]]) -> tuple[int, Mapping[str, Any]]:
    """The topology that Slurm uses by default, if it is a tree; else the first tree."""
    trees = [(i, item) for i, item in enumerate(topologies) if "tree" in item]
    if trees:
        return next((found for found in trees if found[1].get("cluster_default") is True), trees[0])
    blocks = next((i for i, item in enumerate(topologies) if "block" in item), None)
    if blocks is not None:
        raise InvalidValueError((blocks, "block"), _BLOCKS)
    raise InvalidValueError((0,), "no topology is a tree; legal: a key `tree` (topology/tree)")


def _yaml_rows(tree: object, loc: Loc) -> list[_Row]:
    switches = tree.get("switches") if isinstance(tree, Mapping) else None
    if not isinstance(switches, list):
        raise InvalidValueError(loc[:2], "has no switches; legal: a list `switches`")
    rows = []
    for i, item in enumerate(switches):
        at = (*loc, i)
        if not isinstance(item, Mapping) or not isinstance(item.get("switch"), str):
            raise InvalidValueError(
                at, f"{shown(item)} is wrong; legal: a table with switch, and nodes or children"
            )
        unknown = next((key for key in item if key not in ("switch", "nodes", "children")), None)
        if unknown is not None:
            raise InvalidValueError((*at, str(unknown)), "unknown key; legal: switch, nodes, children")
        lists = {key: _names(item.get(key), (*at, key)) for key in ("nodes", "children")}
        rows.append(_Row(item["switch"], lists["nodes"], lists["children"], at))
    return rows


def _names(value: object, loc: Loc) -> list[str]:
    if value is None or value == "":
        return []
    try:
        if isinstance(value, str):
            return expanded(value)
        raise ValueError(f"{shown(value)} is wrong; legal: a list of names as text, such as n[01-16]")
    except ValueError as error:
        raise InvalidValueError(loc, str(error)) from None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, text) of each line that is not empty, without comments; `\\` continues a line."""
    start, joined = 0, ""
    for number, whole in enumerate([*text.splitlines(), ""], start=1):
        line = whole.partition("#")[0].rstrip()
        start = start or number
        joined += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if joined.strip():
            yield start, joined.strip()
        start, joined = 0, ""


def _conf_row(text: str, line: int) -> _Row:
    """A line of topology.conf. Raises ValueError."""
    values: dict[str, str] = {}
    for word in text.split():
        matched = _PAIR.fullmatch(word)
        if matched is None:
            raise ValueError(f"{shown(word)} is wrong; legal: KEY=VALUE")
        if matched[1].lower() in ("blockname", "blocksizes"):
            raise ValueError(f"{matched[1]}: {_BLOCKS}")
        key = next((k for k in _KEYS if k.lower() == matched[1].lower()), None)
        if key is None or key in values:
            what = "is there twice" if key else "unknown key"
            raise ValueError(f"{matched[1]}: {what}; legal: {', '.join(_KEYS)}, once each")
        values[key] = matched[2]
    if "SwitchName" not in values:
        raise ValueError("SwitchName is missing; legal: a switch in each line")
    if ("Nodes" in values) == ("Switches" in values):
        raise ValueError(f"{values['SwitchName']}: legal: either Nodes or Switches")
    nodes, children = (expanded(values[k]) if k in values else [] for k in ("Nodes", "Switches"))
    return _Row(values["SwitchName"], nodes, children, (line,))


def _fabric(rows: Sequence[_Row], name: str, host_bps: int, fabric_bps: int) -> Topology:
    switches: dict[str, Loc] = {}
    for row in rows:
        if bad := next((n for n in (row.name, *row.nodes) if not n.isprintable()), None):
            raise InvalidValueError(row.loc, f"the name {shown(bad)} is wrong; {NAME_LEGAL}")
        if row.name in switches:
            raise InvalidValueError(row.loc, f"switch {row.name} is there already; legal: once")
        switches[row.name] = row.loc
    hosts: dict[str, tuple[str, str, int]] = {}
    above: dict[str, str] = {}
    links: list[tuple[str, str, int]] = []
    for row in rows:
        for node in row.nodes:
            if node in hosts or node in switches:
                other = f"below {hosts[node][1]}" if node in hosts else "a switch"
                raise InvalidValueError(row.loc, f"node {node} is {other} already; legal: below one switch")
            hosts[node] = node, row.name, host_bps
        if len(row.nodes) > MAX_NICS:
            raise InvalidValueError(
                row.loc, f"{row.name} has {len(row.nodes)} nodes; legal: at most {MAX_NICS}"
            )
        for child in row.children:
            if child not in switches:
                raise InvalidValueError(row.loc, f"{child} is no switch; legal: a name in the file")
            if child in above or child == row.name:
                raise InvalidValueError(
                    row.loc,
                    f"switch {child} is below {above.get(child, child)} already; legal: below one switch",
                )
            above[child] = row.name
            links.append((child, row.name, fabric_bps))
    if not hosts:
        raise InvalidValueError((), "no switch has nodes; legal: one or more")
    leaves = dict.fromkeys(leaf for _, leaf, _ in hosts.values())
    tiers = inferred_tiers(switches, leaves, [(a, b) for a, b, _ in links])
    return explicit(name, list(tiers.items()), list(hosts.values()), links)


def _words(text: str) -> Iterable[str]:
    """The parts of a list between the commas outside of brackets."""
    return re.split(r",(?![^\[]*\])", text)


def _numbers(text: str) -> Iterator[str]:
    """The numbers of a bracket, `01-03,7`, with the zeros in front. Raises ValueError."""
    for part in text.split(","):
        matched = _RANGE.fullmatch(part.strip())
        first, last = (matched[1], matched[2] or matched[1]) if matched else ("", "")
        short = matched is not None and max(len(first), len(last)) <= _MOST_DIGITS
        if not short or not 0 <= int(last) - int(first) < MOST_NAMES:
            raise ValueError(f"[{shown(text)[1:-1]}] is wrong; legal: numbers and ranges such as 01-16,20")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
