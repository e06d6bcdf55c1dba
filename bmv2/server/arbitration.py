# SPDX-License-Identifier: Apache-2.0
"""Client arbitration: which of several controllers is the primary (P4Runtime 1.5, chapter 5)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakSet

from finsy.proto import U128, p4r, rpc_status

from bmv2.server.errors import (
    ALREADY_EXISTS,
    FAILED_PRECONDITION,
    NOT_FOUND,
    OK,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    StatusError,
    invalid,
)

# The highest election id of a role is remembered for ever, so their number and their names have a limit.
# Chosen: more than there are controllers of one device, at some megabytes.
_MAX_ROLES = 4096
_MAX_ROLE_BYTES = 256


class ControllerStream(Protocol):
    """A client's open stream, as far as arbitration needs it."""

    def send(self, message: p4r.StreamMessageResponse, *, lossy: bool = False, size: int = 0) -> int:
        """Queue a message of `size` bytes to the client; gives the older, lossy ones that are lost for it.

        Never blocks.
        """


@dataclass(slots=True)
class _Role:
    """`highest` is the highest election id ever received. `writable` is off while a takeover waits."""

    role: p4r.Role | None
    highest: int | None = None
    primary: ControllerStream | None = None
    writable: bool = True
    members: dict[ControllerStream, int | None] = field(default_factory=dict)


