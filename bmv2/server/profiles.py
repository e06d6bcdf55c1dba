# SPDX-License-Identifier: Apache-2.0
"""Action profiles as clients write them: members, groups, and action sets written in one shot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from finsy.proto import p4r

from bmv2.entries import GroupMember
from bmv2.profiles import MAX_PLACES
from bmv2.server.codec import decode_call, encode_call
from bmv2.server.dataplane import Effect
from bmv2.server.errors import (
    ALREADY_EXISTS,
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    StatusError,
    invalid,
)
from bmv2.server.lookup import find, find_all
from bmv2.server.resources import ProfileInfo
from bmv2.server.schema import Schema
from bmv2.server.values import canonical, encode_uint

Call: TypeAlias = tuple[str, tuple[int, ...]]

# Tells whether the device has a port of that number.
PortTest: TypeAlias = Callable[[int], bool]
_PORT_BITS = 9
# Ids of what one-shot entries are made of: beyond P4Runtime's 32 bits, so they never meet a client's.
_FIRST_OWN_ID = 1 << 32


@dataclass(slots=True)
class _State:
    members: dict[int, Call] = field(default_factory=dict)
    groups: dict[int, tuple[tuple[GroupMember, ...], int]] = field(default_factory=dict)
    uses: dict[tuple[str, int], int] = field(default_factory=dict)
    one_shots: int = 0
    next_own_id: int = _FIRST_OWN_ID


@dataclass(frozen=True, slots=True)
class OneShot:
    """An action set as written, the group it became, and its members; `message` is what reads give."""

    group: int
    members: tuple[tuple[int, Call], ...]
    parts: tuple[GroupMember, ...]
    message: p4r.ActionProfileActionSet


def any_port(port: int) -> bool:
    """Tell that every port that a program can name exists."""
    return 1 <= port < 1 << _PORT_BITS


class ProfileStore:
    """The members and groups of a pipeline's action profiles. Not thread-safe: its owner holds a lock."""

    def __init__(self, schema: Schema, port_exists: PortTest) -> None:
        self._schema = schema
        self._port_exists = port_exists
        self._states = {profile_id: _State() for profile_id in schema.profiles}

    def profile(self, profile_id: int) -> ProfileInfo:
        """Find a profile by id; StatusError (NOT_FOUND) with the known ones if there is none."""
        return find(self._schema.profiles, profile_id, "action profile")

    def apply_member(self, kind: int, message: p4r.ActionProfileMember) -> Effect:
        """Check and keep a member's update. Raises StatusError, nothing changed, if not acceptable."""
        profile = self.profile(message.action_profile_id)
        state, member = self._states[profile.id], message.member_id
        what = f"action profile {profile.name}, member {member}"
        if member == 0:
            raise invalid(f"{what}: id 0 means any member; ids start at 1")
        if kind == p4r.Update.INSERT and member in state.members:
            raise StatusError(ALREADY_EXISTS, f"{what}: exists")
        if kind != p4r.Update.INSERT and member not in state.members:
            raise StatusError(NOT_FOUND, f"{what}: does not exist")
        if kind == p4r.Update.DELETE:
            if state.uses.get(("member", member)):
                raise StatusError(FAILED_PRECONDITION, f"{what}: a group or an entry refers to it")
            del state.members[member]
            return lambda plane: plane.switch.delete_member(profile.name, member)
        action, params = self._call(profile, message.action, what)
        if kind == p4r.Update.INSERT:
            self._check_style(profile, one_shot=False)
            if profile.size and len(state.members) >= profile.size:
                raise StatusError(RESOURCE_EXHAUSTED, f"{what}: all {profile.size} members are used")
            state.members[member] = (action, params)
            return lambda plane: plane.switch.add_member(profile.name, member, action, params)
        state.members[member] = (action, params)
        return lambda plane: plane.switch.modify_member(profile.name, member, action, params)

    def _call(self, profile: ProfileInfo, message: p4r.Action, what: str) -> Call:
        if not message.action_id:
            raise invalid(f"{what}: an action is needed")
        tables = [self._schema.tables[key] for key in profile.table_ids if key in self._schema.tables]
        allowed = frozenset().union(*(table.entry_actions for table in tables))
        barred = frozenset().union(*(table.default_actions for table in tables))
        return decode_call(self._schema, message, allowed, barred, what)

    def apply_group(self, kind: int, message: p4r.ActionProfileGroup) -> Effect:
        """Check and keep a group's update. Raises StatusError, nothing changed, if not acceptable."""
        profile = self.profile(message.action_profile_id)
        state, group = self._states[profile.id], message.group_id
        what = f"action profile {profile.name}, group {group}"
        if not profile.selector:
            raise invalid(f"{what}: the profile has no selector, and so no groups")
        if group == 0:
            raise invalid(f"{what}: id 0 means any group; ids start at 1")
        if kind == p4r.Update.INSERT and group in state.groups:
            raise StatusError(ALREADY_EXISTS, f"{what}: exists")
        if kind != p4r.Update.INSERT and group not in state.groups:
            raise StatusError(NOT_FOUND, f"{what}: does not exist")
        if kind == p4r.Update.DELETE:
            if state.uses.get(("group", group)):
                raise StatusError(FAILED_PRECONDITION, f"{what}: an entry refers to it")
            _use_members(state, state.groups.pop(group)[0], -1)
            return lambda plane: plane.switch.delete_group(profile.name, group)
        size = message.max_size
        if kind == p4r.Update.MODIFY and size != state.groups[group][1]:
            raise invalid(f"{what}: its max_size is {state.groups[group][1]} since its insertion, not {size}")
        if size < 0 or (profile.max_group_size and not 1 <= size <= profile.max_group_size):
            raise invalid(f"{what}: max_size {size} is not in 1..{profile.max_group_size or 'any'}")
        if profile.weights and size > MAX_PLACES:
            raise StatusError(
                RESOURCE_EXHAUSTED, f"{what}: max_size {size}; at most {MAX_PLACES} can be held"
            )
        parts = tuple(
            GroupMember(part.member_id, _weight(profile, part, what), self._watch_port(part, what))
            for part in message.members
        )
        if len({part.member for part in parts}) != len(parts):
            raise invalid(f"{what}: a member is given twice; use its weight")
        for part in parts:
            if part.member not in state.members:
                raise StatusError(NOT_FOUND, f"{what}: member {part.member} does not exist")
        _check_size(profile, parts, size, RESOURCE_EXHAUSTED, what)
        if kind == p4r.Update.INSERT:
            self._check_style(profile, one_shot=False)
        _use_members(state, parts, 1)
        _use_members(state, state.groups.get(group, ((), 0))[0], -1)
        state.groups[group] = (parts, size)
        if kind == p4r.Update.INSERT:
            return lambda plane: plane.switch.add_group(profile.name, group, parts)
        return lambda plane: plane.switch.modify_group(profile.name, group, parts)

    def check_reference(self, profile: ProfileInfo, kind: str, number: int) -> None:
        """Raise StatusError unless a table entry may refer to that member or group."""
        state = self._states[profile.id]
        what = f"action profile {profile.name}, {kind} {number}"
        if kind == "group" and not profile.selector:
            raise invalid(f"{what}: the profile has no selector, and so no groups")
        self._check_style(profile, one_shot=False)
        if number not in (state.members if kind == "member" else state.groups):
            raise StatusError(NOT_FOUND, f"{what}: does not exist")

    def use(self, profile: ProfileInfo, kind: str, number: int, by: int) -> None:
        """Count a table's entry that refers to a member or group, or no longer does (`by` -1)."""
        _use(self._states[profile.id], kind, number, by)

    def one_shot(self, profile: ProfileInfo, message: p4r.ActionProfileActionSet, what: str) -> OneShot:
        """Check an action set and give it ids. Raises StatusError where it is not acceptable."""
        if not profile.selector:
            raise invalid(f"{what}: action sets need a profile with a selector")
        self._check_selection(profile, message, what)
        self._check_style(profile, one_shot=True)
        state = self._states[profile.id]
        group, next_id = state.next_own_id, state.next_own_id + 1
        members, parts = [], []
        for number, item in enumerate(message.action_profile_actions, start=next_id):
            members.append((number, self._call(profile, item.action, what)))
            weight = _weight(profile, item, what)
            parts.append(GroupMember(number, weight, self._watch_port(item, what)))
        _check_size(profile, parts, profile.max_group_size, INVALID_ARGUMENT, what)
        state.next_own_id = next_id + len(members)
        kept = p4r.ActionProfileActionSet()
        kept.CopyFrom(message)
        for written, (_, call) in zip(kept.action_profile_actions, members, strict=True):
            written.action.CopyFrom(encode_call(self._schema, *call))
            if written.watch_port:
                written.watch_port = canonical(written.watch_port)
        return OneShot(group, tuple(members), tuple(parts), kept)

    def _check_selection(self, profile: ProfileInfo, message: p4r.ActionProfileActionSet, what: str) -> None:
        """Refuse what is not the selector's own way: hashing, and the size as P4Info has it."""
        kind = p4r.ActionProfileActionSet
        own_size = kind.SizeSemantics.SUM_OF_WEIGHTS if profile.weights else kind.SizeSemantics.SUM_OF_MEMBERS
        if message.action_selection_mode not in (0, kind.ActionSelectionMode.HASH):
            raise StatusError(UNIMPLEMENTED, f"{what}: a selector chooses by hash, no other way")
        if message.size_semantics not in (0, own_size):
            raise StatusError(UNIMPLEMENTED, f"{what}: the size semantics are the program's")

    def keep_one_shot(self, profile: ProfileInfo, by: int) -> None:
        """Count an entry written in one shot, or one that has gone (`by` -1)."""
        self._states[profile.id].one_shots += by

    def _check_style(self, profile: ProfileInfo, *, one_shot: bool) -> None:
        state = self._states[profile.id]
        if one_shot and (state.members or state.groups):
            raise invalid(f"action profile {profile.name}: has members or groups; so no action sets")
        if not one_shot and state.one_shots:
            raise invalid(
                f"action profile {profile.name}: its tables are written with action sets; "
                "members and groups cannot be used too"
            )

    def read_members(self, profile_id: int, member: int) -> Iterator[p4r.Entity]:
        """Answer a read of members: 0 is any. Raises StatusError (NOT_FOUND) for one that does not exist."""
        for profile in find_all(self._schema.profiles, profile_id, "action profile"):
            members = self._states[profile.id].members
            if member and member not in members and profile_id:
                raise StatusError(NOT_FOUND, f"action profile {profile.name}: has no member {member}")
            for number, (action, params) in members.items():
                if member in (0, number):
                    answer = p4r.ActionProfileMember(action_profile_id=profile.id, member_id=number)
                    answer.action.CopyFrom(encode_call(self._schema, action, params))
                    yield p4r.Entity(action_profile_member=answer)

    def read_groups(self, profile_id: int, group: int) -> Iterator[p4r.Entity]:
        """Answer a read of groups: 0 is any. Raises StatusError (NOT_FOUND) for one that does not exist."""
        for profile in find_all(self._schema.profiles, profile_id, "action profile"):
            groups = self._states[profile.id].groups
            if group and group not in groups and profile_id:
                raise StatusError(NOT_FOUND, f"action profile {profile.name}: has no group {group}")
            for number, (parts, size) in groups.items():
                if group in (0, number):
                    answer = p4r.ActionProfileGroup(
                        action_profile_id=profile.id, group_id=number, max_size=size
                    )
                    for part in parts:
                        weight = 0 if profile.weights_disallowed else part.weight
                        item = answer.members.add(member_id=part.member, weight=weight)
                        if part.watch_port is not None:
                            item.watch_port = encode_uint(part.watch_port)
                    yield p4r.Entity(action_profile_group=answer)

    def _watch_port(
        self, item: p4r.ActionProfileGroup.Member | p4r.ActionProfileAction, what: str
    ) -> int | None:
        kind = item.WhichOneof("watch_kind")
        if kind is None or (kind == "watch_port" and not item.watch_port):
            return None
        port = item.watch if kind == "watch" else int.from_bytes(item.watch_port, "big")
        if not self._port_exists(port):
            raise invalid(f"{what}: watch port {port} is no port of this device")
        return port


