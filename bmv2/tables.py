# SPDX-License-Identifier: Apache-2.0
"""Match-action tables at run time: what the control plane changes and the generated code looks up."""

from __future__ import annotations

from typing import TypeAlias

from .entries import EntryError, EntryFault, Exact, Lpm, MatchValue, Optional, Range, TableEntry, Ternary
from .ir import KeyField, Table

# What a lookup yields: index of the action in the table, 1 for a hit, the entry's [packets, bytes] or
# None, then the action's parameters. A flat tuple, for generated code indexes it on every packet.
Outcome: TypeAlias = tuple[object, ...]
Key: TypeAlias = int | tuple[int, ...]
NO_ACTION = -1
FIRST_PARAM = 3
_MEMO_LIMIT = 65536


class MatchTable:
    """One table of one switch.

    `fast` maps keys (an integer, or a tuple for several fields) to outcomes and keeps its identity for
    ever: generated code binds its `get`. For exact tables it is the table; for the others it remembers
    what `lookup` found, and is emptied by every change.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.fast: dict[Key, Outcome] = {}
        self.default: list[Outcome] = [(NO_ACTION, 0, None)]
        self._actions = {name: index for index, name in enumerate(table.actions)}
        self._entries: dict[tuple[object, ...], tuple[TableEntry, Outcome]] = {}
        self._by_prefix: dict[int, dict[tuple[int, ...], Outcome]] = {}
        self._prefixes: list[tuple[int, int]] = []
        self._ranked: list[tuple[tuple[tuple[bool, int, int], ...], Outcome]] = []
        self._ranked_stale = False
        self._lpm = next((i for i, part in enumerate(table.key) if part.kind == "lpm"), 0)
        self.constant = False
        self._set_program_default()
        for entry in table.const_entries or ():
            self.insert(entry)
        self.constant = table.const_entries is not None

    def insert(self, entry: TableEntry) -> None:
        """Add an entry; EntryError if it exists or does not fit, or the table is full or constant."""
        identity = self._identity(entry)
        self._check_writable()
        if identity in self._entries:
            raise EntryError(EntryFault.EXISTS, f"table '{self.table.name}' holds this match already")
        if len(self._entries) >= self.table.size:
            raise EntryError(
                EntryFault.FULL, f"table '{self.table.name}' is full ({self.table.size} entries)"
            )
        counter = [0, 0] if self.table.direct_counter else None
        self._place(identity, entry, self._outcome(entry.action, entry.params, 1, counter))

    def modify(self, entry: TableEntry) -> None:
        """Change the action of an entry that is there; its direct counter goes on."""
        identity = self._identity(entry)
        self._check_writable()
        counter = self._existing(identity)[1][2]
        self._place(identity, entry, self._outcome(entry.action, entry.params, 1, counter))

    def delete(self, entry: TableEntry) -> None:
        """Remove the entry with this match (and priority)."""
        identity = self._identity(entry)
        self._check_writable()
        self._existing(identity)
        del self._entries[identity]
        self._reindex(identity, None)

    def set_default(self, action: str | None, params: tuple[int, ...]) -> None:
        """Set what a miss does; None goes back to the program's own default."""
        program = self.table.default
        if program is not None and action is not None:
            if program.const_entry and (action, params) != (program.action, program.params):
                raise EntryError(EntryFault.CONSTANT, f"the default of table '{self.table.name}' is constant")
            if program.const_action and action != program.action:
                raise EntryError(
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
        """The direct counter [packets, bytes] of an entry, itself and not a copy."""
        counter = self._existing(self._identity(entry))[1][2]
        if not isinstance(counter, list):
            raise EntryError(EntryFault.INVALID, f"table '{self.table.name}' has no direct counter")
        return counter

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
            raise EntryError(
                EntryFault.INVALID,
                f"table '{self.table.name}' has no action '{action}'; it has: {', '.join(self._actions)}",
            )
        expected = self.table.actions[action].params
        if len(expected) != len(params):
            raise EntryError(
                EntryFault.INVALID, f"action '{action}' takes {len(expected)} parameters, got {len(params)}"
            )
        for (name, width), value in zip(expected, params, strict=True):
            if not 0 <= value < 1 << width:
                raise EntryError(
                    EntryFault.INVALID, f"parameter '{name}' of '{action}' is {width} bits wide, got {value}"
                )
        return (self._actions[action], hit, counter, *params)

    def _check_writable(self) -> None:
        if self.constant:
            raise EntryError(EntryFault.CONSTANT, f"the entries of table '{self.table.name}' are constant")

    def _existing(self, identity: tuple[object, ...]) -> tuple[TableEntry, Outcome]:
        found = self._entries.get(identity)
        if found is None:
            raise EntryError(EntryFault.MISSING, f"table '{self.table.name}' holds no such match")
        return found

    def _identity(self, entry: TableEntry) -> tuple[object, ...]:
        key = self.table.key
        if not key or len(entry.match) != len(key):
            raise EntryError(
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
            raise EntryError(
                EntryFault.INVALID,
                f"'{part.name}' of table '{self.table.name}' is {part.width} bits wide, got {value}",
            )
        return value

    def _misfit(self, part: KeyField, match: MatchValue) -> EntryError:
        return EntryError(
            EntryFault.INVALID,
            f"'{part.name}' of table '{self.table.name}' is matched {part.kind}, got {match}",
        )

    @staticmethod
    def _full(part: KeyField) -> int:
        return (1 << part.width) - 1 if part.mask is None else part.mask

    @staticmethod
    def _prefix(part: KeyField, length: int) -> int:
        return ((1 << length) - 1) << (part.width - length)

    def _place(self, identity: tuple[object, ...], entry: TableEntry, outcome: Outcome) -> None:
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
