# SPDX-License-Identifier: Apache-2.0
"""Match-action tables at run time. The control plane changes them, and the generated code looks keys up in
them.
"""

from __future__ import annotations

from typing import TypeAlias

from .entries import EntryFault, Exact, Lpm, MatchValue, Optional, Range, TableEntry, TableEntryError, Ternary
from .ir import KeyField, Table
from .meters import Meter
from .profiles import ActionProfile, Call

# What a lookup yields: index of the action in the table, 1 for a hit, the entry's own state or None, then
# the action's parameters; or SELECT, 1, the state and a list of the outcomes of a group's members. A flat
# tuple, for generated code indexes it on every packet. The state is [packets, bytes, microsecond of the
# last hit, meter].
Outcome: TypeAlias = tuple[object, ...]
Key: TypeAlias = int | tuple[int, ...]
NO_ACTION = -1
SELECT = -2
FIRST_PARAM = 3
_MEMO_LIMIT = 65536


class MatchTable:
    """One table of one switch.

    `fast` maps keys (an integer, or a tuple for several fields) to outcomes and keeps its identity for
    ever: generated code binds its `get`. For exact tables it is the table; for the others it remembers
    what `lookup` found, and is emptied by every change.
    """

    def __init__(
        self, table: Table, *, profile: ActionProfile | None = None, meter_bytes: bool = False
    ) -> None:
        """`meter_bytes` tells what the table's direct meter counts, if it has one."""
        self.table = table
        self._profile = profile
        self._meter_bytes = meter_bytes
        self.fast: dict[Key, Outcome] = {}
        self.default: list[Outcome] = [(NO_ACTION, 0, None)]
        self._actions = {name: index for index, name in enumerate(table.actions)}
        self._entries: dict[tuple[object, ...], tuple[TableEntry, Outcome]] = {}
        # The entries that name each member of the action profile.
        self._by_member: dict[int, dict[tuple[object, ...], None]] = {}
        self._by_prefix: dict[int, dict[tuple[int, ...], Outcome]] = {}
        self._prefixes: list[tuple[int, int]] = []
        self._ranked: list[tuple[tuple[tuple[bool, int, int], ...], Outcome]] = []
        self._ranked_stale = False
        self._lpm = next((i for i, part in enumerate(table.key) if part.kind == "lpm"), 0)
        self.constant = False
        self._groups = {} if profile is None else profile.attach(self._member_outcome, self._refresh)
        self._set_program_default()
        self.size = table.size
        for entry in table.initial_entries or ():
            self.insert(entry)
        # As in BMv2; P4Info may say that they are not (`open`).
        self.constant = table.initial_entries is not None

    def open(self, size: int) -> None:
        """Let clients change the initial entries, and write up to `size` entries in all."""
        self.constant = False
        self.size = size

    def insert(self, entry: TableEntry, now: int = 0) -> None:
        """Add an entry; TableEntryError if it exists or does not fit, or the table is full or constant.

        `now` in microseconds is where its age begins.
        """
        identity = self._identity(entry)
        self._check_writable()
        if identity in self._entries:
            raise TableEntryError(EntryFault.EXISTS, f"table '{self.table.name}' holds this match already")
        if len(self._entries) >= self.size:
            raise TableEntryError(EntryFault.FULL, f"table '{self.table.name}' is full ({self.size} entries)")
        state = self._new_state(now)
        outcome = self._outcome_of(entry, state)
        self._count_use(entry, 1)
        self._place(identity, entry, outcome)

    def modify(self, entry: TableEntry, now: int = 0) -> None:
        """Change the action of an entry that is there; its counter and meter go on, its age begins anew."""
        identity = self._identity(entry)
        self._check_writable()
        old, found = self._existing(identity)
        outcome = self._outcome_of(entry, found[2])
        self._count_use(entry, 1)
        self._count_use(old, -1)
        if isinstance(found[2], list):
            found[2][2] = now
        self._place(identity, entry, outcome)

    def delete(self, entry: TableEntry) -> None:
        """Remove the entry with this match (and priority)."""
        identity = self._identity(entry)
        self._check_writable()
        old = self._existing(identity)[0]
        self._count_use(old, -1)
        self._link(identity, old, None)
        del self._entries[identity]
        self._reindex(identity, None)

    def set_default(self, action: str | None, params: tuple[int, ...]) -> None:
        """Set what a miss does; None goes back to the program's own default."""
        program = self.table.default
        if program is not None and action is not None:
            if program.const_entry and (action, params) != (program.action, program.params):
                raise TableEntryError(
                    EntryFault.CONSTANT, f"the default of table '{self.table.name}' is constant"
                )
            if program.const_action and action != program.action:
                raise TableEntryError(
                    EntryFault.CONSTANT,
                    f"the default action of table '{self.table.name}' is always '{program.action}'",
                )
        if action is None:
            self._set_program_default()
        else:
            self.default[0] = self._outcome(action, params, 0, None)
        if self.table.kind != "exact":
            self.fast.clear()

    def counter(self, entry: TableEntry) -> list[int]:
        """The state of an entry with a direct counter, itself and not a copy: packets and bytes first."""
        if not self.table.direct_counter:
            raise TableEntryError(EntryFault.INVALID, f"table '{self.table.name}' has no direct counter")
        return self._state_of(entry)

    def meter(self, entry: TableEntry) -> Meter:
        """The direct meter of an entry."""
        if self.table.direct_meter is None:
            raise TableEntryError(EntryFault.INVALID, f"table '{self.table.name}' has no direct meter")
        meter: object = self._state_of(entry)[3]
        assert isinstance(meter, Meter)
        return meter

    def hit_time(self, entry: TableEntry) -> int:
        """The microsecond of the last hit of an entry that ages, or of its writing."""
        if not self.table.timeout:
            raise TableEntryError(EntryFault.INVALID, f"the entries of table '{self.table.name}' do not age")
        return self._state_of(entry)[2]

    def idle(self, now: int) -> list[TableEntry]:
        """The entries whose time-out has passed at the microsecond `now` without a hit."""
        return [
            entry
            for entry, outcome in self._entries.values()
            if entry.timeout_ns
            and isinstance(outcome[2], list)
            and (now - outcome[2][2]) * 1000 >= entry.timeout_ns
        ]

    def _state_of(self, entry: TableEntry) -> list[int]:
        state = self._existing(self._identity(entry))[1][2]
        assert isinstance(state, list)
        return state

    def _new_state(self, now: int) -> list[object] | None:
        if not self.table.stateful:
            return None
        meter = Meter(self._meter_bytes) if self.table.direct_meter is not None else None
        return [0, 0, now, meter]

    def _outcome_of(self, entry: TableEntry, state: object) -> Outcome:
        """The outcome of an entry: of its own action, or of its member or group."""
        if entry.timeout_ns and not self.table.timeout:
            raise TableEntryError(EntryFault.INVALID, f"the entries of table '{self.table.name}' do not age")
        if self._profile is None:
            if entry.member is not None or entry.group is not None:
                raise TableEntryError(EntryFault.INVALID, f"table '{self.table.name}' has no action profile")
            return self._outcome(entry.action, entry.params, 1, state)
        if (entry.member is None) == (entry.group is None):
            raise TableEntryError(
                EntryFault.INVALID, f"an entry of table '{self.table.name}' names a member or a group"
            )
        if entry.member is not None:
            return self._outcome(*self._profile.member(entry.member), 1, state)
        assert entry.group is not None
        self._profile.group(entry.group)
        return (SELECT, 1, state, self._groups.setdefault(entry.group, []))

    def _member_outcome(self, call: Call) -> Outcome:
        return self._outcome(*call, 1, None)

    def _refresh(self, member: int) -> None:
        """Bring the entries that name a member up to date with it."""
        for identity in list(self._by_member.get(member, ())):
            entry, outcome = self._entries[identity]
            self._place(identity, entry, self._outcome_of(entry, outcome[2]))

    def _link(self, identity: tuple[object, ...], old: TableEntry | None, new: TableEntry | None) -> None:
        """Note by which entries members are named: `new` takes the place of `old`."""
        before, after = (None if entry is None else entry.member for entry in (old, new))
        if before == after:
            return
        if before is not None:
            named = self._by_member[before]
            del named[identity]
            if not named:
                del self._by_member[before]
        if after is not None:
            self._by_member.setdefault(after, {})[identity] = None

    def _count_use(self, entry: TableEntry, by: int) -> None:
        if self._profile is not None:
            kind = "member" if entry.member is not None else "group"
            number = entry.member if entry.member is not None else entry.group
            assert number is not None
            self._profile.use(kind, number, by)

    def lookup(self, key: Key) -> Outcome:
        """The outcome for a key that `fast` does not hold: the slow way, remembered for the next time."""
        values = key if isinstance(key, tuple) else (key,)
        if self.table.kind == "exact":
            return self.default[0]
        found = self._lookup_prefix(values) if self.table.kind == "lpm" else self._lookup_ranked(values)
        if len(self.fast) >= _MEMO_LIMIT:
            self.fast.clear()
        self.fast[key] = found
        return found

    def entries(self) -> list[TableEntry]:
        """What the table holds, in the order it was written."""
        return [entry for entry, _ in self._entries.values()]

    def _lookup_prefix(self, values: tuple[int, ...]) -> Outcome:
        position = self._lpm
        for length, mask in self._prefixes:
            masked = (*values[:position], values[position] & mask, *values[position + 1 :])
            found = self._by_prefix[length].get(masked)
            if found is not None:
                return found
        return self.default[0]

    def _lookup_ranked(self, values: tuple[int, ...]) -> Outcome:
        if self._ranked_stale:
            self._rank()
        for conditions, outcome in self._ranked:
            for value, (ranged, first, second) in zip(values, conditions, strict=True):
                if not (first <= value <= second if ranged else value & second == first):
                    break
            else:
                return outcome
        return self.default[0]

    def _set_program_default(self) -> None:
        program = self.table.default
        if program is None:
            self.default[0] = (NO_ACTION, 0, None)
        else:
            self.default[0] = self._outcome(program.action, program.params, 0, None)

    def _outcome(self, action: str, params: tuple[int, ...], hit: int, counter: object) -> Outcome:
        if action not in self._actions:
            raise TableEntryError(
                EntryFault.INVALID,
                f"table '{self.table.name}' has no action '{action}'; it has: {', '.join(self._actions)}",
            )
        expected = self.table.actions[action].params
        if len(expected) != len(params):
            raise TableEntryError(
                EntryFault.INVALID, f"action '{action}' takes {len(expected)} parameters, got {len(params)}"
            )
        for (name, width), value in zip(expected, params, strict=True):
            if not 0 <= value < 1 << width:
                raise TableEntryError(
                    EntryFault.INVALID, f"parameter '{name}' of '{action}' is {width} bits wide, got {value}"
                )
        return (self._actions[action], hit, counter, *params)

    def _check_writable(self) -> None:
        if self.constant:
            raise TableEntryError(
                EntryFault.CONSTANT, f"the entries of table '{self.table.name}' are constant"
            )

    def _existing(self, identity: tuple[object, ...]) -> tuple[TableEntry, Outcome]:
        found = self._entries.get(identity)
        if found is None:
            raise TableEntryError(EntryFault.MISSING, f"table '{self.table.name}' holds no such match")
        return found

    def _identity(self, entry: TableEntry) -> tuple[object, ...]:
        key = self.table.key
        if not key or len(entry.match) != len(key):
            raise TableEntryError(
                EntryFault.INVALID,
                f"table '{self.table.name}' matches on {len(key)} fields, got {len(entry.match)}",
            )
        if self.table.kind in ("exact", "lpm"):
            return tuple(self._plain(part, match) for part, match in zip(key, entry.match, strict=True))
        conditions = tuple(self._condition(part, match) for part, match in zip(key, entry.match, strict=True))
        return (conditions, entry.priority)

    def _plain(self, part: KeyField, match: MatchValue) -> object:
        mask = self._full(part)
        if isinstance(match, Exact) and part.kind == "exact":
            return self._fit(part, match.value) & mask
        if isinstance(match, Lpm) and part.kind == "lpm" and 0 <= match.prefix_len <= part.width:
            return (
                self._fit(part, match.value) & self._prefix(part, match.prefix_len) & mask,
                match.prefix_len,
            )
        raise self._misfit(part, match)

    def _condition(self, part: KeyField, match: MatchValue) -> tuple[bool, int, int]:
        """(ranged, first, second): low and high where ranged, else value and mask."""
        full = self._full(part)
        if isinstance(match, Range) and part.kind == "range":
            return (True, self._fit(part, match.low), self._fit(part, match.high))
        if isinstance(match, Exact) and part.kind == "exact":
            return (False, self._fit(part, match.value) & full, full)
        if isinstance(match, Lpm) and part.kind == "lpm" and 0 <= match.prefix_len <= part.width:
            mask = self._prefix(part, match.prefix_len) & full
            return (False, self._fit(part, match.value) & mask, mask)
        if isinstance(match, Ternary) and part.kind == "ternary":
            mask = self._fit(part, match.mask) & full
            return (False, self._fit(part, match.value) & mask, mask)
        if isinstance(match, Optional) and part.kind == "ternary":
            return (
                (False, 0, 0) if match.value is None else (False, self._fit(part, match.value) & full, full)
            )
        raise self._misfit(part, match)

    def _fit(self, part: KeyField, value: int) -> int:
        if not 0 <= value < 1 << part.width:
            raise TableEntryError(
                EntryFault.INVALID,
                f"'{part.name}' of table '{self.table.name}' is {part.width} bits wide, got {value}",
            )
        return value

    def _misfit(self, part: KeyField, match: MatchValue) -> TableEntryError:
        return TableEntryError(
            EntryFault.INVALID,
            f"'{part.name}' of table '{self.table.name}' is matched {part.kind}, got {match}",
        )

    @staticmethod
    def _full(part: KeyField) -> int:
        # Not the program's own mask (`a & m : exact`): packets meet it, entries beyond it match nothing.
        return (1 << part.width) - 1

    @staticmethod
    def _prefix(part: KeyField, length: int) -> int:
        return ((1 << length) - 1) << (part.width - length)

    def _place(self, identity: tuple[object, ...], entry: TableEntry, outcome: Outcome) -> None:
        if self._profile is not None:
            old = self._entries.get(identity)
            self._link(identity, None if old is None else old[0], entry)
        self._entries[identity] = (entry, outcome)
        self._reindex(identity, outcome)

    def _reindex(self, identity: tuple[object, ...], outcome: Outcome | None) -> None:
        """Bring the lookup structures up to date with one entry written, or removed where None."""
        if self.table.kind == "exact":
            self._update(self.fast, identity[0] if len(identity) == 1 else identity, outcome)
            return
        self.fast.clear()
        if self.table.kind == "lpm":
            self._reindex_prefix(identity, outcome)
        else:
            self._ranked_stale = True

    def _rank(self) -> None:
        """Order the entries for lookup; once for many writes."""
        ranked = sorted(self._entries.values(), key=lambda item: -item[0].priority)
        self._ranked = [
            (
                tuple(self._condition(p, m) for p, m in zip(self.table.key, entry.match, strict=True)),
                found,
            )
            for entry, found in ranked
        ]
        self._ranked_stale = False

    def _reindex_prefix(self, identity: tuple[object, ...], outcome: Outcome | None) -> None:
        pair = identity[self._lpm]
        assert isinstance(pair, tuple)
        value, length = pair
        masked = (*identity[: self._lpm], value, *identity[self._lpm + 1 :])
        self._update(self._by_prefix.setdefault(length, {}), masked, outcome)
        if not self._by_prefix[length]:
            del self._by_prefix[length]
        part = self.table.key[self._lpm]
        self._prefixes = [(n, self._prefix(part, n)) for n in sorted(self._by_prefix, reverse=True)]

    @staticmethod
    def _update(
        index: dict[Key, Outcome] | dict[tuple[int, ...], Outcome], key: object, outcome: object
    ) -> None:
        untyped: dict[object, object] = index  # type: ignore[assignment]
        if outcome is None:
            del untyped[key]
        else:
            untyped[key] = outcome
