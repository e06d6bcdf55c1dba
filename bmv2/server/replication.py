# SPDX-License-Identifier: Apache-2.0
"""The packet replication engine as clients write it: multicast groups, clone sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from finsy.proto import p4r

from bmv2.server.dataplane import Alternatives, Effect
from bmv2.server.errors import ALREADY_EXISTS, NOT_FOUND, UNIMPLEMENTED, StatusError, invalid
from bmv2.server.values import canonical, decode_uint

_PORT_BITS = 9
_INSTANCE_BITS = 16
_MAX_SESSION = 0x7FFF
# v1model.p4: bit<16> mcast_grp.
_MAX_GROUP = 0xFFFF


class ReplicationStore:
    """Multicast groups and clone sessions of a pipeline. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._groups: dict[int, p4r.MulticastGroupEntry] = {}
        self._sessions: dict[int, p4r.CloneSessionEntry] = {}

    def apply(self, kind: int, message: p4r.PacketReplicationEngineEntry) -> Effect:
        """Check and keep an update. Raises StatusError, nothing changed, where it is not acceptable."""
        which = message.WhichOneof("type")
        if which == "multicast_group_entry":
            return self._apply_group(kind, message.multicast_group_entry)
        if which == "clone_session_entry":
            return self._apply_session(kind, message.clone_session_entry)
        raise invalid("packet replication: it holds neither a multicast group nor a clone session")

    def _apply_group(self, kind: int, message: p4r.MulticastGroupEntry) -> Effect:
        group = message.multicast_group_id
        what = f"multicast group {group}"
        _check_presence(kind, group, self._groups, what)
        if group > _MAX_GROUP:
            raise invalid(f"{what}: ids are in 1..{_MAX_GROUP}")
        if kind == p4r.Update.DELETE:
            del self._groups[group]
            return lambda plane: plane.groups.set(group, ())
        replicas = _replicas(message.replicas, what)
        kept = p4r.MulticastGroupEntry()
        kept.CopyFrom(message)
        _make_canonical(kept.replicas)
        self._groups[group] = kept
        return lambda plane: plane.groups.set(group, replicas)

    def _apply_session(self, kind: int, message: p4r.CloneSessionEntry) -> Effect:
        session = message.session_id
        what = f"clone session {session}"
        _check_presence(kind, session, self._sessions, what)
        if session > _MAX_SESSION:
            raise invalid(f"{what}: ids are in 1..{_MAX_SESSION}")
        if kind == p4r.Update.DELETE:
            del self._sessions[session]
            return lambda plane: plane.switch.set_clone_session(session, ())
        if message.class_of_service:
            raise StatusError(UNIMPLEMENTED, f"{what}: v1model has no class of service; leave it 0")
        if message.packet_length_bytes < 0:
            raise invalid(f"{what}: packet_length_bytes {message.packet_length_bytes} is below 0")
        alternatives = _replicas(message.replicas, what)
        if any(len(choices) > 1 for choices in alternatives):
            raise StatusError(UNIMPLEMENTED, f"{what}: backup replicas are for multicast groups")
        replicas = tuple(choices[0] for choices in alternatives)
        length = message.packet_length_bytes
        kept = p4r.CloneSessionEntry()
        kept.CopyFrom(message)
        _make_canonical(kept.replicas)
        self._sessions[session] = kept
        return lambda plane: plane.switch.set_clone_session(session, replicas, length)

    def read(self, message: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        """Answer a read: id 0 is any. Raises StatusError (NOT_FOUND) for one that does not exist."""
        if message.WhichOneof("type") == "clone_session_entry":
            wanted = message.clone_session_entry.session_id
            if wanted and wanted not in self._sessions:
                raise StatusError(NOT_FOUND, f"clone session {wanted} does not exist")
            for session, entry in self._sessions.items():
                if wanted in (0, session):
                    answer = p4r.PacketReplicationEngineEntry(clone_session_entry=entry)
                    yield p4r.Entity(packet_replication_engine_entry=answer)
            return
        wanted = message.multicast_group_entry.multicast_group_id
        if wanted and wanted not in self._groups:
            raise StatusError(NOT_FOUND, f"multicast group {wanted} does not exist")
        for group, known in self._groups.items():
            if wanted in (0, group):
                answer = p4r.PacketReplicationEngineEntry(multicast_group_entry=known)
                yield p4r.Entity(packet_replication_engine_entry=answer)

    def entities(self) -> Iterator[p4r.Entity]:
        """All groups and sessions."""
        yield from self.read(p4r.PacketReplicationEngineEntry())
        sessions = p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry())
        yield from self.read(sessions)


def _replicas(messages: Sequence[p4r.Replica], what: str) -> tuple[Alternatives, ...]:
    replicas = []
    for message in messages:
        if message.WhichOneof("port_kind") == "port":
            first = _place(decode_uint(message.port, _PORT_BITS, f"{what}, replica"), message.instance, what)
        else:
            first = _place(message.egress_port, message.instance, what)
        backups = [
            _place(decode_uint(backup.port, _PORT_BITS, f"{what}, backup replica"), backup.instance, what)
            for backup in message.backup_replicas
        ]
        if first[0] in (port for port, _ in backups):
            raise invalid(f"{what}: a replica and its backup have the same port {first[0]}")
        replicas.append((first, *backups))
    places = [place for choices in replicas for place in choices]
    if len(set(places)) != len(places):
        raise invalid(f"{what}: a pair of port and instance is given twice")
    return tuple(replicas)


def _make_canonical(replicas: Iterable[p4r.Replica]) -> None:
    """Write the ports in the shortest form (8.3)."""
    for replica in replicas:
        if replica.WhichOneof("port_kind") == "port":
            replica.port = canonical(replica.port)
        for backup in replica.backup_replicas:
            backup.port = canonical(backup.port)


def _place(port: int, instance: int, what: str) -> tuple[int, int]:
    if not 1 <= port < 1 << _PORT_BITS:
        raise invalid(f"{what}, replica: port {port} is not in 1..{(1 << _PORT_BITS) - 1}")
    if instance >> _INSTANCE_BITS:
        raise invalid(f"{what}, replica: instance {instance} does not fit into {_INSTANCE_BITS} bits")
    return port, instance


def _check_presence(kind: int, number: int, known: Collection[int], what: str) -> None:
    if number == 0:
        raise invalid(f"{what}: id 0 means any; ids start at 1")
    if kind == p4r.Update.INSERT and number in known:
        raise StatusError(ALREADY_EXISTS, f"{what} exists")
    if kind != p4r.Update.INSERT and number not in known:
        raise StatusError(NOT_FOUND, f"{what} does not exist")
