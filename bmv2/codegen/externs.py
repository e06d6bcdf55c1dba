# SPDX-License-Identifier: Apache-2.0
"""Primitives that reach beyond the packet as Python source: hashes, counters, meters, requests, logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir import Argument, Const, FieldRef, HeaderArg, ObjectArg
from ..structures import request
from .expression import Code
from .steps import Step, StepWriter

_UINT64 = (1 << 64) - 1
SESSION_MASK = 0x7FFF
# BMv2 marks a request to clone with this bit, so that session 0 is one too.
_CLONE = 0x8000


class Externs:
    """Writes externs into one function."""

    def __init__(self, steps: StepWriter) -> None:
        self._steps = steps
        self._ir = steps.ir
        self._writer = steps.writer

    def writers(self) -> Mapping[str, Step]:
        """The primitives written here."""
        return {
            "modify_field_with_hash_based_offset": self._hash,
            "modify_field_rng_uniform": self._random,
            "count": self._count,
            "execute_meter": self._meter,
            "register_read": self._register_read,
            "register_write": self._register_write,
            "generate_digest": self._digest,
            "clone_ingress_pkt_to_egress": self._clone,
            "clone_egress_pkt_to_egress": self._clone,
            "resubmit": self._resubmit,
            "recirculate": self._recirculate,
            "truncate": self._truncate,
            "log_msg": self._log,
            "assert": self._assert,
            "assume": self._assert,
        }

    def _hash(self, args: Sequence[Argument]) -> None:
        target, calculation = args[0], args[2]
        assert isinstance(target, FieldRef)
        assert isinstance(calculation, ObjectArg)
        base, size = self._steps.value(args[1]), self._steps.value(args[3])
        result = self._steps.packing.calculate(self._ir.calculations[calculation.name])
        greatest = (1 << self._steps.packing.hash_bits(calculation.name)) - 1
        if size.low is None or size.low != size.high:
            result = Code(f"({result.text} % ({size.text} & {hex(_UINT64)} or 1))", 0, greatest)
        elif size.low <= greatest:
            modulus = size.low or 1
            result = Code(f"({result.text} % {modulus})", 0, modulus - 1)
        if base.low == base.high == 0:
            self._steps.set_field(target, result)
        else:
            text = f"(({base.text} + {result.text}) & {hex(_UINT64)})"
            self._steps.set_field(target, Code(text, 0, _UINT64))

    def _random(self, args: Sequence[Argument]) -> None:
        target = args[0]
        assert isinstance(target, FieldRef)
        low, high = self._steps.value(args[1]), self._steps.value(args[2])
        if isinstance(args[1], Const) and isinstance(args[2], Const):
            bounds = (args[1].value, args[2].value)
            if bounds[0] <= bounds[1]:
                self._steps.set_field(target, Code(f"uniform({low.text}, {high.text})", *bounds))
            return
        with self._writer.block(f"if {low.text} <= {high.text}"):
            self._steps.set_field(target, Code(f"uniform({low.text}, {high.text})", None, None))

    def _within(self, arg: Argument, size: int) -> str:
        """Write `index`; gives the test it needs (BMv2's debug build leaves out what is beyond)."""
        index = self._steps.value(arg)
        self._writer.line(f"index = {index.text}")
        return "if True" if index.fits(0, size - 1) else f"if 0 <= index < {size}"

    def _count(self, args: Sequence[Argument]) -> None:
        counter = args[0]
        assert isinstance(counter, ObjectArg)
        number = list(self._ir.counters).index(counter.name)
        head = self._within(args[1], self._ir.counters[counter.name])
        self._writer.load("length")
        lines = (f"packets{number}[index] += 1", f"bytes{number}[index] += length")
        if head == "if True":
            for line in lines:
                self._writer.line(line)
            return
        with self._writer.block(head):
            for line in lines:
                self._writer.line(line)

    def _meter(self, args: Sequence[Argument]) -> None:
        meter, target = args[0], args[2]
        assert isinstance(meter, ObjectArg)
        assert isinstance(target, FieldRef)
        number = list(self._ir.meters).index(meter.name)
        self._writer.load("length")
        with self._writer.block(self._within(args[1], self._ir.meters[meter.name].size)):
            self._steps.set_field(target, Code(f"meter{number}[index].execute(length, now)", 0, 2))

    def _register_read(self, args: Sequence[Argument]) -> None:
        target, register = args[0], args[1]
        assert isinstance(target, FieldRef)
        assert isinstance(register, ObjectArg)
        size, width = self._ir.registers[register.name]
        cell = f"register{list(self._ir.registers).index(register.name)}[index]"
        with self._writer.block(self._within(args[2], size)):
            self._steps.set_field(target, Code(cell, 0, (1 << width) - 1))

    def _register_write(self, args: Sequence[Argument]) -> None:
        register = args[0]
        assert isinstance(register, ObjectArg)
        size, width = self._ir.registers[register.name]
        value = self._steps.expressions.assigned(self._steps.value(args[2]), width, False)
        with self._writer.block(self._within(args[1], size)):
            number = list(self._ir.registers).index(register.name)
            self._writer.line(f"register{number}[index] = {value}")

    def _ask(self, name: str, code: Code) -> None:
        self._steps.set_field(request(name), code)

    def _digest(self, args: Sequence[Argument]) -> None:
        self._ask("digest", self._steps.value(args[1]))

    def _clone(self, args: Sequence[Argument]) -> None:
        session = self._steps.value(args[0])
        self._ask("clone", Code(f"({session.text} & 0xffff | {_CLONE})", 0, 0xFFFF))
        self._ask("clone_fields", self._steps.value(args[1]))

    def _resubmit(self, args: Sequence[Argument]) -> None:
        self._ask("resubmit", self._steps.value(args[0]))

    def _recirculate(self, args: Sequence[Argument]) -> None:
        self._ask("recirculate", self._steps.value(args[0]))

    def _truncate(self, args: Sequence[Argument]) -> None:
        """The shortest length asked for counts."""
        limit = self._steps.expressions.field(request("truncate")).text
        self._writer.line(f"index = ({self._steps.value(args[0]).text} & 0xffffffff) + 1")
        with self._writer.block(f"if not {limit} or index < {limit}"):
            self._ask("truncate", Code("index", 1, 1 << 32))

    def _log(self, args: Sequence[Argument]) -> None:
        text = args[0]
        assert isinstance(text, ObjectArg)
        values = "".join(f"{self._steps.value(arg).text}, " for arg in args[1:])
        self._writer.line(f"log({text.name!r}, ({values}))")

    def _assert(self, args: Sequence[Argument]) -> None:
        """Where BMv2 ends its process, the packet ends here."""
        test, text = args
        assert not isinstance(test, HeaderArg | ObjectArg)
        assert isinstance(text, ObjectArg)
        with self._writer.block(f"if not {self._steps.expressions.condition(test)}"):
            self._writer.line(f"failed({text.name!r})")
            self._writer.line("return None")
