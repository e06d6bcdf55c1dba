# SPDX-License-Identifier: Apache-2.0
"""Parser value sets: the control plane sets their members, and the parser looks keys up in them.

In BMv2 members are exact, and the mask of a transition (p4c writes none) applies to the members and to the
key. P4's `@match` gives the fields of a set other match kinds. BMv2 ignores it; here such members match by
their kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .entries import EntryFault, Exact, Lpm, MatchValue, Optional, TableEntryError, Ternary
from .ir import ValueSet

# A member: for each part of the key how it matches, or the integer that it must be.
Member: TypeAlias = tuple[int | MatchValue, ...]
# Answers a view remembers before it begins anew: a stream of random keys must not fill the memory.
_REMEMBERED = 1 << 16


@dataclass(frozen=True, slots=True)
class _Test:
    """A member over the whole key: value under mask, and (shift, ones, low, high) of each range."""

    value: int
    mask: int
    ranges: tuple[tuple[int, int, int, int], ...]

    def holds(self, key: int, under: int) -> bool:
        mask = self.mask & under
        return key & mask == self.value & mask and all(
            low <= key >> shift & ones <= high for shift, ones, low, high in self.ranges
        )


class MaskedView(dict[int, bool]):
    """Whether a value set, under one mask, contains a key. Answers are cached until the set changes."""

    def __init__(self, mask: int) -> None:
        super().__init__()
        self._mask = mask
        self._exact: frozenset[int] = frozenset()
        self._others: tuple[_Test, ...] = ()

    def fill(self, tests: Iterable[_Test], full: int) -> None:
        """Replace the members; `full` is the mask of a whole key."""
        tests = tuple(tests)
        self._exact = frozenset(
            test.value & self._mask for test in tests if test.mask == full and not test.ranges
        )
        self._others = tuple(test for test in tests if test.mask != full or test.ranges)
        self.clear()

    def __missing__(self, key: int) -> bool:
        """Compute the answer for a key that is not in the cache."""
        under = key & self._mask
        found = under in self._exact or any(test.holds(under, self._mask) for test in self._others)
        if len(self) >= _REMEMBERED:
            self.clear()
        self[key] = found
        return found


class MemberSet:
    """One value set's members, and the views of it that the parser has."""

    def __init__(self, known: ValueSet) -> None:
        self._known = known
        self._full = (1 << sum(known.widths)) - 1
        self._members: dict[Member, _Test] = {}
        self._views: dict[int, MaskedView] = {}

    def view(self, mask: int | None) -> MaskedView:
        """The set under a mask over the whole key; None is no mask."""
        mask = self._full if mask is None else mask
        if mask not in self._views:
            view = self._views[mask] = MaskedView(mask)
            view.fill(self._members.values(), self._full)
        return self._views[mask]

    def members(self) -> tuple[Member, ...]:
        """The members as they were given."""
        return tuple(self._members)

    def replace(self, members: Iterable[Member]) -> None:
        """Replace all members; TableEntryError where one does not fit or they are too many."""
        tests = {member: self._test(member) for member in members}
        size = self._known.size
        if size is not None and len(tests) > size:
            raise TableEntryError(
                EntryFault.FULL, f"value set '{self._known.name}' takes {size} members, got {len(tests)}"
            )
        self._members = tests
        for view in self._views.values():
            view.fill(tests.values(), self._full)

    def insert(self, member: Member) -> None:
        """Add a member; TableEntryError where the set holds it already."""
        if member in self._members:
            raise TableEntryError(EntryFault.EXISTS, f"value set '{self._known.name}' holds {member} already")
        self.replace((*self._members, member))

    def _test(self, member: Member) -> _Test:
        name, widths = self._known.name, self._known.widths
        if len(member) != len(widths):
            raise TableEntryError(
                EntryFault.INVALID, f"value set '{name}' has {len(widths)} fields, got {len(member)}"
            )
        value = mask = 0
        ranges: list[tuple[int, int, int, int]] = []
        below = sum(widths)
        for part, width in zip(member, widths, strict=True):
            below -= width
            ones = (1 << width) - 1
            match = Exact(part) if isinstance(part, int) else part
            for number in _numbers(match):
                if not 0 <= number <= ones:
                    raise TableEntryError(
                        EntryFault.INVALID,
                        f"a field of value set '{name}' is {width} bits wide, got {number}",
                    )
            bits, under = _ternary(match, width)
            value, mask = value << width | bits & under, mask << width | under
            if not isinstance(match, Exact | Lpm | Ternary | Optional):
                ranges.append((below, ones, match.low, match.high))
        return _Test(value, mask, tuple(ranges))


def member_sets(known: Mapping[str, ValueSet]) -> dict[str, MemberSet]:
    """An empty set of members for each value set of a program."""
    return {name: MemberSet(value_set) for name, value_set in known.items()}


def _numbers(match: MatchValue) -> tuple[int, ...]:
    if isinstance(match, Exact | Lpm):
        return (match.value,)
    if isinstance(match, Ternary):
        return (match.value, match.mask)
    if isinstance(match, Optional):
        return () if match.value is None else (match.value,)
    return (match.low, match.high)


def _ternary(match: MatchValue, width: int) -> tuple[int, int]:
    """A match as value and mask; nothing of a range."""
    ones = (1 << width) - 1
    if isinstance(match, Exact):
        return match.value, ones
    if isinstance(match, Lpm):
        return match.value, ones & ~(ones >> match.prefix_len)
    if isinstance(match, Ternary):
        return match.value, match.mask
    if isinstance(match, Optional) and match.value is not None:
        return match.value, ones
    return 0, 0
