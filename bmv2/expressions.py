# SPDX-License-Identifier: Apache-2.0
"""BMv2's JSON expressions, resolved into the intermediate representation.

Elements of a stack chosen at run time become choices between the elements, so that what follows knows
headers by name only. An index out of range, where BMv2 aborts, reads as zero and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from .ir import (
    Bool,
    Calculation,
    Const,
    Digest,
    Expression,
    FieldRef,
    Header,
    MeterArray,
    Operator,
    PacketLookahead,
    Param,
    RegisterCell,
    Stack,
    ValidBit,
    is_boolean,
)
from .json_reader import MAX_WIDTH, Reader
from .structures import Structures, length_of

ARITHMETIC = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "<<",
    ">>",
    "&",
    "|",
    "^",
    "~",
    "two_comp_mod",
    "usat_cast",
    "sat_cast",
)
COMPARISON = ("==", "!=", "<", "<=", ">", ">=")
LOGICAL = ("and", "or", "not", "d2b", "b2d", "valid", "valid_union", "?")
ACCESS = ("access_field", "last_stack_index", "size_stack")
OPERATORS = ARITHMETIC + COMPARISON + LOGICAL + ACCESS
# Kinds of values that stand for headers; `last` is that of p4c for the last element of a stack.
_HEADERS = ("header", "dereference_header_stack", "dereference_stack", "access_union_header", "last")
_UNIONS = ("header_union", "dereference_union_stack")

# A header, union or field that an index chooses: each with the condition it is the one under (None: always).
T = TypeVar("T")
Choice: TypeAlias = Sequence[tuple[Expression | None, T]]


def pick(choice: Choice[str], leaf: Callable[[str], Expression], otherwise: Expression) -> Expression:
    """The value of `leaf` for the chosen one, `otherwise` where none is."""
    result = otherwise
    for condition, name in reversed(choice):
        value = leaf(name)
        if condition is not None:
            value = Operator("?", (condition, value, result), is_boolean(value))
        result = value
    return result


class Scope:
    """The names an expression or primitive may use."""

    def __init__(self, structures: Structures) -> None:
        self.structures = structures
        self.headers: Mapping[str, Header] = structures.headers
        self.stacks: Mapping[str, Stack] = structures.stacks
        self.calculations: Mapping[str, Calculation] = {}
        self.counters: Mapping[str, int] = {}
        self.meters: Mapping[str, MeterArray] = {}
        self.registers: Mapping[str, tuple[int, int]] = {}
        self.digests: Mapping[int, Digest] = {}
        self.field_lists: Mapping[int, tuple[FieldRef, ...]] = {}

    def header(self, reader: Reader) -> str:
        """The header instance a string names."""
        name = reader.text()
        if name not in self.headers:
            raise reader.fail(f"no header is called '{name}'")
        return name

    def stack(self, reader: Reader) -> Stack:
        """The stack a string names."""
        name = reader.text()
        if name not in self.stacks:
            raise reader.fail(f"no header stack is called '{name}'")
        return self.stacks[name]

    def union(self, reader: Reader) -> str:
        """The union a string names."""
        name = reader.text()
        if name not in self.structures.unions:
            raise reader.fail(f"no header union is called '{name}'")
        return name

    def field(self, reader: Reader) -> FieldRef | ValidBit:
        """The field a pair [header, field] names."""
        header, field = self.header(reader[0]), reader[1].text()
        if field == "$valid$":
            return ValidBit(header)
        if field not in self.headers[header].fields:
            raise reader.fail(f"header '{header}' has no field '{field}'")
        return FieldRef(header, field)

    def bits(self, header: str, field: str) -> Expression:
        """A field's bits as an unsigned integer."""
        item = self.headers[header].fields[field]
        ref = FieldRef(header, field)
        return Operator("&", (ref, Const((1 << item.width) - 1)), False) if item.signed else ref

    def expression(self, reader: Reader, params: Sequence[tuple[str, int]] = ()) -> Expression:
        """The expression of a type-value object."""
        kind, value = reader["type"].text(), reader["value"]
        if kind == "expression":
            if "op" in value.members():
                return self._operation(value, params)
            return self.expression(value, params)
        if kind == "field":
            return self.field(value)
        if kind == "hexstr":
            return Const(value.hexadecimal())
        if kind == "bool":
            return Bool(value.flag())
        if kind in ("local", "runtime_data"):
            index = value.integer()
            if not 0 <= index < len(params):
                raise value.fail(
                    f"the action has {len(params)} parameters, number {index} is not one of them"
                )
            return Param(index, params[index][1])
        if kind == "lookahead":
            return PacketLookahead(value[0].integer(), value[1].width())
        if kind == "stack_field":
            field = value[1]
            choice = self._last(self.stack(value[0]))
            return pick(choice, lambda name: self._field_of(field, name), Const(0))
        if kind == "register":
            return self.cell(value, params)
        raise reader.fail(
            f"expressions of type '{kind}' are not supported; supported: bool, expression, field, hexstr, "
            "local, lookahead, register, runtime_data, stack_field"
        )

    def cell(self, reader: Reader, params: Sequence[tuple[str, int]] = ()) -> RegisterCell:
        """The cell of a register array that a pair [array, index] names."""
        name = reader[0].text()
        if name not in self.registers:
            raise reader.fail(f"no register array is called '{name}'")
        index = self.expression(reader[1], params)
        if is_boolean(index):
            raise reader.fail("a register's index is an integer, not a truth value")
        return RegisterCell(name, index, self.registers[name][1])

    def _kind_of(self, reader: Reader) -> str:
        """What a type-value object stands for: its operator where it is an operation, else its type."""
        kind = reader["type"].text()
        while kind == "expression":
            value = reader["value"]
            if "op" in value.members():
                return value["op"].text()
            reader, kind = value, value["type"].text()
        if kind == "stack_field":
            name = reader["value"][1].text()
            if name == "last" and name not in self.headers[self.stack(reader["value"][0]).elements[0]].fields:
                return "last"
        return kind

    def header_choice(self, reader: Reader, params: Sequence[tuple[str, int]] = ()) -> Choice[str] | None:
        """The header a value stands for; None where it does not stand for one."""
        kind = self._kind_of(reader)
        if kind not in _HEADERS:
            return None
        value = reader["value"]
        if reader["type"].text() == "expression" and "op" not in value.members():
            return self.header_choice(value, params)
        if kind == "header":
            return [(None, self.header(value))]
        if kind == "last":
            return self._last(self.stack(value[0]))
        if kind == "access_union_header":
            unions = self.union_choice(value["left"], params)
            if unions is None:
                raise value.fail("'access_union_header' needs a header union on its left")
            position = value["right"].integer()
            members = self.structures.unions
            if any(not 0 <= position < len(members[union]) for _, union in unions):
                raise value.fail(f"the union has no header number {position}")
            return [(condition, members[union][position]) for condition, union in unions]
        return self._element(value, params)

    def union_choice(self, reader: Reader, params: Sequence[tuple[str, int]] = ()) -> Choice[str] | None:
        """The union a value stands for; None where it does not stand for one."""
        kind = self._kind_of(reader)
        if kind not in _UNIONS:
            return None
        value = reader["value"]
        if reader["type"].text() == "expression" and "op" not in value.members():
            return self.union_choice(value, params)
        if kind == "header_union":
            return [(None, self.union(value))]
        return self._element(value, params)

    def field_choice(self, reader: Reader, params: Sequence[tuple[str, int]] = ()) -> Choice[FieldRef]:
        """The field to assign to that a value stands for."""
        kind, value = self._kind_of(reader), reader["value"]
        if reader["type"].text() == "expression" and "op" not in value.members():
            return self.field_choice(value, params)
        headers: Choice[str] | None = None
        if kind == "access_field":
            headers, name = self.header_choice(value["left"], params), value["right"]
        elif kind == "stack_field":
            headers, name = self._last(self.stack(value[0])), value[1]
        elif kind == "field":
            headers, name = [(None, self.header(value[0]))], value[1]
        result = []
        for condition, header in headers or ():
            field = self._field_of(name, header)
            if not isinstance(field, FieldRef):
                raise reader.fail("a validity bit cannot be assigned to")
            result.append((condition, field))
        if not result:
            raise reader.fail("expected a field to assign to")
        return result

    def _element(self, operation: Reader, params: Sequence[tuple[str, int]]) -> Choice[str]:
        stack = self.stack(operation["left"]["value"])
        index = self.expression(operation["right"], params)
        if isinstance(index, Const):
            if not 0 <= index.value < len(stack.elements):
                raise operation.fail(f"'{stack.name}' has {len(stack.elements)} elements, not {index.value}")
            return [(None, stack.elements[index.value])]
        return [
            (Operator("==", (index, Const(position)), True), element)
            for position, element in enumerate(stack.elements)
        ]

    def _last(self, stack: Stack) -> Choice[str]:
        return [
            (Operator("==", (stack.next, Const(position + 1)), True), element)
            for position, element in enumerate(stack.elements)
        ]

    def _field_of(self, reader: Reader, header: str) -> Expression:
        """A field of a header by its name, or by its number as `access_field` has it."""
        fields = list(self.headers[header].fields)
        if isinstance(reader.value, str):
            name = reader.value
        else:
            number = reader.integer()
            name = fields[number] if 0 <= number < len(fields) else "$valid$"
        if name == "$valid$":
            return ValidBit(header)
        if name not in fields:
            raise reader.fail(f"header '{header}' has no field '{name}'")
        return FieldRef(header, name)

    def _operation(self, reader: Reader, params: Sequence[tuple[str, int]]) -> Expression:
        op = reader["op"].text()
        if op not in OPERATORS:
            raise reader.fail(f"operator '{op}' is not supported; supported: {' '.join(OPERATORS)}")
        if op in ACCESS or op in ("valid", "valid_union"):
            return self._access(op, reader, params)
        if op in ("==", "!="):
            equal = self._structures_equal(reader, params)
            if equal is not None:
                return equal if op == "==" else Operator("not", (equal,), True)
        names = ["left", "right"]
        if op == "?":
            names = ["cond", "left", "right"]
        elif op in ("~", "not", "d2b", "b2d"):
            names = ["right"]
        elif op in ("+", "-") and reader.get("left") is None:
            return Operator(op, (Const(0), self.expression(reader["right"], params)), False)
        operands = tuple(self.expression(reader[name], params) for name in names)
        boolean = op in COMPARISON or op in ("and", "or", "not", "d2b")
        if op == "?":
            boolean = is_boolean(operands[1])
        self._check_kinds(reader, op, operands)
        return Operator(op, operands, boolean)

    def _access(self, op: str, reader: Reader, params: Sequence[tuple[str, int]]) -> Expression:
        right = reader["right"]
        if op in ("last_stack_index", "size_stack"):
            used = self.stack(right["value"]).next
            return Operator("-", (used, Const(1)), False) if op == "last_stack_index" else used
        if op == "valid_union":
            unions = self.union_choice(right, params)
            if unions is None:
                raise reader.fail("'valid_union' needs a header union")
            return pick(unions, self._union_valid, Bool(False))
        choice = self.header_choice(right if op == "valid" else reader["left"], params)
        if choice is None:
            raise reader.fail(f"'{op}' needs a header")
        if op == "valid":
            return pick(choice, _valid, Bool(False))
        return pick(choice, lambda name: self._field_of(right, name), Const(0))

    def _union_valid(self, union: str) -> Expression:
        result: Expression = Bool(False)
        for member in self.structures.unions[union]:
            result = Operator("or", (result, _valid(member)), True)
        return result

    def _structures_equal(self, reader: Reader, params: Sequence[tuple[str, int]]) -> Expression | None:
        """Whether two headers or unions are equal, as BMv2 has it; None where other things are compared."""
        left, right = (self.header_choice(reader[side], params) for side in ("left", "right"))
        if left is not None and right is not None:
            others = right
            return pick(
                left, lambda one: pick(others, lambda two: self._equal(one, two), Bool(False)), Bool(False)
            )
        left, right = (self.union_choice(reader[side], params) for side in ("left", "right"))
        if left is None or right is None:
            return None
        unions = right
        return pick(
            left, lambda one: pick(unions, lambda two: self._unions_equal(one, two), Bool(False)), Bool(False)
        )

    def _equal(self, one: str, two: str) -> Expression:
        """BMv2 calls two headers equal only where both are valid."""
        if list(self.headers[one].fields) != list(self.headers[two].fields):
            return Bool(False)
        result: Expression = Operator("and", (_valid(one), _valid(two)), True)
        pairs = [(FieldRef(one, name), FieldRef(two, name)) for name in self.headers[one].fields]
        if self.headers[one].varbit is not None:
            pairs.append((length_of(one), length_of(two)))
        for pair in pairs:
            result = Operator("and", (result, Operator("==", pair, True)), True)
        return result

    def _unions_equal(self, one: str, two: str) -> Expression:
        members = self.structures.unions
        result: Expression = Bool(False)
        for pair in zip(members[one], members[two], strict=True):
            result = Operator("or", (result, self._equal(*pair)), True)
        return result

    @staticmethod
    def _check_kinds(reader: Reader, op: str, operands: Sequence[Expression]) -> None:
        kinds = [is_boolean(operand) for operand in operands]
        if op == "?":
            fits = kinds[0] and kinds[1] == kinds[2]
        elif op in ("==", "!="):
            fits = kinds[0] == kinds[1]
        elif op in ("and", "or", "not", "b2d"):
            fits = all(kinds)
        else:
            fits = not any(kinds)
        if not fits:
            raise reader.fail(f"operator '{op}' mixes integers and truth values")
        if op in ("two_comp_mod", "usat_cast", "sat_cast"):
            width = operands[1]
            if not isinstance(width, Const) or not 1 <= width.value <= MAX_WIDTH:
                raise reader.fail(f"operator '{op}' needs a constant width of 1 to {MAX_WIDTH}")


def _valid(header: str) -> Expression:
    return Operator("d2b", (ValidBit(header),), True)
