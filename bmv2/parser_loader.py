# SPDX-License-Identifier: Apache-2.0
"""The parser of BMv2's JSON: states, their operations and transitions, value sets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .expressions import Scope
from .ir import (
    Advance,
    Const,
    Expression,
    Extract,
    ExtractNext,
    FieldRef,
    Operator,
    PacketLookahead,
    ParserOp,
    ParserState,
    Primitive,
    Transition,
    ValidBit,
    ValueSet,
    Verify,
    is_boolean,
)
from .json_reader import Reader
from .primitives import Primitives

_FORBIDDEN = ("exit", "_jump", "_jump_if_zero")
Key = list[tuple[Expression, int]]


def read_parser(
    root: Reader, scope: Scope, primitives: Primitives
) -> tuple[str | None, Mapping[str, ParserState], Mapping[str, ValueSet]]:
    """The first state, all states, and the value sets they choose by."""
    sets = {
        v["name"].text(): ValueSet(
            v["name"].text(),
            None if v.get("max_size") is None else v["max_size"].integer(),
            (v["compressed_bitwidth"].width(),),
        )
        for v in root.list("parse_vsets")
    }
    for parser in root.list("parsers"):
        reader = _ParserReader(scope, primitives, sets)
        states = {s["name"].text(): reader.state(s) for s in parser.list("parse_states")}
        for state in states.values():
            for following in (state.default, *(t.next_state for t in state.transitions)):
                if following is not None and following not in states:
                    raise parser.fail(f"state '{state.name}' goes to an unknown state '{following}'")
        first = parser.optional_text("init_state")
        if first is not None and first not in states:
            raise parser.fail(f"the first state '{first}' does not exist")
        return first, MappingProxyType(states), MappingProxyType(sets)
    raise root.fail("there is no parser")


def _split(value: int, key: Key) -> tuple[int, ...]:
    """A transition's value, which pads each part of the key to bytes, as one integer for each part."""
    parts: list[int] = []
    for _, width in reversed(key):
        bits = -(-width // 8) * 8
        parts.append(value & ((1 << bits) - 1))
        value >>= bits
    return tuple(reversed(parts))


class _ParserReader:
    def __init__(self, scope: Scope, primitives: Primitives, sets: dict[str, ValueSet]) -> None:
        self._scope = scope
        self._primitives = primitives
        self._sets = sets

    def state(self, reader: Reader) -> ParserState:
        name = reader["name"].text()
        key = [self._key_part(part) for part in reader.list("transition_key")]
        transitions: list[Transition] = []
        default: str | None = None
        for way in reader.list("transitions"):
            following = way.optional_text("next_state")
            kind = way.optional_text("type") or "hexstr"
            value = way.get("value")
            if kind == "default" or value is None or value.value == "default":
                default = following
            elif kind == "parse_vset":
                transitions.append(self._set_transition(way, key, following))
            elif kind == "hexstr":
                mask = way.get("mask")
                masks = None if mask is None else _split(mask.hexadecimal(), key)
                transitions.append(Transition(_split(value.hexadecimal(), key), masks, following))
            else:
                raise way.fail(
                    f"transitions of type '{kind}' are not supported; supported: hexstr, parse_vset"
                )
        ops = tuple(self._op(op, name) for op in reader.list("parser_ops"))
        return ParserState(name, ops, tuple(key), tuple(transitions), default)

    def _set_transition(self, reader: Reader, key: Key, following: str | None) -> Transition:
        name = reader["value"].text()
        if name not in self._sets:
            raise reader.fail(f"no value set is called '{name}'")
        known = self._sets[name]
        widths = tuple(width for _, width in key)
        if sum(widths) != sum(known.widths):
            raise reader.fail(f"value set '{name}' has {sum(known.widths)} bits, the key {sum(widths)}")
        if len(known.widths) == 1:
            self._sets[name] = ValueSet(name, known.size, widths)
        mask = reader.get("mask")
        return Transition((), None if mask is None else _split(mask.hexadecimal(), key), following, name)

    def _key_part(self, reader: Reader) -> tuple[Expression, int]:
        kind = reader["type"].text()
        value = reader["value"]
        if kind == "union_stack_field":
            stack, member = self._scope.stack(value[0]), value[1].text()
            field = value[2].text()
            position = self._member(value[0], member, value)
            header = self._scope.structures.unions[stack.elements[0]][position]
            if field not in self._scope.headers[header].fields:
                raise value.fail(f"header '{header}' has no field '{field}'")
            source: Expression = Const(0)
            for index, element in reversed(list(enumerate(stack.elements))):
                inner = self._scope.bits(self._scope.structures.unions[element][position], field)
                test = Operator("==", (stack.next, Const(index + 1)), True)
                source = Operator("?", (test, inner, source), False)
            return source, self._scope.headers[header].fields[field].width
        source = self._scope.expression(reader)
        if isinstance(source, PacketLookahead):
            return source, source.width
        if isinstance(source, FieldRef):
            return source, self._scope.headers[source.header].fields[source.field].width
        if kind == "stack_field":
            stack = self._scope.stack(value[0])
            item = self._scope.headers[stack.elements[0]].fields[value[1].text()]
            if item.signed:
                source = Operator("&", (source, Const((1 << item.width) - 1)), False)
            return source, item.width
        if not isinstance(source, ValidBit):
            raise reader.fail("a transition key is made of fields and lookaheads")
        return source, 1

    def _member(self, reader: Reader, member: str, place: Reader) -> int:
        """The position of a header in the unions of a stack."""
        members = self._scope.structures.union_members.get(reader.text(), ())
        if member not in members:
            raise place.fail(f"the unions of '{reader.value}' have no header '{member}'")
        return members.index(member)

    def _op(self, reader: Reader, state: str) -> ParserOp:
        op, args = reader["op"].text(), reader["parameters"]
        if op in ("extract", "extract_VL"):
            return self._extract(reader, args)
        if op == "set":
            target, source = self._scope.expression(args[0]), self._scope.expression(args[1])
            if not isinstance(target, FieldRef) or is_boolean(source):
                raise reader.fail("'set' takes a field and an integer")
            if self._scope.headers[target.header].varbit == target.field:
                call = {"op": "assign_VL", "parameters": args.value}
                return self._primitives.step(Reader(call, reader.path), (), 1, f"parser state '{state}'")
            return Primitive("assign", (target, source))
        if op == "verify":
            code = args[1]
            error = Const(code.value) if isinstance(code.value, int) else self._scope.expression(code)
            return Verify(self._scope.expression(args[0]), error)
        if op == "shift":
            return Advance(Const(8 * args[0].integer()))
        if op == "advance":
            return Advance(self._scope.expression(args[0]))
        if op == "primitive":
            call_op = args[0]["op"].text()
            if call_op in _FORBIDDEN:
                raise reader.fail(f"primitive '{call_op}' is not supported in a parser")
            return self._primitives.step(args[0], (), 1, f"parser state '{state}'")
        raise reader.fail(
            f"parser operation '{op}' is not supported; supported: advance, extract, extract_VL, primitive, "
            "set, shift, verify"
        )

    def _extract(self, reader: Reader, args: Reader) -> ParserOp:
        kind, value = args[0]["type"].text(), args[0]["value"]
        length = self._scope.expression(args[1]) if reader["op"].text() == "extract_VL" else None
        if length is not None and is_boolean(length):
            raise reader.fail("the length of a field is an integer")
        if kind == "regular":
            return self._one(reader, self._scope.header(value), length)
        if kind == "stack":
            stack = self._scope.stack(value)
            return ExtractNext(
                stack.name, tuple(self._one(reader, element, length) for element in stack.elements)
            )
        if kind == "union_stack":
            stack = self._scope.stack(value[0])
            position = self._member(value[0], value[1].text(), reader)
            unions = self._scope.structures.unions
            elements = (unions[element][position] for element in stack.elements)
            return ExtractNext(stack.name, tuple(self._one(reader, name, length) for name in elements))
        raise reader.fail(
            f"extraction into a '{kind}' is not supported; supported: regular, stack, union_stack"
        )

    def _one(self, reader: Reader, name: str, length: Expression | None) -> Extract:
        header = self._scope.headers.get(name)
        if header is None or header.metadata:
            raise reader.fail(f"'{name}' cannot be extracted")
        if (header.varbit is None) != (length is None):
            raise reader.fail(
                f"'{name}' needs 'extract_VL' where it has a field of variable width, and only there"
            )
        if header.varbit is None:
            return Extract(name)
        return Extract(name, length, header.size + header.fields[header.varbit].width // 8)
