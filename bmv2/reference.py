# SPDX-License-Identifier: Apache-2.0
"""A plain interpreter of a program, node by node: the oracle of the generated code, not for traffic."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from .calculations import ALGORITHMS
from .codegen.runtime import uniform_of
from .entries import TableEntry
from .ir import (
    Action,
    Argument,
    Conditional,
    Const,
    Extract,
    FieldRef,
    HeaderArg,
    Ir,
    KeyField,
    Lookahead,
    ObjectArg,
    ParserState,
    Pipeline,
    Primitive,
    Table,
    ValidBit,
    Verify,
)
from .reference_values import Packet, evaluate, match_rank

_STEP_LIMIT = 4096


class _ParseError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Reference:
    """A program and its state; ports, queues and time are the caller's."""

    ir: Ir
    drop_port: int = 511
    rng: Random = field(default_factory=Random)
    entries: dict[str, list[TableEntry]] = field(default_factory=dict)
    defaults: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    groups: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    counters: dict[str, list[list[int]]] = field(default_factory=dict)
    direct: dict[tuple[str, TableEntry], list[int]] = field(default_factory=dict)
    registers: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set counters, registers and the program's own entries and defaults."""
        self.uniform = uniform_of(self.rng)
        self.counters = {name: [[0, 0] for _ in range(size)] for name, size in self.ir.counters.items()}
        self.registers = {name: [0] * size for name, (size, _) in self.ir.registers.items()}
        for table in self.ir.tables():
            self.entries.setdefault(table.name, list(table.const_entries or ()))
            if table.default is not None:
                self.defaults.setdefault(table.name, (table.default.action, table.default.params))

    def ingress(self, port: int, frame: bytes, now: int) -> list[tuple[int, int, Packet]]:
        """What a frame becomes: (port, priority, packet) of each copy; `now` in microseconds."""
        packet = Packet({}, {h.name for h in self.ir.headers.values() if h.metadata}, frame, 0, len(frame))
        for header in self.ir.headers.values():
            packet.values.update({(header.name, name): 0 for name in header.fields})
        self._give(packet, "standard_metadata.ingress_port", port)
        self._give(packet, "standard_metadata.packet_length", len(frame))
        self._give(packet, "intrinsic_metadata.ingress_global_timestamp", now)
        self._give(packet, "standard_metadata.parser_error", self._parse(packet))
        for checksum in self.ir.checksums:
            if checksum.verify and checksum.target.header in packet.valid:
                met = checksum.condition is None or evaluate(checksum.condition, packet)
                if met and self._calculate(checksum.calculation, packet) != self._bits(
                    checksum.target, packet
                ):
                    self._give(packet, "standard_metadata.checksum_error", 1)
        self._apply(self.ir.ingress, packet)
        priority = self._take(packet, "intrinsic_metadata.priority")
        group = self._take(packet, "intrinsic_metadata.mcast_grp")
        if group:
            copies = []
            self._give(packet, "standard_metadata.instance_type", 5)
            for out, rid in self.groups.get(group, ()):
                copies.append((out, priority, packet.copy()))
                self._give(copies[-1][2], "intrinsic_metadata.egress_rid", rid)
            return copies
        spec = self._take(packet, "standard_metadata.egress_spec")
        self._give(packet, "standard_metadata.instance_type", 0)
        return [] if spec == self.drop_port else [(spec, priority, packet)]

    def egress(
        self, packet: Packet, port: int, qid: int, enqueued: int, found: int, now: int, depth: int
    ) -> bytes | None:
        """The frame that leaves, or None; times in microseconds, depths in packets."""
        packet.leaving = False
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
        self._apply(self.ir.egress, packet)
        if self._take(packet, "standard_metadata.egress_spec") == self.drop_port:
            return None
        for checksum in self.ir.checksums:
            if checksum.update and (checksum.condition is None or evaluate(checksum.condition, packet)):
                self._set(checksum.target, self._calculate(checksum.calculation, packet), packet)
        out = b""
        for name in self.ir.deparser:
            if name in packet.valid:
                header = self.ir.headers[name]
                word = 0
                for item in header.fields.values():
                    word = word << item.width | self._bits(FieldRef(name, item.name), packet)
                out += word.to_bytes(header.size)
        return out + packet.frame[packet.position :]

    def _give(self, packet: Packet, name: str, value: int) -> None:
        ref = self.ir.intrinsic(name)
        if ref is not None:
            self._set(ref, value, packet)

    def _take(self, packet: Packet, name: str) -> int:
        ref = self.ir.intrinsic(name)
        return 0 if ref is None else packet.values[ref.header, ref.field]

    def _set(self, ref: FieldRef, value: int, packet: Packet) -> None:
        item = self.ir.headers[ref.header].fields[ref.field]
        value &= (1 << item.width) - 1
        if item.signed and value >> (item.width - 1):
            value -= 1 << item.width
        packet.values[ref.header, ref.field] = value

    def _bits(self, ref: FieldRef, packet: Packet) -> int:
        return packet.values[ref.header, ref.field] & ((1 << self.ir.width(ref)) - 1)

    def _parse(self, packet: Packet) -> int:
        name, steps = self.ir.first_state, 0
        try:
            while name is not None:
                steps += 1
                if steps > _STEP_LIMIT:
                    return self.ir.errors["ParserTimeout"]
                state = self.ir.states[name]
                for op in state.ops:
                    if isinstance(op, Extract):
                        self._extract(op.header, packet)
                    elif isinstance(op, Primitive):
                        self._check_lookahead(op, packet)
                        self._primitive(op, packet)
                    elif isinstance(op, Verify):
                        if not evaluate(op.condition, packet):
                            raise _ParseError(evaluate(op.error, packet))
                    else:
                        self._advance(evaluate(op.bits, packet), packet)
                name = self._select(state, packet)
        except _ParseError as error:
            return error.code
        return self.ir.errors["NoError"]

    def _need(self, size: int, packet: Packet) -> None:
        if len(packet.frame) - packet.position < size:
            raise _ParseError(self.ir.errors["PacketTooShort"])

    def _check_lookahead(self, op: Primitive, packet: Packet) -> None:
        for arg in op.args:
            if isinstance(arg, Lookahead):
                self._need(-(-arg.width // 8), packet)

    def _extract(self, name: str, packet: Packet) -> None:
        header = self.ir.headers[name]
        self._need(header.size, packet)
        word = int.from_bytes(packet.frame[packet.position : packet.position + header.size])
        for item in header.fields.values():
            shift = header.width - item.offset - item.width
            self._set(FieldRef(name, item.name), word >> shift, packet)
        packet.valid.add(name)
        packet.position += header.size

    def _advance(self, bits: int, packet: Packet) -> None:
        if bits % 8:
            raise _ParseError(self.ir.errors["ParserInvalidArgument"])
        self._need(bits // 8, packet)
        packet.position += bits // 8

    def _select(self, state: ParserState, packet: Packet) -> str | None:
        key = [
            self._bits(source, packet) if isinstance(source, FieldRef) else evaluate(source, packet)
            for source, _ in state.key
        ]
        for transition in state.transitions:
            masks = transition.masks or tuple((1 << width) - 1 for _, width in state.key)
            wanted = zip(key, transition.values, masks, strict=True)
            if all(part & mask == value & mask for part, value, mask in wanted):
                return transition.next_state
        return state.default

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
            chosen = (best[1].action, best[1].params)
            if table.direct_counter:
                counter = self.direct.setdefault((table.name, best[1]), [0, 0])
                counter[0] += 1
                counter[1] += len(packet.frame)
        if chosen is not None:
            self._action(table.actions[chosen[0]], chosen[1], packet)
        if table.hit_miss is not None:
            return table.hit_miss[0 if best else 1]
        return table.base_next if chosen is None else table.next_nodes[chosen[0]]

    def _key(self, part: KeyField, packet: Packet) -> int:
        if isinstance(part.source, ValidBit):
            return int(part.source.header in packet.valid)
        if part.source.header not in packet.valid:
            return 0
        value = self._bits(part.source, packet)
        return value if part.mask is None else value & part.mask

    def _action(self, action: Action, params: tuple[int, ...], packet: Packet) -> None:
        packet.params = params
        index = 0
        while index < len(action.primitives):
            step = action.primitives[index]
            index += 1
            if step.op == "_jump":
                index = self._argument(step.args[0], packet)
            elif step.op == "_jump_if_zero":
                if self._argument(step.args[0], packet) == 0:
                    index = self._argument(step.args[1], packet)
            else:
                self._primitive(step, packet)

    def _argument(self, arg: Argument, packet: Packet) -> int:
        assert not isinstance(arg, HeaderArg | ObjectArg)
        return evaluate(arg, packet)

    def _primitive(self, step: Primitive, packet: Packet) -> None:
        op, args = step.op, step.args
        first = args[0] if args else None
        if op == "exit":
            packet.leaving = True
        elif isinstance(first, HeaderArg):
            self._header_primitive(op, first.header, args, packet)
        elif op == "drop":
            self._drop("standard_metadata", packet)
        elif isinstance(first, ObjectArg):
            index = self._argument(args[1], packet)
            if op == "count" and 0 <= index < len(self.counters[first.name]):
                self.counters[first.name][index][0] += 1
                self.counters[first.name][index][1] += len(packet.frame)
            elif op == "register_write" and 0 <= index < len(self.registers[first.name]):
                mask = (1 << self.ir.registers[first.name][1]) - 1
                self.registers[first.name][index] = self._argument(args[2], packet) & mask
        elif isinstance(first, FieldRef):
            value = self._assigned(op, args, packet)
            if value is not None:
                self._set(first, value, packet)

    def _assigned(self, op: str, args: tuple[Argument, ...], packet: Packet) -> int | None:
        """What a primitive puts into the field it names first; None: nothing."""
        if op == "assign":
            return self._argument(args[1], packet)
        if op == "modify_field_rng_uniform":
            low, high = self._argument(args[1], packet), self._argument(args[2], packet)
            return self.uniform(low, high) if low <= high else None
        middle = args[1]
        if op == "register_read" and isinstance(middle, ObjectArg):
            cells, index = self.registers[middle.name], self._argument(args[2], packet)
            return cells[index] if 0 <= index < len(cells) else None
        named = args[2]
        assert isinstance(named, ObjectArg)
        base, size = self._argument(args[1], packet), self._argument(args[3], packet) & ((1 << 64) - 1)
        return (base + self._calculate(named.name, packet) % (size or 1)) & ((1 << 64) - 1)

    def _header_primitive(self, op: str, name: str, args: tuple[Argument, ...], packet: Packet) -> None:
        header = self.ir.headers[name]
        if op == "mark_to_drop":
            self._drop(name, packet)
        elif op == "add_header":
            if name not in packet.valid:
                packet.valid.add(name)
                packet.values.update({(name, item): 0 for item in header.fields})
                packet.length += header.size
        elif op == "remove_header":
            if name in packet.valid and not header.metadata:
                packet.valid.discard(name)
                packet.length -= header.size
        else:
            source = args[1]
            assert isinstance(source, HeaderArg)
            packet.valid.discard(name)
            if source.header in packet.valid:
                packet.valid.add(name)
                for item in header.fields:
                    self._set(FieldRef(name, item), packet.values[source.header, item], packet)

    def _drop(self, name: str, packet: Packet) -> None:
        packet.values[name, "egress_spec"] = self.drop_port
        if "mcast_grp" in self.ir.headers[name].fields:
            packet.values[name, "mcast_grp"] = 0

    def _calculate(self, name: str, packet: Packet) -> int:
        bits = ""
        for source, width in self.ir.calculations[name].inputs:
            if isinstance(source, Const):
                bits += format(source.value, f"0{width}b")
            elif source.header in packet.valid:
                bits += format(self._bits(source, packet), f"0{width}b")
        bits += "0" * (-len(bits) % 8)
        data = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
        return ALGORITHMS[self.ir.calculations[name].algorithm](data)
