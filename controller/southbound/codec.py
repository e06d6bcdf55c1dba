# SPDX-License-Identifier: Apache-2.0
"""Translate the controller's entries to P4Runtime messages and back; P4Info resolves every name.

Values are sent as canonical byte strings: the shortest big-endian form (P4Runtime 1.4, 8.4).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from finsy.p4schema import P4MatchType, P4Schema
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from controller.southbound.artefacts import Artefacts
from controller.southbound.desired import METER_RATES, METERS, Entry, Match
from controller.southbound.diff import EntryUpdate
from controller.southbound.update_encoder import UpdateEncoder

# Updates in one WriteRequest. The errors of a failed request come in gRPC's trailers, whose default limit of
# 8 KiB holds some 300.
WRITE_CHUNK = 250
# Egress queues of a port (the P4 program's QUEUES).
QUEUES = 8
# Counters of the P4 program that the controller reads.
EGRESS_COUNTER = "egress_packets"
ECN_MARK_COUNTER = "ecn_marks"
STRAY_COUNTER = "stray_packets"


_METER_PARAMETERS = ("rate", "burst", "peak_rate", "peak_burst")
"""Of a cell of a meter: packets a second, and packets (RFC 2698)."""


class PipelineError(ValueError):
    """The P4 program lacks a table, action, field or counter that the controller needs."""


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A packet that the pipeline sent to the controller. `egress_port`: where it would have left, or 0."""

    ingress_port: int
    reason: int
    egress_port: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class CounterValue:
    """One cell of an indirect counter that is indexed by (port, queue)."""

    counter: str
    port: int
    qid: int
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Field:
    ident: int
    name: str
    kind: P4MatchType | str


@dataclass(frozen=True, slots=True)
class _Table:
    ident: int
    name: str
    size: int
    fields: tuple[_Field, ...]
    actions: Mapping[str, tuple[int, tuple[int, ...]]]
    action_names: Mapping[int, str]
    parameters: Mapping[str, tuple[str, ...]]


