# SPDX-License-Identifier: Apache-2.0
"""From the key `fabric` of a scenario file to the emulated fabric."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from polyrhythm.scenario.config import ExplicitConfig, FileConfig, ScenarioConfig
from polyrhythm_files import InvalidValueError
from topo.addresses import in_families
from topo.generate import explicit, leaf_spine
from topo.graph import Tier, Topology

CPU_PORT = 255
"""Of the emulated switches, as of BMv2. Cables have lower ports."""


def emulated_fabric(config: ScenarioConfig, file: Topology | None) -> Topology:
    """The fabric of a scenario in emulated rates. `file` is what the topology file holds that it names.

    Raises:
        InvalidValueError: with the path of the value that makes no sense.
    """
    topology = _scaled(file, config.scale) if file is not None else _topology(config)
    _check_ports(topology)
    return topology


def emulated_bps(gbps: float, scale: float) -> int:
    """A nominal rate in Gbit/s as the rate on the emulated wire in bit/s, at least 1."""
    return max(1, round(gbps * 1e9 / scale))


def _topology(config: ScenarioConfig) -> Topology:
    fabric, scale = config.fabric, config.scale
    assert not isinstance(fabric, FileConfig)
    if isinstance(fabric, ExplicitConfig):
        own = {h.name: h.addresses for h in fabric.hosts}
        return in_families(_explicit(fabric, config), fabric.addresses, own)
    built = leaf_spine(
        fabric.leaves,
        fabric.spines,
        fabric.hosts_per_leaf,
        host_bps=emulated_bps(fabric.host_gbps, scale),
        fabric_bps=emulated_bps(fabric.fabric_gbps, scale),
        name=config.name,
    )
    return in_families(built, fabric.addresses)


def _scaled(fabric: Topology, scale: float) -> Topology:
    """The same fabric with every rate divided by `scale`."""
    return replace(
        fabric,
        hosts=tuple(replace(h, rate_bps=max(1, round(h.rate_bps / scale))) for h in fabric.hosts),
        links=tuple(replace(k, rate_bps=max(1, round(k.rate_bps / scale))) for k in fabric.links),
    )


def _check_ports(topology: Topology) -> None:
    for switch, ports in topology.ports.items():
        if max(ports, default=0) >= CPU_PORT:
            raise InvalidValueError(
                ("fabric",),
                f"{switch} has a cable on port {max(ports)}; legal: up to {CPU_PORT - 1}, since port "
                f"{CPU_PORT} leads to the CPU",
            )


def _explicit(fabric: ExplicitConfig, config: ScenarioConfig) -> Topology:
    nodes = Counter(s.name for s in fabric.switches) + Counter(h.name for h in fabric.hosts)
    twice = next((name for name, count in nodes.items() if count > 1), None)
    if twice is not None:
        raise InvalidValueError(
            ("fabric",), f"{twice!r} names more than one node; legal: a name of its own for each"
        )
    leaves = [s.name for s in fabric.switches if s.tier == "leaf"]
    for i, host in enumerate(fabric.hosts):
        if host.leaf not in leaves:
            raise InvalidValueError(
                ("fabric", "hosts", i, "leaf"), f"{host.leaf!r} is no leaf; legal: {', '.join(leaves)}"
            )
    known = [s.name for s in fabric.switches]
    for i, cable in enumerate(fabric.links):
        for end in ("a", "b"):
            name = getattr(cable, end)
            if name not in known:
                raise InvalidValueError(
                    ("fabric", "links", i, end), f"{name!r} is no switch; legal: {', '.join(known)}"
                )
        if cable.a == cable.b:
            raise InvalidValueError(
                ("fabric", "links", i), f"{cable.a!r} is at both ends; legal: two different switches"
            )
    try:
        return explicit(
            config.name,
            [(s.name, Tier(s.tier)) for s in fabric.switches],
            [(h.name, h.leaf, emulated_bps(h.gbps, config.scale)) for h in fabric.hosts],
            [(c.a, c.b, emulated_bps(c.gbps, config.scale)) for c in fabric.links],
        )
    except ValueError as error:
        raise InvalidValueError(("fabric", "hosts"), str(error)) from None
