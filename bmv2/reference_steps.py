# SPDX-License-Identifier: Apache-2.0
"""The reference interpreter's primitives: what an action's steps do, one at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from .calculations import ALGORITHMS, CUSTOM, CustomCrc
from .codegen.runtime import log_text, uniform_of
from .ir import (
    Action,
    Argument,
    Calculation,
    Const,
    Expression,
    FieldRef,
    HeaderArg,
    Ir,
    ObjectArg,
    Primitive,
)
from .meters import Meter
from .reference_values import Packet, evaluate
from .structures import length_of, request

_FULL64 = (1 << 64) - 1


class StoppedError(Exception):
    """The packet ends here: an assertion of the program does not hold."""


@dataclass
class ReferenceSteps:
    """A program and the state its actions change."""

    ir: Ir
    drop_port: int = 511
    rng: Random = field(default_factory=Random)
    counters: dict[str, list[list[int]]] = field(default_factory=dict)
    registers: dict[str, list[int]] = field(default_factory=dict)
    meters: dict[str, list[Meter]] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Set counters, registers and meters."""
        self.uniform = uniform_of(self.rng)
        self.counters = {name: [[0, 0] for _ in range(size)] for name, size in self.ir.counters.items()}
        self.registers = {name: [0] * size for name, (size, _) in self.ir.registers.items()}
        self.meters = {
            name: [Meter(meter.by_bytes) for _ in range(meter.size)] for name, meter in self.ir.meters.items()
        }

    def set_field(self, ref: FieldRef, value: int, packet: Packet) -> None:
        """Put a value into a field, as wide and signed as it is."""
        header = self.ir.headers[ref.header]
        item = header.fields[ref.field]
        value &= (1 << item.width) - 1
        if item.signed and ref.field != header.varbit and value >> (item.width - 1):
            value -= 1 << item.width
        packet.values[ref.header, ref.field] = value

    def bits(self, ref: FieldRef, packet: Packet) -> int:
        """A field as an unsigned integer."""
        return packet.values[ref.header, ref.field] & ((1 << self.ir.width(ref)) - 1)

    def size(self, ref: FieldRef, packet: Packet) -> int:
        """How many bits a field has in this packet."""
        if self.ir.headers[ref.header].varbit == ref.field:
            length = length_of(ref.header)
            return packet.values[length.header, length.field]
        return self.ir.width(ref)

    def asked(self, name: str, packet: Packet) -> int:
        """What an action has asked for, 0 for nothing."""
        ref = request(name)
        return packet.values[ref.header, ref.field]

    def action(self, action: Action, params: tuple[int, ...], packet: Packet) -> None:
        """Run an action."""
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
                self.primitive(step, packet)

    def primitive(self, step: Primitive, packet: Packet) -> None:
        """Run one primitive other than a jump."""
        op, args = step.op, step.args
        if op == "block":
            for part in step.steps:
                self.primitive(part, packet)
        elif op == "when":
            chosen = step.steps if self._argument(args[0], packet) else step.otherwise
            for part in chosen:
                self.primitive(part, packet)
        elif op == "exit":
            packet.leaving = True
        elif op == "drop":
            self._drop("standard_metadata", packet)
        elif op == "log_msg" and isinstance(args[0], ObjectArg):
            self.logs.append(log_text(args[0].name, [self._argument(arg, packet) for arg in args[1:]]))
        elif op in ("assert", "assume"):
            if not self._argument(args[0], packet):
                raise StoppedError
        elif op in ("clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress"):
            self.set_field(request("clone"), self._argument(args[0], packet) & 0xFFFF | 0x8000, packet)
            self.set_field(request("clone_fields"), self._argument(args[1], packet), packet)
        elif op in ("resubmit", "recirculate"):
            self.set_field(request(op), self._argument(args[0], packet), packet)
        elif op == "generate_digest":
            self.set_field(request("digest"), self._argument(args[1], packet), packet)
        elif op == "truncate":
            limit, before = (self._argument(args[0], packet) & 0xFFFFFFFF) + 1, self.asked("truncate", packet)
            self.set_field(request("truncate"), min(limit, before or limit), packet)
        elif args:
            self._on(op, args, packet)

    def _on(self, op: str, args: tuple[Argument, ...], packet: Packet) -> None:
        first = args[0]
        if isinstance(first, HeaderArg):
            self._header_primitive(op, first.header, args, packet)
        elif isinstance(first, ObjectArg):
            self._array_primitive(op, first.name, args, packet)
        elif isinstance(first, FieldRef):
            value = self._assigned(op, args, packet)
            if value is not None:
                self.set_field(first, value, packet)

    def _array_primitive(self, op: str, name: str, args: tuple[Argument, ...], packet: Packet) -> None:
        index = self._argument(args[1], packet)
        if op == "count" and 0 <= index < len(self.counters[name]):
            self.counters[name][index][0] += 1
            self.counters[name][index][1] += len(packet.frame)
        elif op == "register_write" and 0 <= index < len(self.registers[name]):
            mask = (1 << self.ir.registers[name][1]) - 1
            self.registers[name][index] = self._argument(args[2], packet) & mask
        elif op == "execute_meter" and 0 <= index < len(self.meters[name]):
            target = args[2]
            assert isinstance(target, FieldRef)
            self.set_field(target, self.meters[name][index].execute(len(packet.frame), packet.now), packet)

    def _argument(self, arg: Argument, packet: Packet) -> int:
        assert not isinstance(arg, HeaderArg | ObjectArg)
        return evaluate(arg, packet)

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
        base, size = self._argument(args[1], packet), self._argument(args[3], packet) & _FULL64
        result = self.calculate(self.ir.calculations[named.name], packet)
        return (base + result % (size or 1)) & _FULL64

    def make_valid(self, name: str, packet: Packet) -> None:
        """Make a header valid, and the others of its union invalid."""
        packet.valid.difference_update(self.ir.siblings.get(name, ()))
        packet.valid.add(name)

    def _bytes(self, name: str, packet: Packet) -> int:
        header = self.ir.headers[name]
        varying = 0 if header.varbit is None else self.size(FieldRef(name, header.varbit), packet)
        return header.size + varying // 8

    def _header_primitive(self, op: str, name: str, args: tuple[Argument, ...], packet: Packet) -> None:
        header = self.ir.headers[name]
        if op == "mark_to_drop":
            self._drop(name, packet)
        elif op == "add_header":
            if name not in packet.valid:
                self.make_valid(name, packet)
                packet.values.update({(name, item): 0 for item in header.fields})
                packet.length += self._bytes(name, packet)
        elif op == "remove_header":
            if name in packet.valid and not header.metadata:
                packet.valid.discard(name)
                packet.length -= self._bytes(name, packet)
        elif op == "invalidate":
            packet.valid.discard(name)
        else:
            source = args[1]
            assert isinstance(source, HeaderArg)
            (self._swap if op == "swap_header" else self._copy)(name, source.header, packet)

    def _copy(self, target: str, source: str, packet: Packet) -> None:
        if source not in packet.valid:
            packet.valid.discard(target)
            return
        self.make_valid(target, packet)
        for item in self.ir.headers[target].fields:
            self.set_field(FieldRef(target, item), packet.values[source, item], packet)
        if self.ir.headers[target].varbit is not None:
            one, two = length_of(target), length_of(source)
            packet.values[one.header, one.field] = packet.values[two.header, two.field]

    def _swap(self, one: str, two: str, packet: Packet) -> None:
        pairs = [((one, item), (two, item)) for item in self.ir.headers[one].fields]
        if self.ir.headers[one].varbit is not None:
            a, b = length_of(one), length_of(two)
            pairs.append(((a.header, a.field), (b.header, b.field)))
        for left, right in pairs:
            packet.values[left], packet.values[right] = packet.values[right], packet.values[left]
        if (one in packet.valid) != (two in packet.valid):
            packet.valid.symmetric_difference_update((one, two))

    def _drop(self, name: str, packet: Packet) -> None:
        packet.values[name, "egress_spec"] = self.drop_port
        if "mcast_grp" in self.ir.headers[name].fields:
            packet.values[name, "mcast_grp"] = 0

    def calculate(self, calculation: Calculation, packet: Packet) -> int:
        """The result of a calculation over the packet."""
        bits = ""
        for source, width in calculation.inputs:
            if isinstance(source, Const):
                bits += format(source.value, f"0{width}b")
            elif source.header in packet.valid:
                size = self.size(source, packet)
                bits += format(self.bits(source, packet), f"0{size}b") if size else ""
        bits += "0" * (-len(bits) % 8)
        data = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
        data += packet.payload if calculation.payload else b""
        if calculation.algorithm in CUSTOM:
            return CustomCrc(CUSTOM[calculation.algorithm])(data)
        return ALGORITHMS[calculation.algorithm](data)

    def value(self, expression: Expression, packet: Packet) -> int:
        """A field's bits, or the value of anything else."""
        return (
            self.bits(expression, packet)
            if isinstance(expression, FieldRef)
            else evaluate(expression, packet)
        )
