# SPDX-License-Identifier: Apache-2.0
"""A plain interpreter of a program, node by node. It is the oracle of the generated code and carries no
traffic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .entries import TableEntry
from .ir import Conditional, FieldRef, KeyField, Pipeline, Table
from .meters import Meter
from .reference_parser import Parser
from .reference_steps import StoppedError
from .reference_values import Packet, evaluate, match_rank
from .structures import LOOSE, REQUESTS

_KIND = "standard_metadata.instance_type"
INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 1, 2, 4, 5, 6

# A frame that comes again: what it is, the number of its field list, the values of that list's fields.
Back = tuple[int, int, tuple[int, ...]]


@dataclass
class Reference(Parser):
    """A program and its state; ports, queues and time are the caller's.

    `sessions` are the replicas of each clone session, (port, rid), and the bytes its clones keep (0: all).
    What a packet causes besides its own copies is collected: `digests` (name, values), `again` (port,
    frame, back) for frames that come again, `clones` (port, priority, packet) of egress.
    """

    entries: dict[str, list[TableEntry]] = field(default_factory=dict)
    defaults: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    groups: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    sessions: dict[int, tuple[tuple[tuple[int, int], ...], int]] = field(default_factory=dict)
    direct: dict[tuple[str, TableEntry], list[int]] = field(default_factory=dict)
    direct_meters: dict[tuple[str, TableEntry], Meter] = field(default_factory=dict)
    members: dict[tuple[str, int], tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    member_groups: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    digests: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    again: list[tuple[int, bytes, Back]] = field(default_factory=list)
    clones: list[tuple[int, int, Packet]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Set counters, registers, and the program's own entries and defaults."""
        super().__post_init__()
        for table in self.ir.tables():
            self.entries.setdefault(table.name, list(table.initial_entries or ()))
            if table.default is not None:
                self.defaults.setdefault(table.name, (table.default.action, table.default.params))

    def _arrive(self, port: int, frame: bytes, now: int) -> Packet:
        metadata = {h.name for h in self.ir.headers.values() if h.metadata}
        packet = Packet({}, metadata, frame, 0, len(frame), now, registers=self.registers)
        for header in self.ir.headers.values():
            packet.values.update({(header.name, name): 0 for name in header.fields})
        self._give(packet, "standard_metadata.ingress_port", port)
        return packet

    def ingress(
        self, port: int, frame: bytes, now: int, back: Back | None = None
    ) -> list[tuple[int, int, Packet]]:
        """What a frame becomes: (port, priority, packet) of each copy; `now` in microseconds."""
        packet = self._arrive(port, frame, now)
        self._give(packet, "standard_metadata.packet_length", len(frame))
        self._give(packet, "intrinsic_metadata.ingress_global_timestamp", now)
        if back is not None:
            self._give(packet, "standard_metadata.ingress_port", 0)
            self._give(packet, "intrinsic_metadata.ingress_global_timestamp", 0)
            self._restore(packet, *back)
        try:
            self._give(packet, "standard_metadata.parser_error", self.parse(packet))
            self._verify(packet)
            self._apply(self.ir.ingress, packet)
        except StoppedError:
            return []
        copies = self._clone_ingress(port, packet)
        digest = self.ir.digests.get(self.asked("digest", packet))
        if digest is not None:
            values = tuple(self.value(source, packet) for source, _ in digest.fields)
            self.digests.append((digest.name, values))
        fields = self.asked("resubmit", packet)
        if fields:
            self.again.append((port, frame, (RESUBMITTED, fields, self._kept(packet, fields))))
            return copies
        priority = self._take(packet, "intrinsic_metadata.priority")
        group = self._take(packet, "intrinsic_metadata.mcast_grp")
        if group:
            self._give(packet, _KIND, REPLICATED)
            return copies + self._replicate(packet, self.groups.get(group, ()), priority)
        spec = self._take(packet, "standard_metadata.egress_spec")
        self._give(packet, _KIND, 0)
        return copies if spec == self.drop_port else [*copies, (spec, priority, packet)]

    def _replicate(
        self, packet: Packet, replicas: tuple[tuple[int, int], ...], priority: int
    ) -> list[tuple[int, int, Packet]]:
        copies = []
        for out, rid in replicas:
            copy = packet.copy()
            self._give(copy, "intrinsic_metadata.egress_rid", rid)
            for name in self.ir.headers[REQUESTS].fields:
                copy.values[REQUESTS, name] = 0
            copies.append((out, priority, copy))
        return copies

    def _session(self, packet: Packet) -> tuple[int, tuple[tuple[tuple[int, int], ...], int] | None]:
        """The field list and the session of the clone asked for, which is asked for no longer."""
        session, fields = self.asked("clone", packet), self.asked("clone_fields", packet)
        packet.values[REQUESTS, "clone"] = packet.values[REQUESTS, "clone_fields"] = 0
        return fields, self.sessions.get(session & 0x7FFF) if session else None

    def _cloned(
        self, clone: Packet, session: tuple[tuple[tuple[int, int], ...], int]
    ) -> list[tuple[int, int, Packet]]:
        replicas, limit = session
        copies = self._replicate(clone, replicas, self._take(clone, "intrinsic_metadata.priority"))
        for _, _, copy in copies:
            copy.values[REQUESTS, "truncate"] = limit + 1 if limit else 0
        return copies

    def _clone_ingress(self, port: int, packet: Packet) -> list[tuple[int, int, Packet]]:
        fields, session = self._session(packet)
        if session is None:
            return []
        clone = self._arrive(port, packet.frame, packet.now)
        try:
            self.parse(clone)
        except StoppedError:
            return []
        self._reset_metadata(clone)
        self._restore(clone, INGRESS_CLONE, fields, self._kept(packet, fields))
        return self._cloned(clone, session)

    def _reset_metadata(self, packet: Packet) -> None:
        for header in self.ir.headers.values():
            if header.metadata and header.name != LOOSE:
                packet.values.update({(header.name, name): 0 for name in header.fields})

    def _kept(self, packet: Packet, fields: int) -> tuple[int, ...]:
        refs = self.ir.field_lists.get(fields, ())
        return tuple(packet.values[ref.header, ref.field] for ref in refs)

    def _restore(self, packet: Packet, kind: int, fields: int, kept: tuple[int, ...]) -> None:
        for ref, value in zip(self.ir.field_lists.get(fields, ()), kept, strict=True):
            packet.values[ref.header, ref.field] = value
        self._give(packet, _KIND, kind)

    def egress(
        self, packet: Packet, port: int, qid: int, enqueued: int, found: int, now: int, depth: int
    ) -> bytes | None:
        """The frame that leaves, or None; times in microseconds, depths in packets."""
        packet.leaving = False
        packet.now = now
        for name, value in {
            "standard_metadata.egress_port": port,
            "standard_metadata.egress_spec": self.drop_port + 1,
            "standard_metadata.packet_length": packet.length,
            "intrinsic_metadata.egress_global_timestamp": now,
            "queueing_metadata.enq_timestamp": enqueued,
            "queueing_metadata.enq_qdepth": found,
            "queueing_metadata.deq_timedelta": now - enqueued,
            "queueing_metadata.deq_qdepth": depth,
            "queueing_metadata.qid": qid,
        }.items():
            self._give(packet, name, value)
        try:
            self._apply(self.ir.egress, packet)
            self._clone_egress(packet)
            if self._take(packet, "standard_metadata.egress_spec") == self.drop_port:
                return None
            out = self._deparse(packet)
        except StoppedError:
            return None
        fields = self.asked("recirculate", packet)
        if fields:
            self.again.append((0, out, (RECIRCULATED, fields, self._kept(packet, fields))))
            return None
        limit = self.asked("truncate", packet)
        return out[: limit - 1] if limit else out

    def _clone_egress(self, packet: Packet) -> None:
        fields, session = self._session(packet)
        if session is None:
            return
        clone, kept = packet.copy(), self._kept(packet, fields)
        self._reset_metadata(clone)
        self._restore(clone, EGRESS_CLONE, fields, kept)
        self.clones += self._cloned(clone, session)

    def _verify(self, packet: Packet) -> None:
        for checksum in self.ir.checksums:
            if checksum.verify and checksum.target.header in packet.valid:
                met = checksum.condition is None or evaluate(checksum.condition, packet)
                result = self.calculate(self.ir.calculations[checksum.calculation], packet)
                if met and result != self.bits(checksum.target, packet):
                    self._give(packet, "standard_metadata.checksum_error", 1)

    def _deparse(self, packet: Packet) -> bytes:
        for checksum in self.ir.checksums:
            if checksum.update and (checksum.condition is None or evaluate(checksum.condition, packet)):
                result = self.calculate(self.ir.calculations[checksum.calculation], packet)
                self.set_field(checksum.target, result, packet)
        for step in self.ir.deparser_steps:
            self.primitive(step, packet)
        bits = ""
        for name in self.ir.deparser:
            if name in packet.valid:
                for item in self.ir.headers[name].fields:
                    ref = FieldRef(name, item)
                    size = self.size(ref, packet)
                    bits += format(self.bits(ref, packet), f"0{size}b") if size else ""
        out = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
        return out + packet.frame[packet.position :]

    def _give(self, packet: Packet, name: str, value: int) -> None:
        ref = self.ir.intrinsic(name)
        if ref is not None:
            self.set_field(ref, value, packet)

    def _take(self, packet: Packet, name: str) -> int:
        ref = self.ir.intrinsic(name)
        return 0 if ref is None else packet.values[ref.header, ref.field]

    def _apply(self, pipeline: Pipeline, packet: Packet) -> None:
        name = pipeline.first
        while name is not None and not packet.leaving:
            node = pipeline.nodes[name]
            if isinstance(node, Conditional):
                name = node.if_true if evaluate(node.condition, packet) else node.if_false
            else:
                name = self._table(node, packet)
        packet.leaving = False

    def _table(self, table: Table, packet: Packet) -> str | None:
        best: tuple[int, TableEntry] | None = None
        key = [self._key(part, packet) for part in table.key]
        for entry in self.entries[table.name] if table.key else ():
            rank = match_rank(table, key, entry)
            if rank is not None and (best is None or rank > best[0]):
                best = (rank, entry)
        chosen = self.defaults.get(table.name)
        if best is not None:
            self._hit(table, best[1], packet)
            chosen = self._choose(table, best[1], packet)
        if chosen is not None:
            self.action(table.actions[chosen[0]], chosen[1], packet)
        if table.hit_miss is not None:
            return table.hit_miss[0 if best else 1]
        return table.base_next if chosen is None else table.next_nodes[chosen[0]]

    def _hit(self, table: Table, entry: TableEntry, packet: Packet) -> None:
        if table.direct_counter:
            counter = self.direct.setdefault((table.name, entry), [0, 0])
            counter[0] += 1
            counter[1] += len(packet.frame)
        target = None if table.direct_meter is None else self.ir.meters[table.direct_meter].target
        if target is not None:
            meter = self.direct_meters.get((table.name, entry))
            colour = 0 if meter is None else meter.execute(len(packet.frame), packet.now)
            self.set_field(target, colour, packet)

    def _choose(self, table: Table, entry: TableEntry, packet: Packet) -> tuple[str, tuple[int, ...]] | None:
        """The action of an entry: its own, its member's, or that of a member of its group."""
        if table.profile is None:
            return entry.action, entry.params
        member = entry.member
        if entry.group is not None:
            members = self.member_groups[table.profile, entry.group]
            selector = self.ir.profiles[table.profile].selector
            assert selector is not None
            hashed = self.calculate(selector, packet) & 0xFFFFFFFF
            member = members[hashed % len(members)] if members else None
        return None if member is None else self.members[table.profile, member]

    def _key(self, part: KeyField, packet: Packet) -> int:
        if not isinstance(part.source, FieldRef):
            return int(part.source.header in packet.valid)
        if part.source.header not in packet.valid:
            return 0
        value = self.bits(part.source, packet)
        return value if part.mask is None else value & part.mask
