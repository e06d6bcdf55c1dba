# SPDX-License-Identifier: Apache-2.0
"""Reads topology files.

A file in YAML, JSON or TOML names a generator, lists the nodes, holds a whole fabric, or is one of another
program: p4lang's tutorials, containerlab, ONOS, Slurm. A file that ends in `.graphml` is a graph, in `.conf`
a `topology.conf` of Slurm, in `.csv` the `topo.csv` of Lingjun's data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

from polyrhythm_files import LARGE, Document, InvalidValueError, Loc, convert, read_document, shown
from topo.addresses import in_families
from topo.containerlab import containerlab_topology, is_containerlab
from topo.file_types import (
    GENERATED,
    KINDS,
    ExplicitFile,
    LeafSpineFile,
    ThreeTierFile,
    TutorialTopology,
    WholeTopology,
    hash_of,
)
from topo.generate import explicit, leaf_spine, rail, three_tier
from topo.graph import Tier, Topology
from topo.jsonio import whole_topology
from topo.lingjun import lingjun_topology
from topo.onos import is_onos, onos_topology
from topo.slurm import is_slurm_yaml, slurm_conf, slurm_yaml
from topo.tutorials import is_tutorial, tutorial_topology
from topo.wiring import DEFAULT_BPS, NAME_LEGAL

_KIND_NAMES = ", ".join(str(kind.__struct_config__.tag) for kind in get_args(KINDS))
_FORMS = (
    f"{_KIND_NAMES}; or the form of another program: hosts, switches and links (p4lang), topology.nodes and "
    "topology.links (containerlab), devices, hosts and links (ONOS), a list of topologies (Slurm)"
)


def load_topology(
    path: Path, *, default_bps: int = DEFAULT_BPS, fabric_bps: int | None = None, scale: float = 1.0
) -> Topology:
    """Read a topology file.

    `default_bps` is the rate of those cables to which a file of another program gives no bandwidth,
    `fabric_bps` of those among them that join switches (None: the same). The bandwidths of a tutorial's file
    count `scale` times.

    Raises:
        ConfigError: the file cannot be read, or describes no fabric; with file, line and path.
    """
    if path.suffix.lower() == ".graphml":
        # networkx takes long to import, and few files are graphs.
        from topo.export import read_graphml

        return read_graphml(path)
    name, rates = path.stem or "fabric", {"host_bps": default_bps, "fabric_bps": fabric_bps or default_bps}
    if path.suffix.lower() == ".csv":
        return lingjun_topology(path, **rates)
    if path.suffix.lower() == ".conf":
        return slurm_conf(path, **rates)
    document = read_document(path, LARGE)
    if is_slurm_yaml(document.value):
        return slurm_yaml(document, **rates)
    if is_containerlab(document.value):
        topology = containerlab_topology(document, name.removesuffix(".clab"), **rates)
    elif is_onos(document.value):
        topology = onos_topology(document, name, **rates)
    else:
        _check_form(document)
        topology = read_topology(document, (), name, default_bps=default_bps, scale=scale)
    _check_names(document, topology)
    return topology


def _check_form(document: Document) -> None:
    """Say which files are legal where one is in no form at all. Raises ConfigError."""
    value = document.value
    if not isinstance(value, Mapping):
        raise document.error((), f"{shown(value)} is wrong; legal: a table with {_FORMS}")
    if "kind" not in value and "prefixes" not in value and not is_tutorial(value):
        raise document.error((), f"kind: missing; legal: {_FORMS}")


def _check_names(document: Document, topology: Topology) -> None:
    """Raise ConfigError where a node has a name that a terminal cannot show."""
    names = (*topology.switch, *topology.host)
    bad = next((name for name in names if not name.isprintable()), None)
    if bad is not None:
        where = _place(document.value, bad)
        raise document.error(where, f"the name {shown(bad)} is wrong; {NAME_LEGAL}")


def _place(value: object, name: str) -> Loc:
    """The path of the first key or text of a value that contains a name; () if none does."""
    for key, inner in value.items() if isinstance(value, Mapping) else enumerate(_list(value)):
        if name in str(key) or (isinstance(inner, str) and name in inner):
            return (key,)
        if isinstance(inner, Mapping | list) and (below := _place(inner, name)):
            return key, *below
    return ()


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def is_foreign(value: object) -> bool:
    """Whether the value of a file is a fabric in the form of another program, which `load_topology` reads."""
    return is_slurm_yaml(value) or is_containerlab(value) or is_onos(value)


def read_topology(
    document: Document, loc: Loc, name: str, *, default_bps: int = DEFAULT_BPS, scale: float = 1.0
) -> Topology:
    """The fabric that the value at `loc` of a document describes, called `name` unless it says another name.

    `default_bps` and `scale` are as for `load_topology`.

    Raises:
        ConfigError: the value describes no fabric.
    """
    value = document.at(loc)
    if is_tutorial(value):
        tutorial = convert(document, TutorialTopology, loc)
        with document.checks(loc):
            return tutorial_topology(tutorial, name, default_bps=default_bps, scale=scale)
    if isinstance(value, Mapping) and "kind" not in value and "prefixes" in value:
        whole = convert(document, WholeTopology, loc)
        with document.checks(loc):
            return whole_topology(whole)
    given: KINDS = convert(document, KINDS, loc)  # type: ignore[arg-type]
    with document.checks(loc):
        found = _explicit(given, name) if isinstance(given, ExplicitFile) else _generated(given, name)
    own = {h.name: h.addresses for h in given.hosts} if isinstance(given, ExplicitFile) else {}
    orderless = {h.name for h in given.hosts if h.any_order} if isinstance(given, ExplicitFile) else set()
    hosts = tuple(replace(h, any_order=given.any_order or h.name in orderless) for h in found.hosts)
    return in_families(replace(found, hosts=hosts, hash=hash_of(given.hash)), given.addresses, own)


def _generated(given: GENERATED, name: str) -> Topology:
    host, fabric = _bps(given.host_gbps), _bps(given.fabric_gbps)
    name = given.name or name
    try:
        if isinstance(given, LeafSpineFile):
            return leaf_spine(
                given.leaves, given.spines, given.hosts_per_leaf, host_bps=host, fabric_bps=fabric, name=name
            )
        if isinstance(given, ThreeTierFile):
            return three_tier(
                given.pods,
                given.leaves_per_pod,
                given.spines_per_pod,
                given.cores_per_spine,
                given.hosts_per_leaf,
                host_bps=host,
                fabric_bps=fabric,
                name=name,
            )
        return rail(
            given.groups,
            given.rails,
            given.spines,
            given.servers_per_group,
            host_bps=host,
            fabric_bps=fabric,
            name=name,
        )
    except ValueError as error:
        raise InvalidValueError((), str(error)) from None


def _explicit(given: ExplicitFile, name: str) -> Topology:
    switches: dict[str, Tier] = {}
    for i, switch in enumerate(given.switches):
        if switch.name in switches:
            raise InvalidValueError(("switches", i, "name"), f"{switch.name!r} names another node already")
        switches[switch.name] = Tier(switch.tier)
    hosts: dict[str, tuple[str, str, int]] = {}
    for i, host in enumerate(given.hosts):
        if host.name in hosts or host.name in switches:
            other = "switch" if host.name in switches else "host"
            raise InvalidValueError(("hosts", i, "name"), f"{host.name!r} names a {other} already")
        if switches.get(host.leaf) is not Tier.LEAF:
            raise InvalidValueError(
                ("hosts", i, "leaf"), f"{host.leaf!r} is no leaf; legal: a switch of tier leaf"
            )
        hosts[host.name] = (host.name, host.leaf, _bps(host.gbps))
    links = []
    for i, link in enumerate(given.links):
        for key, end in (("a", link.a), ("b", link.b)):
            if end not in switches:
                raise InvalidValueError(("links", i, key), f"{end!r} is no switch; legal: a name in switches")
        if link.a == link.b:
            raise InvalidValueError(
                ("links", i), f"{link.a!r} is at both ends; legal: two different switches"
            )
        links.append((link.a, link.b, _bps(link.gbps)))
    try:
        return explicit(given.name or name, list(switches.items()), list(hosts.values()), links)
    except ValueError as error:
        raise InvalidValueError((), str(error)) from None


def _bps(gbps: float) -> int:
    return max(1, round(gbps * 1e9))
