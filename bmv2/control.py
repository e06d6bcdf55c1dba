# SPDX-License-Identifier: Apache-2.0
"""The control plane's view of a switch: the state of the loaded program, and the operations that change it.

All of it runs on the data-plane thread. Names are those of the program's JSON.
"""

from __future__ import annotations

from collections.abc import Sequence

from .boundary import DataPlaneClock
from .calculations import CUSTOM, CustomCrc
from .entries import EntryFault, GroupMember, MeterConfig, TableEntry, TableEntryError
from .ir import Calculation, Ir
from .meters import MeterCells
from .profiles import ActionProfile
from .tables import MatchTable
from .value_sets import Member, MemberSet, member_sets

_SESSIONS = 0x7FFF


class CounterArray:
    """An indirect counter: packets and bytes of each index, in lists that generated code increments."""

    __slots__ = ("bytes", "packets")

    def __init__(self, size: int) -> None:
        self.packets = [0] * size
        self.bytes = [0] * size


class ControlPlane:
    """The tables, counters, meters and all other state of one switch's program."""

    def __init__(self, name: str, clock: DataPlaneClock) -> None:
        self.name = name
        self.clock = clock
        self._clear()

    def _clear(self) -> None:
        """Forget all state."""
        self._tables: dict[str, MatchTable] = {}
        self._profiles: dict[str, ActionProfile] = {}
        self._counters: dict[str, CounterArray] = {}
        self._meters: dict[str, MeterCells] = {}
        self._registers: dict[str, list[int]] = {}
        self._register_widths: dict[str, int] = {}
        self._customs: dict[str, CustomCrc] = {}
        self._value_sets: dict[str, MemberSet] = {}
        self._groups: dict[int, tuple[tuple[int, int], ...]] = {}
        # Bytes to keep plus one by session (0: all), as generated code asks for it.
        self._sessions: dict[int, int] = {}
        self._clones: dict[int, tuple[tuple[int, int], ...]] = {}

    def _build(self, ir: Ir) -> None:
        """Begin with a program's empty state."""
        self._clear()
        self._profiles = {name: ActionProfile(profile) for name, profile in ir.profiles.items()}
        for table in ir.tables():
            profile = None if table.profile is None else self._profiles[table.profile]
            by_bytes = table.direct_meter is not None and ir.meters[table.direct_meter].by_bytes
            self._tables[table.name] = MatchTable(table, profile=profile, meter_bytes=by_bytes)
        self._counters = {name: CounterArray(size) for name, size in ir.counters.items()}
        self._meters = {
            name: MeterCells(0 if meter.target else meter.size, meter.by_bytes)
            for name, meter in ir.meters.items()
        }
        self._registers = {name: [0] * size for name, (size, _) in ir.registers.items()}
        self._register_widths = {name: width for name, (_, width) in ir.registers.items()}
        selectors = [profile.selector for profile in ir.profiles.values() if profile.selector is not None]
        calculations: list[Calculation] = [*ir.calculations.values(), *selectors]
        self._customs = {
            c.name: CustomCrc(CUSTOM[c.algorithm]) for c in calculations if c.algorithm in CUSTOM
        }
        self._value_sets = member_sets(ir.value_sets)

    def _missing(self, what: str, name: str) -> TableEntryError:
        return TableEntryError(EntryFault.MISSING, f"{self.name}: there is no {what} '{name}'")

    def table(self, name: str) -> MatchTable:
        """A table by its name in the JSON; TableEntryError where there is none."""
        if name not in self._tables:
            raise self._missing("table", name)
        return self._tables[name]

    def insert(self, table: str, entry: TableEntry) -> None:
        """Add an entry; TableEntryError where it exists, does not fit or the table is full."""
        self.table(table).insert(entry, self.clock.now // 1000)

    def modify(self, table: str, entry: TableEntry) -> None:
        """Change the action of the entry with this match and priority."""
        self.table(table).modify(entry, self.clock.now // 1000)

    def delete(self, table: str, entry: TableEntry) -> None:
        """Remove the entry with this match and priority."""
        self.table(table).delete(entry)

    def set_default(self, table: str, action: str | None, params: tuple[int, ...] = ()) -> None:
        """Set what a miss does; None is the program's own default."""
        self.table(table).set_default(action, params)

    def entry_hit_time(self, table: str, entry: TableEntry) -> int:
        """When an entry that ages was last hit, else written: ns of the clock, to the microsecond."""
        return self.table(table).hit_time(entry) * 1000

    def idle_entries(self, table: str) -> list[TableEntry]:
        """The entries whose time-out has passed without a hit."""
        return self.table(table).idle(self.clock.now // 1000)

    def profile(self, name: str) -> ActionProfile:
        """An action profile by its name; TableEntryError where there is none."""
        if name not in self._profiles:
            raise self._missing("action profile", name)
        return self._profiles[name]

    def add_member(self, profile: str, member: int, action: str, params: tuple[int, ...] = ()) -> None:
        """Add a member to an action profile."""
        self.profile(profile).add_member(member, (action, params))

    def modify_member(self, profile: str, member: int, action: str, params: tuple[int, ...] = ()) -> None:
        """Change a member's action, for all entries and groups that refer to it."""
        self.profile(profile).modify_member(member, (action, params))
        self._forget_lookups(profile)

    def delete_member(self, profile: str, member: int) -> None:
        """Remove a member that no entry and no group refers to."""
        self.profile(profile).delete_member(member)

    def add_group(
        self, profile: str, group: int, members: tuple[GroupMember, ...], max_size: int = 0
    ) -> None:
        """Add a group; `max_size` bounds the sum of its weights, 0 does not."""
        self._check_size(group, members, max_size)
        self.profile(profile).add_group(group, members)

    def modify_group(
        self, profile: str, group: int, members: tuple[GroupMember, ...], max_size: int = 0
    ) -> None:
        """Give a group other members."""
        self._check_size(group, members, max_size)
        self.profile(profile).modify_group(group, members)

    def delete_group(self, profile: str, group: int) -> None:
        """Remove a group that no entry refers to."""
        self.profile(profile).delete_group(group)

    @staticmethod
    def _check_size(group: int, members: tuple[GroupMember, ...], max_size: int) -> None:
        total = sum(member.weight for member in members)
        if max_size and total > max_size:
            raise TableEntryError(
                EntryFault.FULL, f"group {group} takes {max_size} members with their weights, got {total}"
            )

    def _forget_lookups(self, profile: str) -> None:
        for table in self._tables.values():
            if table.table.profile == profile and table.table.kind != "exact":
                table.fast.clear()

    def read_counter(self, name: str, cells: Sequence[int] | None = None) -> list[tuple[int, int]]:
        """(packets, bytes) of these indices of an indirect counter, None: of each."""
        counter = self._counter(name)
        if cells is None:
            return list(zip(counter.packets, counter.bytes, strict=True))
        return [(counter.packets[index], counter.bytes[index]) for index in cells]

    def write_counter(self, name: str, index: int | None, packets: int, bytes: int) -> None:
        """Set one index of an indirect counter, None: all."""
        counter = self._counter(name)
        size = len(counter.packets)
        if index is None:
            counter.packets[:], counter.bytes[:] = [packets] * size, [bytes] * size
            return
        self._within("counter", name, size, index)
        counter.packets[index] = packets
        counter.bytes[index] = bytes

    def read_direct_counter(self, table: str, entry: TableEntry) -> tuple[int, int]:
        """(packets, bytes) of a table's entry."""
        state = self.table(table).counter(entry)
        return state[0], state[1]

    def write_direct_counter(self, table: str, entry: TableEntry, packets: int, bytes: int) -> None:
        """Set the direct counter of a table's entry."""
        self.table(table).counter(entry)[:2] = [packets, bytes]

    def _counter(self, name: str) -> CounterArray:
        if name not in self._counters:
            raise self._missing("counter", name)
        return self._counters[name]

    def set_meter(self, name: str, index: int | None, config: MeterConfig | None) -> None:
        """Configure one meter of an array, index None: all; configuration None makes it always green."""
        meters = self._meter_array(name)
        if index is None:
            meters.set_all(config)
            return
        self._within("meter", name, meters.size, index)
        meters[index].set(config)

    def read_meter(self, name: str) -> list[MeterConfig | None]:
        """The configuration of each meter of an array."""
        return self._meter_array(name).configs()

    def set_direct_meter(self, table: str, entry: TableEntry, config: MeterConfig | None) -> None:
        """Configure the meter of a table's entry."""
        self.table(table).meter(entry).set(config)

    def read_direct_meter(self, table: str, entry: TableEntry) -> MeterConfig | None:
        """The configuration of the meter of a table's entry."""
        return self.table(table).meter(entry).config

    def _meter_array(self, name: str) -> MeterCells:
        if name not in self._meters:
            raise self._missing("meter", name)
        return self._meters[name]

    def read_register(self, name: str, cells: Sequence[int] | None = None) -> list[int]:
        """The values of these cells of a register array, None: of each."""
        values = self._register(name)
        return list(values) if cells is None else [values[index] for index in cells]

    def write_register(self, name: str, index: int | None, value: int) -> None:
        """Set one cell of a register array, None: all."""
        cells = self._register(name)
        width = self._register_widths[name]
        if not 0 <= value < 1 << width:
            raise TableEntryError(EntryFault.INVALID, f"register '{name}' is {width} bits wide, got {value}")
        if index is None:
            cells[:] = [value] * len(cells)
            return
        self._within("register", name, len(cells), index)
        cells[index] = value

    def _register(self, name: str) -> list[int]:
        if name not in self._registers:
            raise self._missing("register", name)
        return self._registers[name]

    @staticmethod
    def _within(what: str, name: str, size: int, index: int) -> None:
        if not 0 <= index < size:
            raise TableEntryError(EntryFault.INVALID, f"{what} '{name}' has {size} indices, got {index}")

    def set_value_set(self, name: str, members: tuple[Member, ...]) -> None:
        """Replace the members of a parser value set: an integer or a match for each part of the key."""
        self._value_set(name).replace(members)

    def insert_value_set_member(self, name: str, member: Member) -> None:
        """Add one member to a parser value set."""
        self._value_set(name).insert(member)

    def read_value_set(self, name: str) -> tuple[Member, ...]:
        """The members of a parser value set, as they were given."""
        return self._value_set(name).members()

    def _value_set(self, name: str) -> MemberSet:
        if name not in self._value_sets:
            raise self._missing("value set", name)
        return self._value_sets[name]

    def set_multicast_group(self, group: int, replicas: tuple[tuple[int, int], ...]) -> None:
        """Set the (port, rid) pairs of a multicast group; an empty tuple deletes it."""
        if replicas:
            self._groups[group] = replicas
        else:
            self._groups.pop(group, None)

    def set_clone_session(
        self, session: int, replicas: tuple[tuple[int, int], ...], truncate: int = 0
    ) -> None:
        """Set where clones of a session go, (port, rid) each, and how many bytes they keep (0: all)."""
        if not 0 <= session <= _SESSIONS:
            raise TableEntryError(EntryFault.INVALID, f"a clone session is in 0..{_SESSIONS}, got {session}")
        if truncate < 0:
            raise TableEntryError(EntryFault.INVALID, f"a clone keeps a number of bytes, got {truncate}")
        if replicas:
            self._clones[session] = replicas
            self._sessions[session] = truncate + 1 if truncate else 0
        else:
            self._clones.pop(session, None)
            self._sessions.pop(session, None)