def _use(state: _State, kind: str, number: int, by: int) -> None:
    uses = state.uses.pop((kind, number), 0) + by
    if uses:
        state.uses[kind, number] = uses


def _use_members(state: _State, parts: Iterable[GroupMember], by: int) -> None:
    """Count a group that refers to its members, or no longer does (`by` -1)."""
    for part in parts:
        _use(state, "member", part.member, by)


def _weight(
    profile: ProfileInfo, item: p4r.ActionProfileGroup.Member | p4r.ActionProfileAction, what: str
) -> int:
    """A member's share: what the client says, or the same for all where P4Info disallows weights."""
    if profile.weights_disallowed:
        if item.weight:
            raise invalid(f"{what}: weight {item.weight}; P4Info disallows weights here, leave it 0")
        return 1
    if item.weight < 1:
        raise invalid(f"{what}: a weight of {item.weight}; it must be 1 or more")
    return item.weight


def _check_size(profile: ProfileInfo, parts: Sequence[GroupMember], limit: int, code: int, what: str) -> None:
    for part in parts:
        if not profile.weights and profile.max_member_weight and part.weight > profile.max_member_weight:
            raise invalid(f"{what}: weight {part.weight} is above {profile.max_member_weight}")
    total = sum(part.weight for part in parts) if profile.weights else len(parts)
    if limit and total > limit:
        raise StatusError(code, f"{what}: {total} members, with their weights, are more than {limit}")
    places = sum(part.weight for part in parts)
    if places > MAX_PLACES:
        raise StatusError(
            RESOURCE_EXHAUSTED, f"{what}: weights of {places} in all; at most {MAX_PLACES} can be held"
        )
