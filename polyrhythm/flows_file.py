# SPDX-License-Identifier: Apache-2.0
"""The flows of `polyrhythm route`, from a CSV file or from a file of jobs."""

from __future__ import annotations

import csv
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from controller.routing.fabric import Floats
from polyrhythm.jobs_file import load_job_flows
from topo.addresses import is_ipv6
from topo.graph import Host, Topology

MAX_FLOWS = 1_000_000

Flow = tuple[Host, Host]


class RouteError(ValueError):
    """The flows cannot be routed. The message is one line for the user and names the row."""


@dataclass(frozen=True, slots=True)
class Flows:
    """The flows of a file: the names of their ends, their NICs, their weights, and the words that name each
    in a message. `of_jobs`: each flow has a name of its own.
    """

    names: list[tuple[str, str]]
    nics: list[Flow]
    weights: Floats
    words: list[str]
    of_jobs: bool = False


def read_flows(path: Path, topology: Topology) -> Flows:
    """Read the flows of a CSV file. A first row `src,dst[,weight]` is a header.

    A host with several NICs uses them round-robin; its peer uses the NIC on the same rail.

    Raises:
        RouteError: a row is not legal; the message has its number, counted from 1.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _read(file, path, topology)
    except OSError as error:
        raise RouteError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RouteError(f"{path}: not UTF-8 text") from None


def read_jobs(path: Path, topology: Topology) -> Flows:
    """The flows of a file of jobs. The weights are bytes of an iteration, as parts of the largest flow's.

    Raises:
        ConfigError: the file is not legal, or a job does not fit the fabric.
    """
    flows = load_job_flows(path, topology, MAX_FLOWS)
    sizes = np.array([f.bytes for f in flows], float)
    ends = [f.ends for f in flows]
    names = [(a.name, b.name) for a, b in ends]
    return Flows(names, ends, sizes / sizes.max(), [f.name for f in flows], of_jobs=True)


def _read(file: TextIO, path: Path, topology: Topology) -> Flows:
    names: list[tuple[str, str]] = []
    nics: list[Flow] = []
    weights: list[float] = []
    words: list[str] = []
    next_rail: Counter[str] = Counter()
    reader = csv.reader(file, skipinitialspace=True)
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            where = f"{path}: row {reader.line_num}"
            first = not words and reader.line_num == 1
            if not any(cells) or (first and [c.lower() for c in cells[:2]] == ["src", "dst"]):
                continue
            if len(cells) not in (2, 3):
                raise RouteError(f"{where}: src,dst or src,dst,weight is needed, not {len(cells)} columns")
            if len(words) == MAX_FLOWS:
                raise RouteError(f"{where}: more than {MAX_FLOWS} flows; split the file")
            a, b = _ends(cells[0], cells[1], topology, next_rail, where)
            if is_ipv6(a.ip) != is_ipv6(b.ip):
                raise RouteError(f"{where}: {a.name} and {b.name} have addresses of two families")
            nics.append((a, b))
            names.append((cells[0], cells[1]))
            weights.append(_weight(cells[2], where) if len(cells) == 3 else 1.0)
            words.append(f"row {reader.line_num}")
    except csv.Error as error:
        raise RouteError(f"{path}: row {reader.line_num}: {error}") from None
    return Flows(names, nics, np.array(weights), words)


def _ends(src: str, dst: str, topology: Topology, next_rail: Counter[str], where: str) -> Flow:
    if src in topology.host and dst in topology.host and src != dst:
        return topology.host[src], topology.host[dst]
    found: list[tuple[Host, ...]] = []
    for name in (src, dst):
        if name in topology.host:
            found.append((topology.host[name],))
        elif name in topology.machines:
            found.append(topology.machines[name])
        else:
            raise RouteError(f"{where}: the fabric has no host {name!r}")
    if src == dst:
        raise RouteError(f"{where}: {src} is both source and destination")
    rail = next_rail[src]
    next_rail[src] += 1
    return found[0][rail % len(found[0])], found[1][rail % len(found[1])]


def _weight(word: str, where: str) -> float:
    try:
        weight = float(word)
    except ValueError:
        raise RouteError(f"{where}: weight {word!r} is no number") from None
    if not (math.isfinite(weight) and weight > 0):
        raise RouteError(f"{where}: weight {word} is not positive and finite")
    return weight