class Codec:
    """Encodes and decodes the messages for one P4 program.

    `depth_cell_bytes` is the size of a buffer cell where the target counts queue depth in cells; None where
    it counts packets.
    """

    def __init__(self, artefacts: Artefacts) -> None:
        """Resolve every table, action, counter and packet header of the program.

        Raises:
            PipelineError: the P4Info is not readable or not usable, or names an unknown unit of depth.
        """
        info = p4i.P4Info()
        try:
            text_format.Parse(artefacts.p4info, info)
        except text_format.ParseError as error:
            raise PipelineError(f"the P4Info is not readable: {error}") from None
        self.p4info = info
        self.depth_cell_bytes = _depth_cell_bytes(info)
        try:
            schema = P4Schema(info)
        except KeyError as error:
            raise PipelineError(f"the P4Info is not usable: it does not declare {error}") from None
        except ValueError as error:
            raise PipelineError(f"the P4Info is not usable: {error}") from None
        self._tables: dict[str, _Table] = {}
        for table in schema.tables:
            actions = {
                ref.alias: (ref.id, tuple(p.id for p in schema.actions[ref.id].params))
                for ref in table.actions
            }
            self._tables[table.alias] = _Table(
                table.id,
                table.alias,
                table.size,
                tuple(_Field(f.id, f.name, f.match_type) for f in table.match_fields),
                actions,
                {ident: name for name, (ident, _) in actions.items()},
                {ref.alias: tuple(p.name for p in schema.actions[ref.id].params) for ref in table.actions},
            )
        self.encoder = UpdateEncoder(
            self.message, {t.name: tuple(f.ident for f in t.fields) for t in self._tables.values()}
        )
        self._table_names = {t.ident: t.name for t in self._tables.values()}
        self._counters = {c.alias: c.id for c in schema.counters}
        self._meters = {m.alias: m.id for m in schema.meters}
        self._meter_names = {ident: name for name, ident in self._meters.items()}
        self._counter_names = {ident: name for name, ident in self._counters.items()}
        self._headers = {
            header.preamble.alias: {m.name: m.id for m in header.metadata}
            for header in info.controller_packet_metadata
        }

    def table_size(self, name: str) -> int:
        """How many entries a table takes.

        Raises:
            PipelineError: the program has no such table.
        """
        if name not in self._tables:
            raise PipelineError(f"the P4 program has no table {name!r}")
        return self._tables[name].size

    @property
    def table_names(self) -> tuple[str, ...]:
        """All tables of the program, and the meters whose cells the controller writes, sorted."""
        return tuple(sorted((*self._tables, *(METERS & self._meters.keys()))))

    def parameters(self, entry: Entry) -> tuple[str, ...]:
        """The names of the parameters of an entry's action."""
        table = self._tables.get(entry.table)
        return _METER_PARAMETERS if table is None else table.parameters.get(entry.action, ())

    def has(self, name: str) -> bool:
        """Whether the program has a table or a meter of this name."""
        return name in self._tables or name in self._meters

    def message(self, entry: Entry) -> p4r.TableEntry | p4r.MeterEntry:
        """The P4Runtime message for an entry of a table, or for a cell of a meter.

        Raises:
            PipelineError: the program has no such table, meter, field, action or number of parameters.
        """
        return self._meter_entry(entry) if entry.table in METERS else self.encode(entry)

    def encode(self, entry: Entry) -> p4r.TableEntry:
        """The P4Runtime table entry for an entry of a table.

        Raises:
            PipelineError: the program has no such table, field, action or number of parameters.
        """
        table = self._tables.get(entry.table)
        if table is None:
            raise PipelineError(f"the P4 program has no table {entry.table!r}")
        action = table.actions.get(entry.action)
        if action is None or len(action[1]) != len(entry.params):
            raise PipelineError(
                f"table {entry.table} of the P4 program has no action {entry.action} with "
                f"{len(entry.params)} parameters"
            )
        ident, params = action
        message = p4r.TableEntry(
            table_id=table.ident, priority=entry.priority, is_default_action=entry.is_default
        )
        message.action.action.action_id = ident
        for param, value in zip(params, entry.params, strict=True):
            message.action.action.params.add(param_id=param, value=canonical(value))
        if not entry.is_default:
            names = [name for name, _ in entry.match]
            if names != [field.name for field in table.fields]:
                raise PipelineError(
                    f"table {entry.table} of the P4 program does not have the key {', '.join(names)}"
                )
            for field, (_, sought) in zip(table.fields, entry.match, strict=True):
                _encode_match(message, field, sought)
        return message

    def decode(self, message: p4r.TableEntry) -> Entry | None:
        """The entry for a table entry read from a switch; None if its table or action is unknown."""
        name = self._table_names.get(message.table_id)
        if name is None:
            return None
        table = self._tables[name]
        action = table.action_names.get(message.action.action.action_id)
        if action is None:
            return None
        values = {p.param_id: int.from_bytes(p.value, "big") for p in message.action.action.params}
        params = tuple(values.get(ident, 0) for ident in table.actions[action][1])
        match: tuple[tuple[str, Match], ...] = ()
        if not message.is_default_action and table.fields:
            by_id = {m.field_id: m for m in message.match}
            match = tuple((f.name, _decode_match(by_id.get(f.ident), f)) for f in table.fields)
        return Entry(name, match, action, params, message.priority)

    def _meter_entry(self, entry: Entry) -> p4r.MeterEntry:
        ident, ((_, index),) = self._meters.get(entry.table), entry.match
        if ident is None or not isinstance(index, int):
            raise PipelineError(f"the P4 program has no meter {entry.table!r} with an index")
        rate, burst, peak, peak_burst = entry.params
        config = p4r.MeterConfig(cir=rate, cburst=burst, pir=peak, pburst=peak_burst)
        return p4r.MeterEntry(meter_id=ident, index=p4r.Index(index=index), config=config)

    def decode_cell(self, data: bytes) -> Entry | None:
        """The entry for a serialised MeterEntry; None if the meter is unknown or the cell has no rates."""
        cell = p4r.MeterEntry.FromString(data)
        name = self._meter_names.get(cell.meter_id)
        if name is None or not cell.HasField("config"):
            return None
        config = cell.config
        limit = (config.cir, config.cburst, config.pir, config.pburst)
        return Entry(name, (("index", cell.index.index),), METER_RATES, limit)

    def write_requests(
        self, device_id: int, stages: Iterable[Sequence[EntryUpdate]], chunk: int = WRITE_CHUNK
    ) -> tuple[tuple[bytes, ...], ...]:
        """Serialised WriteRequests (without election id) of each stage, with at most `chunk` updates each."""
        head = p4r.WriteRequest(device_id=device_id).SerializeToString()
        return tuple(
            tuple(head + self.encoder.updates(stage[i : i + chunk]) for i in range(0, len(stage), chunk))
            for stage in stages
        )

    def describe(self, update: p4r.Update) -> str:
        """The update as text, for an error message."""
        entity = update.entity
        kind = p4r.Update.Type.Name(update.type).lower()
        if entity.HasField("meter_entry"):
            return f"{kind} {self.decode_cell(entity.meter_entry.SerializeToString())}"
        entry = self.decode(entity.table_entry)
        return f"{kind} {entry if entry is not None else update.entity.table_entry.table_id}"

    def read_tables(self, device_id: int) -> p4r.ReadRequest:
        """A request for every entry of every table, for the default action of each keyless table, and for
        the cells of the controller's meters.
        """
        request = p4r.ReadRequest(device_id=device_id)
        request.entities.add(table_entry=p4r.TableEntry())
        for table in self._tables.values():
            if not table.fields:
                request.entities.add(table_entry=p4r.TableEntry(table_id=table.ident, is_default_action=True))
        for name in sorted(METERS & self._meters.keys()):
            request.entities.add(meter_entry=p4r.MeterEntry(meter_id=self._meters[name]))
        return request

    def read_counters(self, device_id: int, counters: Mapping[str, Iterable[int]]) -> p4r.ReadRequest:
        """A request for counters, given as name -> ports, for all queues of these ports."""
        request = p4r.ReadRequest(device_id=device_id)
        for name, ports in counters.items():
            ident = self._counters.get(name)
            if ident is None:
                raise PipelineError(f"the P4 program has no counter {name!r}")
            for index in (port * QUEUES + qid for port in ports for qid in range(QUEUES)):
                request.entities.add(
                    counter_entry=p4r.CounterEntry(counter_id=ident, index=p4r.Index(index=index))
                )
        return request

    def counter_value(self, message: p4r.CounterEntry) -> CounterValue:
        """The value of a counter cell that was read from a switch."""
        port, qid = divmod(message.index.index, QUEUES)
        return CounterValue(
            self._counter_names[message.counter_id],
            port,
            qid,
            message.data.packet_count,
            message.data.byte_count,
        )

    def packet_out(
        self, payload: bytes, egress_port: int, submit_to_ingress: bool
    ) -> p4r.StreamMessageRequest:
        """A packet-out to `egress_port`, or, with `submit_to_ingress`, through the ingress pipeline."""
        values = {"egress_port": egress_port, "submit_to_ingress": int(submit_to_ingress), "pad": 0}
        message = p4r.PacketOut(payload=payload)
        for name, ident in self._header("packet_out").items():
            message.metadata.add(metadata_id=ident, value=canonical(values[name]))
        return p4r.StreamMessageRequest(packet=message)

    def packet_in(self, message: p4r.PacketIn) -> PacketIn:
        """The packet-in of a message from the switch."""
        values = {m.metadata_id: int.from_bytes(m.value, "big") for m in message.metadata}
        header = self._header("packet_in")
        return PacketIn(
            values.get(header["ingress_port"], 0),
            values.get(header["reason"], 0),
            values.get(header["egress_port"], 0),
            message.payload,
        )

    def _header(self, name: str) -> Mapping[str, int]:
        header = self._headers.get(name)
        if header is None:
            raise PipelineError(f"the P4 program has no {name} header")
        return header