class Arbiter:
    """The elections of one device, one per role. Thread-safe.

    The primary of a role is the stream that sent the highest election id ever received for that role. When it
    closes, the role has no primary until a client sends an id at least as high. A client without an election
    id is always a backup; id 0 is an id like any other.
    """

    def __init__(self, device_id: int, finish_writes: Callable[[], None] = lambda: None) -> None:
        """`finish_writes` returns when no write is being processed that has passed `check_primary`."""
        self._device_id = device_id
        self._finish_writes = finish_writes
        # One election at a time; it may wait for writes, so it is not the lock under which they are checked.
        self._electing = threading.Lock()
        self._lock = threading.Lock()
        self._roles: dict[str, _Role] = {}
        self._role_of: dict[ControllerStream, str] = {}
        # A stream may end while its last message is still on its way here.
        self._left: WeakSet[ControllerStream] = WeakSet()

    def check_device(self, device_id: int) -> None:
        """Raise StatusError (NOT_FOUND) unless it is this device's id."""
        if device_id != self._device_id:
            raise StatusError(
                NOT_FOUND, f"device {device_id} is not here; this server has device {self._device_id}"
            )

    def check_primary(self, role: str, election_id: int | None) -> None:
        """Raise StatusError unless that election id is the live primary's of the role.

        NOT_FOUND for a role that no client ever had, PERMISSION_DENIED else. None: the id is unset.
        """
        with self._lock:
            state = self._roles.get(role)
            if state is None and role:
                known = ", ".join(repr(name) for name in self._roles if name) or "none but the default one"
                raise StatusError(NOT_FOUND, f"role {role!r} is unknown; known: {known}")
            if state is None or not state.writable or not _is_primary(state, election_id):
                said = "unset, and so no" if election_id is None else f"{election_id}, and that is not the"
                raise StatusError(
                    PERMISSION_DENIED,
                    f"the election id is {said} primary's of role {role or 'default'!r}",
                )

    def primary(self, role: str = "") -> ControllerStream | None:
        """Find the stream of a role's primary; the default role has no name."""
        with self._lock:
            state = self._roles.get(role)
            return None if state is None else state.primary

    def is_primary(self, stream: ControllerStream) -> bool:
        """Tell whether the stream is the primary of its role."""
        with self._lock:
            name = self._role_of.get(stream)
            return name is not None and self._roles[name].primary is stream

    def role_of(self, stream: ControllerStream) -> str | None:
        """Tell the role for which a stream has arbitrated; None before."""
        with self._lock:
            return self._role_of.get(stream)

    def update(self, stream: ControllerStream, message: p4r.MasterArbitrationUpdate) -> None:
        """Enter a stream into the election, or change its election id, and tell all whom it concerns.

        Raises StatusError, after which the stream must be closed: NOT_FOUND for another device (of a
        stream's first message, FAILED_PRECONDITION of a later one), FAILED_PRECONDITION for a change of
        role, INVALID_ARGUMENT for an election id that is in use, for a role definition or a name too long,
        RESOURCE_EXHAUSTED for one role more than are remembered.
        """
        if self.role_of(stream) is not None and message.device_id != self._device_id:
            raise StatusError(FAILED_PRECONDITION, "a stream cannot change its device; open another stream")
        self.check_device(message.device_id)
        if message.role.HasField("config"):
            raise invalid("role.config: no scheme of role definitions is agreed here; leave it unset")
        name = message.role.name
        if len(name.encode()) > _MAX_ROLE_BYTES:
            raise invalid(f"role.name: {len(name.encode())} bytes; at most {_MAX_ROLE_BYTES}")
        election_id = given_election_id(message)
        with self._electing:
            with self._lock:
                if stream in self._left:
                    return
                state = self._enter(stream, name, election_id, message)
                wins = election_id is not None and (state.highest is None or election_id >= state.highest)
                if not wins:
                    lost_primary = state.primary is stream
                    if lost_primary:
                        state.primary = None
                    self._notify(state, list(state.members) if lost_primary else [stream])
                    return
                same = state.primary is stream and state.highest == election_id
                if not same:
                    # From here on the old primary's writes are refused; those under way end before the new
                    # one hears that it is the primary.
                    state.writable = False
                    state.highest, state.primary = election_id, stream
                    self._notify(state, [member for member in state.members if member is not stream])
            if not same:
                self._finish_writes()
            with self._lock:
                state.writable = True
                if stream in state.members:
                    self._notify(state, [stream])

    def _enter(
        self,
        stream: ControllerStream,
        name: str,
        election_id: int | None,
        message: p4r.MasterArbitrationUpdate,
    ) -> _Role:
        """Take a stream into the role, or note its new election id. Raises StatusError as `update` does."""
        if self._role_of.get(stream, name) != name:
            raise StatusError(FAILED_PRECONDITION, "a stream cannot change its role; open another stream")
        state = self._roles.get(name)
        if state is None:
            if name and len(self._roles) - ("" in self._roles) >= _MAX_ROLES:
                said = f"role {name!r}: {_MAX_ROLES} others are known, which is all"
                raise StatusError(RESOURCE_EXHAUSTED, said)
            state = _Role(message.role if message.HasField("role") else None)
        users = [member for member, used in state.members.items() if used == election_id]
        if election_id is not None and users and users != [stream]:
            raise invalid(f"Election ID {election_id} is already used by another client of the role.")
        self._roles[name] = state
        self._role_of[stream] = name
        state.members[stream] = election_id
        return state

    def leave(self, stream: ControllerStream) -> None:
        """Take out a stream that has ended; the others hear of it when it was the primary."""
        with self._electing, self._lock:
            self._left.add(stream)
            name = self._role_of.pop(stream, None)
            if name is None:
                return
            state = self._roles[name]
            del state.members[stream]
            if state.primary is stream:
                state.primary = None
                self._notify(state, list(state.members))

    def _notify(self, state: _Role, streams: list[ControllerStream]) -> None:
        for stream in streams:
            if stream is state.primary:
                status = rpc_status.Status(code=OK, message="you are the primary")
            elif state.primary is not None:
                status = rpc_status.Status(code=ALREADY_EXISTS, message="you are a backup")
            else:
                status = rpc_status.Status(code=NOT_FOUND, message="there is no primary")
            update = p4r.MasterArbitrationUpdate(device_id=self._device_id, role=state.role, status=status)
            if state.highest is not None:
                update.election_id.CopyFrom(U128.encode(state.highest))
            stream.send(p4r.StreamMessageResponse(arbitration=update))


def given_election_id(
    message: p4r.MasterArbitrationUpdate | p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest,
) -> int | None:
    """Read a message's election id; None where it is unset, which is not the same as 0."""
    return U128.decode(message.election_id) if message.HasField("election_id") else None


def _is_primary(state: _Role, election_id: int | None) -> bool:
    return state.primary is not None and state.members[state.primary] == election_id
