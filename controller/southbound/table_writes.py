# SPDX-License-Identifier: Apache-2.0
"""What runs in the worker process: planning, differences and encoding.

A busy Python thread beside the servers would cost every agent milliseconds, so all of it happens in a
second process. Its functions are pure; what they need of the fabric is handed over once, at start.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import wait
from pathlib import Path
from types import MappingProxyType

from finsy.proto import p4r

from controller.model.plan import FlowPin, FlowRemark, Plan
from controller.model.traffic import TRAFFIC_CLASSES
from controller.routing.forwarding import SwitchForwarding, forwarding, pair
from controller.southbound.artefacts import load_artefacts
from controller.southbound.codec import Codec
from controller.southbound.desired import STRAY_ACTIONS, EcnProfile, Entry, desired_entries
from controller.southbound.diff import difference
from controller.southbound.pinned_flows import pin_entries, remark_entries
from topo.graph import Topology


@dataclass(frozen=True, slots=True)
class FabricCondition:
    """What is broken: links as planned with, and switches by name."""

    down_links: frozenset[tuple[str, str]] = frozenset()
    down_switches: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What all switches together should hold: forwarding for a condition, and a plan's single flows."""

    condition: FabricCondition = FabricCondition()
    pins: tuple[FlowPin, ...] = ()
    remarks: tuple[FlowRemark, ...] = ()

    @staticmethod
    def of(condition: FabricCondition, plan: Plan | None) -> DesiredState:
        """For a condition and a plan, if there is one."""
        return DesiredState(condition) if plan is None else DesiredState(condition, plan.pins, plan.remarks)


@dataclass(frozen=True, slots=True)
class SwitchWrites:
    """Serialised WriteRequests in stages, and how many entries each table holds after them (default
    actions left out)."""

    stages: tuple[tuple[bytes, ...], ...]
    updates: int
    tables: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Fabric:
    topology: Topology
    ecn: EcnProfile
    strays: str
    codec: Codec


_fabric: _Fabric | None = None


def start(topology: Topology, ecn: EcnProfile, artefacts: Path, strays: str = STRAY_ACTIONS[0]) -> None:
    """Called once in the worker process: keep what every later call needs.

    The worker lives and dies with its parent, and leaves Ctrl-C to it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()
    prepare(topology, ecn, artefacts, strays)


def prepare(topology: Topology, ecn: EcnProfile, artefacts: Path, strays: str = STRAY_ACTIONS[0]) -> None:
    """Keep the fabric that later calls are about."""
    global _fabric  # noqa: PLW0603 - a pool's worker has no other place for what lasts between calls
    codec = Codec(load_artefacts(artefacts))
    cell_bytes = codec.depth_cell_bytes
    _fabric = _Fabric(topology, ecn if cell_bytes is None else ecn.in_cells(cell_bytes), strays, codec)
    _forwarding.cache_clear()
    _lasting_tables.cache_clear()


def changes(moves: Mapping[str, DesiredState | None], wanted: DesiredState) -> Mapping[str, SwitchWrites]:
    """Per switch, the writes that lead from what it was last written for to `wanted`.

    None: the switch is known to hold nothing, its pipeline having just been pushed.
    """
    result = {}
    for name, before in moves.items():
        if before is not None and before.condition == wanted.condition:
            # All the rest is as it was: thousands of entries need not be made to see it.
            held, now = _singles(name, before), _singles(name, wanted)
            result[name] = _writes(name, held, now, _lasting_tables(name, wanted.condition))
        else:
            held = () if before is None else _entries(name, before)
            result[name] = _writes(name, held, _entries(name, wanted))
    return result


def reconcile(name: str, read: Iterable[bytes], wanted: DesiredState) -> SwitchWrites:
    """The writes that lead from what the switch says it holds (serialised entities) to `wanted`."""
    codec = _known().codec
    held = []
    for data in read:
        entry = codec.decode(p4r.Entity.FromString(data).table_entry)
        if entry is not None:
            held.append(entry)
    return _writes(name, held, _entries(name, wanted))


def _writes(
    name: str,
    held: Iterable[Entry],
    wanted: tuple[Entry, ...],
    besides: Mapping[str, int] = MappingProxyType({}),
) -> SwitchWrites:
    """The difference in requests; `besides` counts, by table, entries that are there and stay."""
    fabric = _known()
    stages = difference(held, wanted)
    device = fabric.topology.switch[name].device_id
    return SwitchWrites(
        fabric.codec.write_requests(device, stages),
        sum(len(stage) for stage in stages),
        dict(sorted((Counter(besides) + _by_table(wanted)).items())),
    )


def _entries(name: str, wanted: DesiredState) -> tuple[Entry, ...]:
    return (*_lasting(name, wanted.condition), *_singles(name, wanted))


def _lasting(name: str, condition: FabricCondition) -> tuple[Entry, ...]:
    """What a switch holds whatever the plan."""
    fabric = _known()
    switch = _forwarding(condition).get(name)
    if switch is None:
        return ()
    return desired_entries(
        fabric.topology.switch[name],
        switch,
        TRAFFIC_CLASSES,
        fabric.ecn,
        down_ports=_down_ports(name, condition),
        strays=fabric.strays,
    )


@lru_cache(maxsize=1024)
def _lasting_tables(name: str, condition: FabricCondition) -> Mapping[str, int]:
    return MappingProxyType(_by_table(_lasting(name, condition)))


def _by_table(entries: Iterable[Entry]) -> Counter[str]:
    return Counter(entry.table for entry in entries if not entry.is_default)


def _singles(name: str, wanted: DesiredState) -> tuple[Entry, ...]:
    """What a switch holds for the single flows of a plan."""
    if not wanted.pins and not wanted.remarks:
        return ()
    topology, switch = _known().topology, _forwarding(wanted.condition).get(name)
    if switch is None:
        return ()
    return (
        *pin_entries(topology, name, switch, wanted.pins),
        *remark_entries(topology, name, wanted.remarks),
    )


def _down_ports(name: str, condition: FabricCondition) -> frozenset[int]:
    """The ports of a switch whose cable to another switch is down, or that switch itself."""
    topology = _known().topology
    return frozenset(
        port
        for port, peer in topology.ports[name].items()
        if peer.node in topology.switch
        and (peer.node in condition.down_switches or pair(name, peer.node) in condition.down_links)
    )


@lru_cache(maxsize=4)
def _forwarding(condition: FabricCondition) -> Mapping[str, SwitchForwarding]:
    return forwarding(_known().topology, condition.down_links, condition.down_switches)


def _known() -> _Fabric:
    if _fabric is None:
        raise RuntimeError("the worker has not been started with a fabric")
    return _fabric


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