def canonical(value: int) -> bytes:
    """The canonical byte string of a value: the shortest big-endian form; 0 is one zero byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def _encode_match(message: p4r.TableEntry, field: _Field, value: Match) -> None:
    if isinstance(value, int):
        if field.kind != P4MatchType.EXACT:
            raise PipelineError(f"match field {field.name} is not exact")
        message.match.add(field_id=field.ident, exact=p4r.FieldMatch.Exact(value=canonical(value)))
        return
    first, second = value
    if field.kind == P4MatchType.LPM:
        # P4Runtime leaves a "don't care" field out.
        if second:
            lpm = p4r.FieldMatch.LPM(value=canonical(first), prefix_len=second)
            message.match.add(field_id=field.ident, lpm=lpm)
    elif field.kind == P4MatchType.RANGE:
        span = p4r.FieldMatch.Range(low=canonical(first), high=canonical(second))
        message.match.add(field_id=field.ident, range=span)
    else:
        raise PipelineError(f"match field {field.name} is neither LPM nor a range")


def _decode_match(message: p4r.FieldMatch | None, field: _Field) -> Match:
    if field.kind == P4MatchType.EXACT:
        return int.from_bytes(message.exact.value, "big") if message is not None else 0
    if message is None:
        return (0, 0)
    if field.kind == P4MatchType.LPM:
        return (int.from_bytes(message.lpm.value, "big"), message.lpm.prefix_len)
    return (int.from_bytes(message.range.low, "big"), int.from_bytes(message.range.high, "big"))


def _depth_cell_bytes(info: p4i.P4Info) -> int | None:
    """The size of a buffer cell in bytes; None where queue depth counts packets.

    The program names its unit by `@depth_unit("packets")` or `@depth_unit("cells of N bytes")`.
    """
    for annotation in info.pkg_info.annotations:
        unit = re.fullmatch(r'@depth_unit\("(?:(packets)|cells of ([1-9]\d*) bytes)"\)', annotation)
        if unit is not None:
            return None if unit[1] else int(unit[2])
        if annotation.startswith("@depth_unit"):
            raise PipelineError(f'{annotation}: legal are "packets" and "cells of N bytes"')
    return None
