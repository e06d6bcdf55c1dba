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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import wait
from pathlib import Path

from finsy.proto import p4r

from controller.model.traffic import TRAFFIC_CLASSES
from controller.routing.forwarding import SwitchForwarding, forwarding, pair
from controller.southbound.artefacts import load_artefacts
from controller.southbound.codec import Codec
from controller.southbound.desired import STRAYS, EcnProfile, Entry, desired_entries
from controller.southbound.diff import difference
from topo.graph import Topology


@dataclass(frozen=True, slots=True)
class Condition:
    """What is broken: links as planned with, and switches by name."""

    down_links: frozenset[tuple[str, str]] = frozenset()
    down_switches: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Writes:
    """Serialised WriteRequests in stages, and how many entries the switch holds after them."""

    stages: tuple[tuple[bytes, ...], ...]
    updates: int
    entries: int


@dataclass(frozen=True, slots=True)
class _Fabric:
    topology: Topology
    ecn: EcnProfile
    strays: str
    codec: Codec


_fabric: _Fabric | None = None


def start(topology: Topology, ecn: EcnProfile, artefacts: Path, strays: str = STRAYS[0]) -> None:
    """Called once in the worker process: keep what every later call needs.

    The worker lives and dies with its parent, and leaves Ctrl-C to it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()
    prepare(topology, ecn, artefacts, strays)


def prepare(topology: Topology, ecn: EcnProfile, artefacts: Path, strays: str = STRAYS[0]) -> None:
    """Keep the fabric that later calls are about."""
    global _fabric  # noqa: PLW0603 - a pool's worker has no other place for what lasts between calls
    codec = Codec(load_artefacts(artefacts))
    cell_bytes = codec.depth_cell_bytes
    _fabric = _Fabric(topology, ecn if cell_bytes is None else ecn.in_cells(cell_bytes), strays, codec)
    _forwarding.cache_clear()


def changes(moves: Mapping[str, Condition | None], wanted: Condition) -> Mapping[str, Writes]:
    """Per switch, the writes that lead from the condition it was last written for to `wanted`.

    None: the switch is known to hold nothing, its pipeline having just been pushed.
    """
    result = {}
    for name, before in moves.items():
        held = _entries(name, before) if before is not None else ()
        result[name] = _writes(name, held, _entries(name, wanted))
    return result


def reconcile(name: str, read: Iterable[bytes], wanted: Condition) -> Writes:
    """The writes that lead from what the switch says it holds (serialised entities) to `wanted`."""
    codec = _known().codec
    held = []
    for data in read:
        entry = codec.decode(p4r.Entity.FromString(data).table_entry)
        if entry is not None:
            held.append(entry)
    return _writes(name, held, _entries(name, wanted))


def _writes(name: str, held: Iterable[Entry], wanted: tuple[Entry, ...]) -> Writes:
    fabric = _known()
    stages = difference(held, wanted)
    device = fabric.topology.switch[name].device_id
    return Writes(
        fabric.codec.write_requests(device, stages),
        sum(len(stage) for stage in stages),
        sum(not entry.is_default for entry in wanted),
    )


def _entries(name: str, condition: Condition) -> tuple[Entry, ...]:
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


def _down_ports(name: str, condition: Condition) -> frozenset[int]:
    """The ports of a switch whose cable to another switch is down, or that switch itself."""
    topology = _known().topology
    return frozenset(
        port
        for port, peer in topology.ports[name].items()
        if peer.node in topology.switch
        and (peer.node in condition.down_switches or pair(name, peer.node) in condition.down_links)
    )


@lru_cache(maxsize=4)
def _forwarding(condition: Condition) -> Mapping[str, SwitchForwarding]:
    return forwarding(_known().topology, condition.down_links, condition.down_switches)


def _known() -> _Fabric:
    if _fabric is None:
        raise RuntimeError("the worker has not been started with a fabric")
    return _fabric


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
