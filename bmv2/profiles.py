# SPDX-License-Identifier: Apache-2.0
"""Action profiles at run time: members, groups of members, and the member that each place of a group leads
to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from .entries import EntryFault, GroupMember, TableEntryError
from .ir import ProfileDeclaration

Call = tuple[str, tuple[int, ...]]
Outcome = tuple[object, ...]

# The sum of the weights of a group's members: a group is held as a list of so many places. Chosen: finer
# shares than any selector of hardware has, at half a megabyte a group.
MAX_PLACES = 65_536


class ActionProfile:
    """One action profile or selector.

    Tables register with `attach`: `outcome` makes a table's outcome of an action, `refresh` is called
    after a member has changed. A group's outcomes are one list for each table, changed in place, in the
    order in which BMv2 holds members: that of their handles, the lowest free one for each new member.
    """

    def __init__(self, profile: ProfileDeclaration) -> None:
        self.profile = profile
        self._members: dict[int, Call] = {}
        self._handles: dict[int, int] = {}
        self._free_handles: list[int] = []
        self._groups: dict[int, tuple[GroupMember, ...]] = {}
        # The groups of each member that is in one.
        self._groups_of: dict[int, set[int]] = {}
        self._uses: dict[tuple[str, int], int] = {}
        self._places: list[
            tuple[Callable[[Call], Outcome], Callable[[int], None], dict[int, list[Outcome]]]
        ] = []
        self._down: set[int] = set()

    def attach(
        self, outcome: Callable[[Call], Outcome], refresh: Callable[[int], None]
    ) -> dict[int, list[Outcome]]:
        """Add a table; gives the outcomes of each group, kept up to date."""
        places: dict[int, list[Outcome]] = {}
        self._places.append((outcome, refresh, places))
        return places

    def member(self, member: int) -> Call:
        """The action of a member."""
        if member not in self._members:
            raise self._missing("member", member)
        return self._members[member]

    def group(self, group: int) -> tuple[GroupMember, ...]:
        """The members of a group."""
        if group not in self._groups:
            raise self._missing("group", group)
        return self._groups[group]

    def members(self) -> dict[int, Call]:
        """All members, a copy."""
        return dict(self._members)

    def groups(self) -> dict[int, tuple[GroupMember, ...]]:
        """All groups, a copy."""
        return dict(self._groups)

    def add_member(self, member: int, call: Call) -> None:
        """Add a member."""
        if member in self._members:
            raise self._exists("member", member)
        if self.profile.size and len(self._members) >= self.profile.size:
            raise TableEntryError(
                EntryFault.FULL, f"action profile '{self.profile.name}' is full ({self.profile.size} members)"
            )
        self._check(call)
        self._handles[member] = heappop(self._free_handles) if self._free_handles else len(self._handles)
        self._members[member] = call

    def modify_member(self, member: int, call: Call) -> None:
        """Change the action of a member, for all entries and groups that refer to it."""
        self.member(member)
        self._check(call)
        self._members[member] = call
        for group in self._groups_of.get(member, ()):
            self._fill(group)
        for _, refresh, _ in self._places:
            refresh(member)

    def delete_member(self, member: int) -> None:
        """Remove a member that nothing refers to."""
        self.member(member)
        if self._uses.get(("member", member)) or member in self._groups_of:
            raise self._in_use("member", member)
        del self._members[member]
        heappush(self._free_handles, self._handles.pop(member))

    def add_group(self, group: int, parts: Iterable[GroupMember]) -> None:
        """Add a group, which may be empty."""
        if group in self._groups:
            raise self._exists("group", group)
        self._set_group(group, tuple(parts))

    def modify_group(self, group: int, parts: Iterable[GroupMember]) -> None:
        """Give a group other members."""
        self.group(group)
        self._set_group(group, tuple(parts))

    def delete_group(self, group: int) -> None:
        """Remove a group that no table refers to."""
        self.group(group)
        if self._uses.get(("group", group)):
            raise self._in_use("group", group)
        self._unlink(group)
        del self._groups[group]
        for _, _, places in self._places:
            places.pop(group, None)

    def use(self, kind: str, number: int, by: int) -> None:
        """Count a table entry that begins to refer to a member or group (`by` 1) or stops to (`by` -1)."""
        if by > 0:
            (self.member if kind == "member" else self.group)(number)
        uses = self._uses.pop((kind, number), 0) + by
        if uses:
            self._uses[kind, number] = uses

    def set_port_up(self, port: int, up: bool) -> None:
        """Exclude the members that watch a port from the choice while the port is down."""
        (self._down.discard if up else self._down.add)(port)
        for group, parts in self._groups.items():
            if any(part.watch_port == port for part in parts):
                self._fill(group)

    def _set_group(self, group: int, parts: tuple[GroupMember, ...]) -> None:
        if self.profile.selector is None:
            raise TableEntryError(
                EntryFault.INVALID, f"action profile '{self.profile.name}' has no selector, and so no groups"
            )
        for part in parts:
            self.member(part.member)
            if part.weight < 1:
                raise TableEntryError(EntryFault.INVALID, f"a weight is at least 1, got {part.weight}")
        if len({part.member for part in parts}) != len(parts):
            raise TableEntryError(EntryFault.INVALID, f"group {group} holds a member twice; use its weight")
        total = sum(part.weight for part in parts)
        if total > MAX_PLACES:
            raise TableEntryError(
                EntryFault.FULL, f"the weights of a group are at most {MAX_PLACES} in all, got {total}"
            )
        self._unlink(group)
        self._groups[group] = parts
        for part in parts:
            self._groups_of.setdefault(part.member, set()).add(group)
        self._fill(group)

    def _unlink(self, group: int) -> None:
        """Note that a group's members are in it no longer."""
        for part in self._groups.get(group, ()):
            groups = self._groups_of[part.member]
            groups.discard(group)
            if not groups:
                del self._groups_of[part.member]

    def _fill(self, group: int) -> None:
        parts = sorted(self._groups[group], key=lambda part: self._handles[part.member])
        calls = [
            self._members[part.member]
            for part in parts
            if part.watch_port not in self._down
            for _ in range(part.weight)
        ]
        for outcome, _, places in self._places:
            places.setdefault(group, [])[:] = [outcome(call) for call in calls]

    def _check(self, call: Call) -> None:
        for outcome, _, _ in self._places:
            outcome(call)

    def _missing(self, kind: str, number: int) -> TableEntryError:
        return TableEntryError(
            EntryFault.MISSING, f"action profile '{self.profile.name}' has no {kind} {number}"
        )

    def _exists(self, kind: str, number: int) -> TableEntryError:
        return TableEntryError(
            EntryFault.EXISTS, f"action profile '{self.profile.name}' has a {kind} {number} already"
        )

    def _in_use(self, kind: str, number: int) -> TableEntryError:
        return TableEntryError(
            EntryFault.IN_USE, f"{kind} {number} of action profile '{self.profile.name}' is referred to"
        )
