# SPDX-License-Identifier: Apache-2.0
"""Serialised P4Runtime updates, put together from parts that are encoded once.

The updates of one fabric repeat a few thousand match values and actions. protobuf encodes each of these parts
once; an update is then a concatenation of bytes and lengths. The result is what protobuf itself would write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from finsy.proto import p4r

from controller.southbound.desired import METERS, Entry, Match
from controller.southbound.diff import EntryUpdate, UpdateType

# Parts of one kind that are remembered. Chosen: more than the match values and actions of a large fabric.
MOST_PARTS = 1 << 16

# Wire type 2: a length follows, then so many bytes (protobuf's encoding, "Message structure").
_LENGTH_DELIMITED = 2
_TAG_BITS = 3


def varint(value: int) -> bytes:
    """A number that is not negative as protobuf's varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(message: Any, field: str) -> bytes:
    number = message.DESCRIPTOR.fields_by_name[field].number
    return varint(number << _TAG_BITS | _LENGTH_DELIMITED)


_UPDATES = _tag(p4r.WriteRequest, "updates")
_ENTITY = _tag(p4r.Update, "entity")
_TABLE_ENTRY = _tag(p4r.Entity, "table_entry")
_METER_ENTRY = _tag(p4r.Entity, "meter_entry")
_ENTITIES = _tag(p4r.ReadResponse, "entities")
_TYPES = {
    UpdateType.INSERT: p4r.Update(type=p4r.Update.INSERT).SerializeToString(),
    UpdateType.MODIFY: p4r.Update(type=p4r.Update.MODIFY).SerializeToString(),
    UpdateType.DELETE: p4r.Update(type=p4r.Update.DELETE).SerializeToString(),
}
_LENGTHS = tuple(varint(n) for n in range(1 << 10))


class _Table:
    """The parts of one table's entries: by field and match value, by action and parameters, by priority."""

    def __init__(self, head: bytes, fields: int) -> None:
        self.head = head
        self.fields: tuple[dict[tuple[str, Match], bytes], ...] = tuple({} for _ in range(fields))
        self.actions: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self.priorities: dict[int, bytes] = {}


class UpdateEncoder:
    """Encodes entries and updates. `plain` encodes a table entry by protobuf; it checks the entry.

    `fields` are the ids of the match fields of each table.
    """

    def __init__(
        self, plain: Callable[[Entry], p4r.TableEntry | p4r.MeterEntry], fields: Mapping[str, tuple[int, ...]]
    ) -> None:
        self._plain = plain
        self._fields = fields
        self._tables: dict[str, _Table] = {}

    def entry(self, entry: Entry) -> bytes:
        """The serialised TableEntry, or MeterEntry, of an entry. Raises PipelineError as Codec.encode."""
        try:
            table = self._tables[entry.table]
            parts = [fields[pair] for fields, pair in zip(table.fields, entry.match, strict=True)]
            action = table.actions[entry.action, entry.params]
            return b"".join((table.head, *parts, action, table.priorities[entry.priority]))
        except (KeyError, ValueError):
            return self._new(entry)

    def updates(self, changes: Iterable[EntryUpdate]) -> bytes:
        """The changes as the field `updates` of a serialised WriteRequest. Raises PipelineError."""
        out: list[bytes] = []
        encode, lengths = self.entry, _LENGTHS
        for change in changes:
            data = encode(change.entry)
            kind = _TYPES[change.operation]
            inner = len(data)
            meter = change.entry.table in METERS
            if inner > 1000 or meter:
                entity = _delimited(_METER_ENTRY if meter else _TABLE_ENTRY, data)
                out.append(_delimited(_UPDATES, kind + _delimited(_ENTITY, entity)))
                continue
            # The same for the usual length, without the intermediate strings. Each tag is one byte.
            first = lengths[inner]
            middle = 1 + len(first) + inner
            second = lengths[middle]
            outer = len(kind) + 1 + len(second) + middle
            out += (_UPDATES, lengths[outer], kind, _ENTITY, second, _TABLE_ENTRY, first, data)
        return b"".join(out)

    def _new(self, entry: Entry) -> bytes:
        """Encode an entry by protobuf, and remember its parts."""
        message = self._plain(entry)
        whole: bytes = message.SerializeToString()
        if isinstance(message, p4r.MeterEntry) or entry.is_default:
            return whole
        head = p4r.TableEntry(table_id=message.table_id).SerializeToString()
        table = self._tables.setdefault(entry.table, _Table(head, len(self._fields[entry.table])))
        # A "don't care" field is left out, so that the messages match the fields by their ids only.
        by_id = {m.field_id: p4r.TableEntry(match=[m]).SerializeToString() for m in message.match}
        idents = self._fields[entry.table]
        for ident, fields, pair in zip(idents, table.fields, entry.match, strict=True):
            _remember(fields, pair, by_id.get(ident, b""))
        action = p4r.TableEntry(action=message.action).SerializeToString()
        _remember(table.actions, (entry.action, entry.params), action)
        priority = p4r.TableEntry(priority=message.priority).SerializeToString()
        _remember(table.priorities, entry.priority, priority)
        return whole


def read_entries(replies: Iterable[bytes]) -> Iterator[tuple[bool, bytes]]:
    """The serialised TableEntry and MeterEntry messages of serialised ReadResponses; True: a MeterEntry.

    Entities of other kinds are left out. An entity that does not have the usual form is parsed by protobuf.
    """
    for reply in replies:
        at, end = 0, len(reply)
        while at < end:
            start, size = _length(reply, at + 1)
            stop = start + size
            if reply[at : at + 1] != _ENTITIES or stop > end:
                yield from _parsed(p4r.ReadResponse.FromString(reply[at:]).entities)
                break
            inner, length = _length(reply, start + 1)
            kind = reply[start : start + 1]
            if inner + length == stop and kind in (_TABLE_ENTRY, _METER_ENTRY):
                yield kind == _METER_ENTRY, reply[inner:stop]
            else:
                yield from _parsed([p4r.Entity.FromString(reply[start:stop])])
            at = stop


def _parsed(entities: Iterable[p4r.Entity]) -> Iterator[tuple[bool, bytes]]:
    for entity in entities:
        if entity.HasField("table_entry"):
            yield False, entity.table_entry.SerializeToString()
        elif entity.HasField("meter_entry"):
            yield True, entity.meter_entry.SerializeToString()


def _length(data: Sequence[int], at: int) -> tuple[int, int]:
    """The position after the varint at `at`, and its value; a value that cannot be if the data ends in it."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at, value
        shift += 7
    return at, len(data) + 1


def _delimited(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


def _remember(parts: dict[Any, bytes], key: object, data: bytes) -> None:
    if len(parts) >= MOST_PARTS:
        parts.clear()
    parts[key] = data
