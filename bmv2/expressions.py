# SPDX-License-Identifier: Apache-2.0
"""BMv2's JSON expressions and primitive calls, resolved into the intermediate representation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .ir import (
    Action,
    Argument,
    Bool,
    Calculation,
    Const,
    Expression,
    FieldRef,
    Header,
    HeaderArg,
    Lookahead,
    ObjectArg,
    Operation,
    Param,
    Primitive,
    ValidBit,
    is_boolean,
)
from .json_reader import Reader

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
LOGICAL = ("and", "or", "not", "d2b", "b2d", "valid", "?")
OPERATORS = ARITHMETIC + COMPARISON + LOGICAL

# What each primitive takes: `field` an assignable field, `data` an integer, `offset` a step of the action.
PRIMITIVES: Mapping[str, tuple[str, ...]] = {
    "assign": ("field", "data"),
    "assign_header": ("header", "header"),
    "add_header": ("header",),
    "remove_header": ("header",),
    "mark_to_drop": ("header",),
    "drop": (),
    "modify_field_with_hash_based_offset": ("field", "data", "calculation", "data"),
    "modify_field_rng_uniform": ("field", "data", "data"),
    "count": ("counter_array", "data"),
    "register_read": ("field", "register_array", "data"),
    "register_write": ("register_array", "data", "data"),
    "exit": (),
    "no_op": (),
    "_jump": ("offset",),
    "_jump_if_zero": ("data", "offset"),
}


class Scope:
    """The names an expression or primitive may use."""

    def __init__(self, headers: Mapping[str, Header]) -> None:
        self.headers = headers
        self.calculations: Mapping[str, Calculation] = {}
        self.counters: Mapping[str, int] = {}
        self.registers: Mapping[str, tuple[int, int]] = {}

    def header(self, reader: Reader) -> str:
        """The header instance a string names."""
        name = reader.text()
        if name not in self.headers:
            raise reader.fail(f"no header is called '{name}'")
        return name

    def field(self, reader: Reader) -> FieldRef | ValidBit:
        """The field a pair [header, field] names."""
        header, field = self.header(reader[0]), reader[1].text()
        if field == "$valid$":
            return ValidBit(header)
        if field not in self.headers[header].fields:
            raise reader.fail(f"header '{header}' has no field '{field}'")
        return FieldRef(header, field)

    def expression(self, reader: Reader, params: Sequence[tuple[str, int]] = ()) -> Expression:
        """The expression of a type-value object."""
        kind, value = reader["type"].text(), reader["value"]
        if kind == "expression":
            if "op" in value.value:
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
            return Lookahead(value[0].integer(), value[1].integer())
        raise reader.fail(
            f"expressions of type '{kind}' are not supported; supported: bool, expression, field, hexstr, "
            "local, lookahead, runtime_data"
        )

    def _operation(self, reader: Reader, params: Sequence[tuple[str, int]]) -> Expression:
        op = reader["op"].text()
        if op not in OPERATORS:
            raise reader.fail(f"operator '{op}' is not supported; supported: {' '.join(OPERATORS)}")
        if op == "valid":
            return Operation("d2b", (ValidBit(self.header(reader["right"]["value"])),), True)
        names = ["left", "right"]
        if op == "?":
            names = ["cond", "left", "right"]
        elif op in ("~", "not", "d2b", "b2d"):
            names = ["right"]
        elif op in ("+", "-") and reader.get("left") is None:
            return Operation(op, (Const(0), self.expression(reader["right"], params)), False)
        operands = tuple(self.expression(reader[name], params) for name in names)
        boolean = op in COMPARISON or op in ("and", "or", "not", "d2b")
        if op == "?":
            boolean = is_boolean(operands[1])
        self._check_kinds(reader, op, operands)
        return Operation(op, operands, boolean)

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
            if not isinstance(width, Const) or width.value < 1:
                raise reader.fail(f"operator '{op}' needs a constant width of at least 1")

    def primitive(
        self, reader: Reader, params: Sequence[tuple[str, int]], steps: int, action: str
    ) -> Primitive:
        """One primitive call, checked against its signature; `steps` is the length of the action."""
        op = reader["op"].text()
        signature = PRIMITIVES.get(op)
        if signature is None:
            raise reader.fail(
                f"primitive '{op}' in {action} is not supported; supported: {', '.join(sorted(PRIMITIVES))}"
            )
        arguments = list(reader["parameters"].items())
        if len(arguments) != len(signature):
            raise reader.fail(f"primitive '{op}' takes {len(signature)} arguments, got {len(arguments)}")
        args = tuple(
            self._argument(argument, kind, params)
            for argument, kind in zip(arguments, signature, strict=True)
        )
        if op.startswith("_jump"):
            target = args[-1]
            if not isinstance(target, Const) or not 0 <= target.value <= steps:
                raise reader.fail(f"primitive '{op}' in {action} must jump to one of the steps 0 to {steps}")
        if op == "mark_to_drop" and isinstance(args[0], HeaderArg):
            fields = self.headers[args[0].header].fields
            if "egress_spec" not in fields:
                raise reader.fail(f"'mark_to_drop' needs a header with egress_spec, not '{args[0].header}'")
        return Primitive(op, args)

    def _argument(self, reader: Reader, kind: str, params: Sequence[tuple[str, int]]) -> Argument:
        if kind == "header":
            if reader["type"].text() != "header":
                raise reader.fail(f"expected a header, got type '{reader['type'].text()}'")
            return HeaderArg(self.header(reader["value"]))
        objects: Mapping[str, Mapping[str, object]] = {
            "calculation": self.calculations,
            "counter_array": self.counters,
            "register_array": self.registers,
        }
        if kind in objects:
            name = reader["value"].text()
            if reader["type"].text() != kind or name not in objects[kind]:
                raise reader.fail(f"no {kind.replace('_', ' ')} is called '{name}'")
            return ObjectArg(name)
        expression = self.expression(reader, params)
        if kind == "field" and not isinstance(expression, FieldRef):
            raise reader.fail("expected a field to assign to")
        if is_boolean(expression):
            raise reader.fail("expected an integer, got a truth value")
        return expression


def action(reader: Reader, scope: Scope) -> Action:
    """One action of the program."""
    params = tuple((p["name"].text(), p["bitwidth"].integer()) for p in reader.list("runtime_data"))
    name = reader["name"].text()
    steps = list(reader.list("primitives"))
    primitives = tuple(scope.primitive(step, params, len(steps), f"action '{name}'") for step in steps)
    return Action(reader["id"].integer(), name, params, primitives)
