# SPDX-License-Identifier: Apache-2.0
"""BMv2's primitive calls, checked against their signatures and resolved into steps.

Primitives on whole stacks and unions are written out as steps on the headers in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from .expressions import Choice, Scope
from .ir import (
    Action,
    Argument,
    Const,
    Expression,
    FieldRef,
    HeaderArg,
    ObjectArg,
    Operator,
    Primitive,
    Stack,
    is_boolean,
)
from .json_reader import Reader
from .structures import length_of

# What each primitive takes: `field` an assignable field, `data` an integer, `truth` also a truth value,
# `offset` a step of the action.
PRIMITIVES: Mapping[str, tuple[str, ...]] = {
    "assign": ("field", "data"),
    "assign_VL": ("field", "field"),
    "assign_header": ("header", "header"),
    "assign_header_stack": ("stack", "stack"),
    "assign_union": ("union", "union"),
    "assign_union_stack": ("stack", "stack"),
    "add_header": ("header",),
    "remove_header": ("header",),
    "push": ("stack", "data"),
    "pop": ("stack", "data"),
    "mark_to_drop": ("header",),
    "drop": (),
    "modify_field_with_hash_based_offset": ("field", "data", "calculation", "data"),
    "modify_field_rng_uniform": ("field", "data", "data"),
    "count": ("counter_array", "data"),
    "execute_meter": ("meter_array", "data", "field"),
    "register_read": ("field", "register_array", "data"),
    "register_write": ("register_array", "data", "data"),
    "generate_digest": ("data", "data"),
    "clone_ingress_pkt_to_egress": ("data", "data"),
    "clone_egress_pkt_to_egress": ("data", "data"),
    "resubmit": ("data",),
    "recirculate": ("data",),
    "truncate": ("data",),
    "log_msg": ("string", "values"),
    "assert": ("truth",),
    "assume": ("truth",),
    "exit": (),
    "no_op": (),
    "_jump": ("offset",),
    "_jump_if_zero": ("data", "offset"),
}
T = TypeVar("T")
_STACKS = ("header_stack", "header_union_stack")

Params = Sequence[tuple[str, int]]


class Primitives:
    """Resolves primitive calls in a scope."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def action(self, reader: Reader) -> Action:
        """One action of the program."""
        params = tuple((p["name"].text(), p["bitwidth"].width()) for p in reader.list("runtime_data"))
        name = reader["name"].text()
        steps = list(reader.list("primitives"))
        primitives = tuple(self.step(step, params, len(steps), f"action '{name}'") for step in steps)
        return Action(reader["id"].integer(), name, params, primitives)

    def step(self, reader: Reader, params: Params, steps: int, where: str) -> Primitive:
        """One primitive call; `steps` is the length of the action, for jumps."""
        op = reader["op"].text()
        signature = PRIMITIVES.get(op)
        if signature is None:
            raise reader.fail(
                f"primitive '{op}' in {where} is not supported; supported: {', '.join(sorted(PRIMITIVES))}"
            )
        arguments = list(reader["parameters"].items())
        if len(arguments) != len(signature):
            raise reader.fail(f"primitive '{op}' takes {len(signature)} arguments, got {len(arguments)}")
        if op in ("assign_header_stack", "assign_union_stack"):
            return self._assign_stack(self._stack(arguments[0]), self._stack(arguments[1]), reader)
        if op == "assign_union":
            return self._assign_union(self._union(arguments[0], params), self._union(arguments[1], params))
        if op in ("push", "pop"):
            return self._shift(op, self._stack(arguments[0]), self._data(arguments[1], params), reader)
        if op == "assign" and arguments[0]["type"].text() == "register":
            cell = self._scope.cell(arguments[0]["value"], params)
            args = (ObjectArg(cell.register), cell.index, self._data(arguments[1], params))
            return Primitive("register_write", args)
        if op in ("assign_header", "add_header", "remove_header"):
            return self._on_headers(op, [self._header(argument, params) for argument in arguments])
        if op == "log_msg":
            values = tuple(self._data(value, params) for value in _vector(arguments[1]))
            return Primitive(op, (ObjectArg(arguments[0]["value"].text()), *values))
        places = [i for i, kind in enumerate(signature) if kind == "field"]
        choices = [self._scope.field_choice(arguments[i], params) for i in places]

        def build(fields: tuple[FieldRef, ...]) -> Primitive:
            chosen = dict(zip(places, fields, strict=True))
            args = tuple(
                chosen[i] if i in chosen else self._argument(argument, kind, params)
                for i, (argument, kind) in enumerate(zip(arguments, signature, strict=True))
            )
            return self._checked(op, args, reader, steps, where)

        return _choose(choices, build)

    def _checked(
        self, op: str, args: tuple[Argument, ...], reader: Reader, steps: int, where: str
    ) -> Primitive:
        if op.startswith("_jump"):
            target = args[-1]
            if not isinstance(target, Const) or not 0 <= target.value <= steps:
                raise reader.fail(f"primitive '{op}' in {where} must jump to one of the steps 0 to {steps}")
        if op == "mark_to_drop" and isinstance(args[0], HeaderArg):
            fields = self._scope.headers[args[0].header].fields
            if "egress_spec" not in fields:
                raise reader.fail(f"'mark_to_drop' needs a header with egress_spec, not '{args[0].header}'")
        if op == "assign_VL":
            return self._assign_varbit(args, reader)
        if op in ("assert", "assume"):
            return Primitive(op, (*args, ObjectArg(f"{op} failed in {where}: {reader.fragment()}")))
        lists: Mapping[int, object] | None = None
        if op == "generate_digest":
            lists = self._scope.digests
        elif op in ("resubmit", "recirculate") or op.startswith("clone_"):
            lists = self._scope.field_lists
        if lists is not None:
            number = args[-1]
            if not isinstance(number, Const) or number.value not in lists:
                raise reader.fail(f"'{op}' names a field list that the program does not have")
        return Primitive(op, args)

    def _assign_varbit(self, args: tuple[Argument, ...], reader: Reader) -> Primitive:
        target, source = args
        assert isinstance(target, FieldRef)
        assert isinstance(source, FieldRef)
        headers = self._scope.headers
        for ref in (target, source):
            if headers[ref.header].varbit != ref.field:
                raise reader.fail(f"'{ref.header}.{ref.field}' is not of variable width")
        length = Primitive("assign", (length_of(target.header), length_of(source.header)))
        return Primitive("block", (), (Primitive("assign", (target, source)), length))

    @staticmethod
    def _on_headers(op: str, choices: Sequence[Choice[str]]) -> Primitive:
        return _choose(choices, lambda names: Primitive(op, tuple(HeaderArg(name) for name in names)))

    def _assign_union(self, target: Choice[str], source: Choice[str]) -> Primitive:
        unions = self._scope.structures.unions

        def assign(names: tuple[str, ...]) -> Primitive:
            pairs = zip(unions[names[0]], unions[names[1]], strict=True)
            return Primitive("block", (), tuple(_assign_header(one, two) for one, two in pairs))

        return _choose((target, source), assign)

    def _assign_stack(self, target: Stack, source: Stack, reader: Reader) -> Primitive:
        if len(target.elements) != len(source.elements):
            raise reader.fail(f"'{target.name}' and '{source.name}' have different sizes")
        pairs = zip(self._rows(target), self._rows(source), strict=True)
        steps = [_assign_header(*pair) for rows in pairs for pair in zip(*rows, strict=True)]
        return Primitive("block", (), (Primitive("assign", (target.next, source.next)), *steps))

    def _rows(self, stack: Stack) -> list[tuple[str, ...]]:
        """The headers of each element: one, or those of a union."""
        unions = self._scope.structures.unions
        return [unions.get(element, (element,)) for element in stack.elements]

    def _shift(self, op: str, stack: Stack, amount: Expression, reader: Reader) -> Primitive:
        """BMv2's shift by swaps: what falls off one end comes in, invalid, at the other.

        An element of unions that comes in is left as it is: there BMv2's mark_invalid does nothing.
        """
        if not isinstance(amount, Const) or amount.value < 0:
            raise reader.fail(f"'{op}' needs a constant number of elements")
        rows, size, by = self._rows(stack), len(stack.elements), amount.value
        steps: list[Primitive] = []
        if not by:
            return Primitive("block", ())
        used = stack.next
        if op == "push":
            moved = Operator("+", (used, Const(by)), False)
            bound = Operator("?", (Operator("<", (moved, Const(size)), True), moved, Const(size)), False)
            pairs = [(i, i - by) for i in range(size - 1, by - 1, -1)]
            entering = range(min(by, size))
        else:
            moved = Operator("-", (used, Const(by)), False)
            bound = Operator("?", (Operator(">", (used, Const(by)), True), moved, Const(0)), False)
            pairs = [(i, i + by) for i in range(size - by)]
            entering = range(max(size - by, 0), size)
        steps.append(Primitive("assign", (used, bound)))
        for one, two in pairs:
            steps += [
                Primitive("swap_header", (HeaderArg(a), HeaderArg(b)))
                for a, b in zip(rows[one], rows[two], strict=True)
            ]
        for position in entering:
            if stack.elements[position] not in self._scope.structures.unions:
                steps.append(Primitive("invalidate", (HeaderArg(rows[position][0]),)))
        return Primitive("block", (), tuple(steps))

    def _header(self, reader: Reader, params: Params) -> Choice[str]:
        choice = self._scope.header_choice(reader, params)
        if choice is None:
            raise reader.fail(f"expected a header, got type '{reader['type'].text()}'")
        return choice

    def _union(self, reader: Reader, params: Params) -> Choice[str]:
        choice = self._scope.union_choice(reader, params)
        if choice is None:
            raise reader.fail(f"expected a header union, got type '{reader['type'].text()}'")
        return choice

    def _stack(self, reader: Reader) -> Stack:
        if reader["type"].text() not in _STACKS:
            raise reader.fail(f"expected a header stack, got type '{reader['type'].text()}'")
        return self._scope.stack(reader["value"])

    def _data(self, reader: Reader, params: Params) -> Expression:
        expression = self._scope.expression(reader, params)
        if is_boolean(expression):
            raise reader.fail("expected an integer, got a truth value")
        return expression

    def _argument(self, reader: Reader, kind: str, params: Params) -> Argument:
        if kind == "header":
            if reader["type"].text() != "header":
                raise reader.fail(f"expected a header, got type '{reader['type'].text()}'")
            return HeaderArg(self._scope.header(reader["value"]))
        objects: Mapping[str, Mapping[str, object]] = {
            "calculation": self._scope.calculations,
            "counter_array": self._scope.counters,
            "meter_array": self._scope.meters,
            "register_array": self._scope.registers,
        }
        if kind in objects:
            name = reader["value"].text()
            if reader["type"].text() != kind or name not in objects[kind]:
                raise reader.fail(f"no {kind.replace('_', ' ')} is called '{name}'")
            return ObjectArg(name)
        expression = self._scope.expression(reader, params)
        if is_boolean(expression) and kind != "truth":
            raise reader.fail("expected an integer, got a truth value")
        return expression


def _choose(
    choices: Sequence[Choice[T]], leaf: Callable[[tuple[T, ...]], Primitive], chosen: tuple[T, ...] = ()
) -> Primitive:
    """`leaf` of the fields, headers or unions that indices choose: one test for each way it can go."""
    if len(chosen) == len(choices):
        return leaf(chosen)
    result = Primitive("block", ())
    for condition, name in reversed(choices[len(chosen)]):
        step = _choose(choices, leaf, (*chosen, name))
        result = step if condition is None else Primitive("when", (condition,), (step,), (result,))
    return result


def _assign_header(target: str, source: str) -> Primitive:
    return Primitive("assign_header", (HeaderArg(target), HeaderArg(source)))


def _vector(reader: Reader) -> list[Reader]:
    if reader["type"].text() != "parameters_vector":
        raise reader.fail(f"expected a list of values, got type '{reader['type'].text()}'")
    # p4c writes an empty list as an object.
    value = reader["value"]
    return [] if value.value in ({}, None) else list(value.items())
