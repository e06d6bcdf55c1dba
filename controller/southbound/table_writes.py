# SPDX-License-Identifier: Apache-2.0
"""Compute the table writes that lead switches to a desired state. Runs in the worker process.

A busy Python thread beside the controller's servers would delay every agent by milliseconds, so this work is
done in a second process. Its functions are pure; the fabric is passed once, at the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from finsy.proto import p4r

from controller.model.plan import ConnectionPlan, FlowPin, FlowRemark, Plan, SpreadClass
from controller.model.traffic import TRAFFIC_CLASSES
from controller.routing.forwarding import SwitchForwarding, forwarding
from controller.southbound.artefacts import load_artefacts
from controller.southbound.codec import Codec
from controller.southbound.desired import OPTIONAL, EcnProfile, Entry, desired_entries
from controller.southbound.diff import EntryUpdate, difference
from controller.southbound.host_guard import (
    HostGuard,
    flow_entries,
    guard_entries,
    host_rates,
    pair_entries,
    rights_by_leaf,
)
from controller.southbound.pinned_flows import (
    FLOW_TABLES,
    connection_entries,
    next_hops_of,
    pin_entries,
    remark_entries,
)
from controller.southbound.spread_entries import spread_entries
from controller.southbound.update_encoder import read_entries
from topo.graph import Topology


@dataclass(frozen=True, slots=True)
class FabricCondition:
    """What plans must not use: cables (`Topology.cables`) and switches, by name.

    `drained_links` and `drained_switches` are those of them that work, and that an operator takes out of use.
    """

    down_links: frozenset[tuple[str, str]] = frozenset()
    down_switches: frozenset[str] = frozenset()
    drained_links: frozenset[tuple[str, str]] = frozenset()
    drained_switches: frozenset[str] = frozenset()

    @property
    def failed(self) -> tuple[frozenset[tuple[str, str]], frozenset[str]]:
        """The cables and switches that do not work."""
        return self.down_links - self.drained_links, self.down_switches - self.drained_switches

    @property
    def failed_names(self) -> tuple[str, ...]:
        """The switches that do not work, then the cables ("leaf1-spine2"), each sorted."""
        links, switches = self.failed
        return (*sorted(switches), *sorted("-".join(cable) for cable in links))


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The state that all switches should have: forwarding for a condition, and a plan's entries for flows
    and pairs of hosts.
    """

    condition: FabricCondition = FabricCondition()
    pins: tuple[FlowPin, ...] = ()
    remarks: tuple[FlowRemark, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    mice_pairs: tuple[tuple[str, str], ...] = ()
    spread: tuple[SpreadClass, ...] = ()
    connections: tuple[ConnectionPlan, ...] = ()

    @staticmethod
    def of(condition: FabricCondition, plan: Plan | None) -> DesiredState:
        """The state for a condition and a plan; `plan` None: before the first plan."""
        if plan is None:
            return DesiredState(condition)
        pairs = plan.pairs, plan.mice_pairs
        return DesiredState(condition, plan.pins, plan.remarks, *pairs, plan.spread, plan.connections)


class Found(StrEnum):
    """What happens to entries for single flows that a switch holds, and that the desired state lacks.

    KEEP: they stay. PREFER: moreover they stay as they are where the desired state has others instead.
    """

    REMOVE = "remove"
    KEEP = "keep"
    PREFER = "prefer"


@dataclass(frozen=True, slots=True)
class SwitchWrites:
    """The writes for one switch: serialised WriteRequests in stages, and the number of updates in them.

    `tables` is how many entries each table has after them, without default actions. `read` is how many
    entries were read from the switch for them, without cells of meters; `kept` of these stay although the
    desired state lacks them.
    """

    stages: tuple[tuple[bytes, ...], ...]
    updates: int
    tables: Mapping[str, int]
    read: int = 0
    kept: int = 0


@dataclass(frozen=True, slots=True)
class _Fabric:
    topology: Topology
    ecn: EcnProfile
    guard: HostGuard
    codec: Codec
    lacking: frozenset[str]


_fabric: _Fabric | None = None
_base_sizes: dict[str, tuple[FabricCondition, Mapping[str, int]]] = {}
"""The sizes of `_base_entries` by switch, for the condition that they were last made for: they are thousands,
so they are not made again to count them."""
_DEFAULT_GUARD = HostGuard()


def set_fabric(
    topology: Topology, ecn: EcnProfile, artefacts: Path, guard: HostGuard = _DEFAULT_GUARD
) -> None:
    """Set the fabric and the P4 program for all later calls in this process."""
    global _fabric  # noqa: PLW0603 - a pool's worker has no other place for what lasts between calls
    codec = Codec(load_artefacts(artefacts))
    cell_bytes = codec.depth_cell_bytes
    in_units = ecn if cell_bytes is None else ecn.in_cells(cell_bytes)
    lacking = frozenset(name for name in OPTIONAL if not codec.has(name))
    _fabric = _Fabric(topology, in_units, guard, codec, lacking)
    _forwarding.cache_clear()
    _rights_by_leaf.cache_clear()
    _base_sizes.clear()


def writes_to(moves: Mapping[str, DesiredState | None], wanted: DesiredState) -> Mapping[str, SwitchWrites]:
    """The writes that lead each switch from its present state in `moves` to `wanted`; a switch without an
    entry needs none.

    A present state of None means that the switch has no entries, because its pipeline was just pushed.
    """
    found = {}
    # Most switches are in one state, which is compared once.
    differing: dict[int, frozenset[str] | None] = {}
    for name, before in moves.items():
        if before is None or before.condition != wanted.condition:
            held = () if before is None else entries_of(name, before)
            found[name] = _writes(name, held, entries_of(name, wanted))
            continue
        # Only entries for single flows can differ; the thousands of others need not be built.
        if id(before) not in differing:
            differing[id(before)] = _switches_that_differ(before, wanted)
        names = differing[id(before)]
        if names is None or name in names:
            flows = _flow_entries(name, before), _flow_entries(name, wanted)
            found[name] = _writes(name, *flows, _base_table_sizes(name, wanted.condition))
    return {name: writes for name, writes in found.items() if writes.updates}


def _switches_that_differ(before: DesiredState, wanted: DesiredState) -> frozenset[str] | None:
    """The switches whose `_flow_entries` differ in two states of one condition; None: perhaps all."""
    if replace(before, pairs=wanted.pairs, mice_pairs=wanted.mice_pairs) != wanted:
        return None
    rights_before = _rights_by_leaf(before.pairs, before.mice_pairs)
    rights = _rights_by_leaf(wanted.pairs, wanted.mice_pairs)
    return frozenset(n for n in {**rights_before, **rights} if rights_before.get(n) != rights.get(n))


def entry_changes(before: DesiredState, after: DesiredState) -> Mapping[str, tuple[str, ...]]:
    """The updates in words that lead from one state to another, in their order, for each switch that has
    any.
    """
    found = {}
    for switch in _current_fabric().topology.switches:
        stages = difference(entries_of(switch.name, before), entries_of(switch.name, after))
        found[switch.name] = tuple(f"{u.operation.value} {u.entry}" for stage in stages for u in stage)
    return {name: words for name, words in found.items() if words}


def reconcile(
    name: str, read: Iterable[bytes], wanted: DesiredState, found: Found = Found.REMOVE
) -> SwitchWrites:
    """The writes that lead from the entries read from a switch (serialised ReadResponses) to `wanted`.

    Most entries are as they should be, byte by byte. Only the others are decoded and compared.
    """
    codec = current_codec()
    entries = entries_of(name, wanted)
    missing = {codec.encoder.entry(entry): entry for entry in entries}
    others = []
    count = 0
    for is_cell, data in read_entries(read):
        count += not is_cell
        if missing.pop(data, None) is None:
            entry = _decoded(is_cell, data)
            if entry is not None:
                others.append(entry)
    stay = _staying(entries, others, found)
    stages = difference(
        [entry for entry in others if entry.key not in stay],
        [entry for entry in missing.values() if entry.key not in stay],
    )
    after = _by_table(entries)
    if stay:
        wanted_keys = {entry.key for entry in entries}
        after += _by_table(entry for key, entry in stay.items() if key not in wanted_keys)
    return replace(_as_writes(name, stages, after), read=count, kept=len(stay))


def held_entries(read: Iterable[bytes]) -> tuple[Entry, ...]:
    """The entries read from a switch (serialised ReadResponses), without those of unknown tables."""
    found = (_decoded(is_cell, data) for is_cell, data in read_entries(read))
    return tuple(entry for entry in found if entry is not None)


def _decoded(is_cell: bool, data: bytes) -> Entry | None:
    codec = current_codec()
    return codec.decode_cell(data) if is_cell else codec.decode(p4r.TableEntry.FromString(data))


def current_codec() -> Codec:
    """The codec of the P4 program of this process."""
    return _current_fabric().codec


def _staying(
    wanted: Iterable[Entry], held: Iterable[Entry], found: Found
) -> Mapping[tuple[object, ...], Entry]:
    """The held entries that stay although the desired state lacks them, by key.

    An entry that refers to a next hop that is not wanted cannot stay.
    """
    if found is Found.REMOVE:
        return {}
    keys = {entry.key for entry in wanted}
    hops = {entry.match[0][1] for entry in wanted if entry.table == "next_hop"}
    return {
        entry.key: entry
        for entry in held
        if entry.table in FLOW_TABLES
        and (found is Found.PREFER or entry.key not in keys)
        and hops.issuperset(next_hops_of(entry))
    }


def _writes(
    name: str,
    held: Iterable[Entry],
    wanted: tuple[Entry, ...],
    besides: Mapping[str, int] = MappingProxyType({}),
) -> SwitchWrites:
    """The writes from `held` to `wanted`. `besides` counts, by table, further entries that stay."""
    return _as_writes(name, difference(held, wanted), Counter(besides) + _by_table(wanted))


def _as_writes(
    name: str, stages: tuple[tuple[EntryUpdate, ...], ...], tables: Mapping[str, int]
) -> SwitchWrites:
    """The updates as write requests; `tables` is how many entries each table has after them."""
    fabric = _current_fabric()
    device = fabric.topology.switch[name].device_id
    return SwitchWrites(
        fabric.codec.write_requests(device, stages),
        sum(len(stage) for stage in stages),
        dict(sorted(tables.items())),
    )


def entries_of(name: str, wanted: DesiredState) -> tuple[Entry, ...]:
    """All entries of tables and cells of meters that a switch should have."""
    return (*_base_entries(name, wanted.condition), *_flow_entries(name, wanted))


def _base_entries(name: str, condition: FabricCondition) -> tuple[Entry, ...]:
    """The entries of a switch that do not depend on the plan."""
    fabric = _current_fabric()
    switch = _forwarding(condition).get(name)
    if switch is None:
        return ()
    topology, ecn = fabric.topology, fabric.ecn
    rates = host_rates(topology, name, switch.edge_ports)
    guards = (
        *guard_entries(rates, TRAFFIC_CLASSES, ecn.frame_bytes, fabric.guard.strays),
        *flow_entries(topology, name, fabric.guard),
    )
    down = _down_ports(name, condition)
    own = desired_entries(topology.switch[name], switch, TRAFFIC_CLASSES, ecn, down_ports=down)
    found = (
        *(entry for entry in own if entry.table not in fabric.lacking),
        *(entry for entry in guards if entry.table not in fabric.lacking),
    )
    _base_sizes[name] = condition, MappingProxyType(_by_table(found))
    return found


def _base_table_sizes(name: str, condition: FabricCondition) -> Mapping[str, int]:
    """How many entries of each table a switch has that do not depend on the plan."""
    known = _base_sizes.get(name)
    if known is not None and known[0] == condition:
        return known[1]
    return _by_table(_base_entries(name, condition))


def _by_table(entries: Iterable[Entry]) -> Counter[str]:
    return Counter(entry.table for entry in entries if not entry.exists_always)


def _flow_entries(name: str, wanted: DesiredState) -> tuple[Entry, ...]:
    """The entries of a switch for single flows and pairs of hosts of a plan."""
    single = wanted.pins or wanted.remarks or wanted.connections
    if not (single or wanted.pairs or wanted.mice_pairs or wanted.spread):
        return ()
    fabric = _current_fabric()
    topology, switch = fabric.topology, _forwarding(wanted.condition).get(name)
    if switch is None:
        return ()
    rights = _rights_by_leaf(wanted.pairs, wanted.mice_pairs).get(name, {})
    pairs = pair_entries(topology, rights, fabric.guard.strays)
    remarked = remark_entries(topology, name, wanted.remarks)
    connected = connection_entries(topology, name, switch, wanted.connections, fabric.guard)
    # Flows and connections of a host may leave it with the same DSCP, and ask in the same way.
    both = {entry.key: entry for entry in (*remarked, *connected)}
    return (
        *pin_entries(topology, name, switch, wanted.pins),
        *(entry for entry in pairs if entry.table not in fabric.lacking),
        *(entry for entry in both.values() if entry.table not in fabric.lacking),
        *(e for e in spread_entries(switch, wanted.spread) if e.table not in fabric.lacking),
    )


@lru_cache(maxsize=4)
def _rights_by_leaf(
    pairs: tuple[tuple[str, str], ...], mice_pairs: tuple[tuple[str, str], ...]
) -> Mapping[str, Mapping[tuple[str, str], str]]:
    return rights_by_leaf(_current_fabric().topology, pairs, mice_pairs)


def _down_ports(name: str, condition: FabricCondition) -> frozenset[int]:
    """The ports of a switch to other switches where the cable or the other switch has failed."""
    topology = _current_fabric().topology
    links, switches = condition.failed
    return frozenset(
        port
        for port, peer in topology.ports[name].items()
        if peer.node in topology.switch and (peer.node in switches or topology.cable_at[name, port] in links)
    )


@lru_cache(maxsize=4)
def _forwarding(condition: FabricCondition) -> Mapping[str, SwitchForwarding]:
    return forwarding(
        _current_fabric().topology,
        condition.down_links,
        condition.down_switches,
        condition.drained_links,
        condition.drained_switches,
    )


def _current_fabric() -> _Fabric:
    if _fabric is None:
        raise RuntimeError("the worker has not been started with a fabric")
    return _fabric
