# SPDX-License-Identifier: Apache-2.0
"""The cluster of Alibaba's Lingjun data set (CRUX): `topo.csv`."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from polyrhythm_files import LARGE, ConfigError, read_text, shown
from topo.generate import explicit
from topo.graph import Tier, Topology
from topo.wiring import NAME_LEGAL

COLUMNS = ("ip", "DSW", "PSW", "ASW")
# The core above the cores of all groups.
_TOP = "core-all"


def lingjun_topology(path: Path, *, host_bps: int, fabric_bps: int) -> Topology:
    """The three-tier cluster of a file with a row for each host: its address and the labels of its switches.

    There is a leaf for each (DSW, PSW, ASW), an aggregation switch for each (DSW, PSW) and a core for each
    DSW, joined by one link each; cores of different groups are joined by one core above, which the file does
    not name. Host i is named h<i> in the order of the file.

    Raises:
        ConfigError: with file, line and column.
    """
    switches: dict[str, Tier] = {}
    links: dict[tuple[str, str], int] = {}
    hosts: list[tuple[str, str, int]] = []
    seen: dict[str, int] = {}
    below: dict[str, int] = {}
    labelled: dict[str, tuple[str, ...]] = {}
    for line, row in _rows(path):
        host = row["ip"]
        if host in seen:
            raise ConfigError(f"{path}:{line}: ip: {shown(host)} is in line {seen[host]} too; legal: once")
        seen[host] = line
        core, pod, leaf = row["DSW"], row["PSW"], row["ASW"]
        labels = (core, pod, leaf)
        core, pod, leaf = f"core-{core}", f"agg-{core}-{pod}", f"leaf-{core}-{pod}-{leaf}"
        for name, count in ((pod, 2), (leaf, 3)):
            if labelled.setdefault(name, labels[:count]) != labels[:count]:
                raise ConfigError(
                    f"{path}:{line}: the name {shown(name)} is that of other labels too; legal: labels that "
                    "differ when they are joined by hyphens"
                )
        switches |= {leaf: Tier.LEAF, pod: Tier.SPINE, core: Tier.CORE}
        links[leaf, pod] = links[pod, core] = fabric_bps
        below[leaf] = below.get(leaf, 0) + 1
        if below[leaf] > 253:
            raise ConfigError(f"{path}:{line}: ASW: {shown(row['ASW'])} has more hosts; legal: at most 253")
        hosts.append((f"h{len(hosts) + 1}", leaf, host_bps))
    if not hosts:
        raise ConfigError(f"{path}:1: it holds no hosts; legal: a row {','.join(COLUMNS)} for each")
    cores = [s for s, tier in switches.items() if tier is Tier.CORE]
    if len(cores) > 1:
        if _TOP in switches:
            raise ConfigError(f"{path}: DSW: 'all' names the core above all groups; legal: another label")
        pods = [s for s, tier in switches.items() if tier is Tier.SPINE]
        switches[_TOP] = Tier.CORE
        links |= {(pod, _TOP): fabric_bps for pod in pods}
    return explicit(
        "lingjun", list(switches.items()), hosts, [(a, b, rate) for (a, b), rate in links.items()]
    )


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """(line, cells by column) of each row."""
    reader = csv.DictReader(read_text(path, LARGE.max_bytes).splitlines(), strict=True)
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = header
        missing = [name for name in COLUMNS if header.count(name) != 1]
        if missing:
            raise ConfigError(
                f"{path}:1: no column {', '.join(missing)}, or more than one; legal: the columns "
                f"{', '.join(COLUMNS)}"
            )
        for row in reader:
            cells = {name: (row[name] or "").strip() for name in COLUMNS}
            empty = next((name for name in COLUMNS if not cells[name]), None)
            if empty is not None or None in row:
                what = f"{empty}: is empty" if empty else f"{len(header) + len(row[None])} cells"
                raise ConfigError(f"{path}:{reader.line_num}: {what}; legal: a cell for each column")
            if odd := next((name for name in COLUMNS if not cells[name].isprintable()), None):
                raise ConfigError(
                    f"{path}:{reader.line_num}: {odd}: {shown(cells[odd])} is wrong; {NAME_LEGAL}"
                )
            yield reader.line_num, cells
    except csv.Error as error:
        raise ConfigError(f"{path}:{reader.reader.line_num}: not CSV: {error}") from None
