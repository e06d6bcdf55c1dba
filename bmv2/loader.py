# SPDX-License-Identifier: Apache-2.0
"""From p4c's BMv2 JSON to the intermediate representation, refusing what cannot be executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from .calculations import ALGORITHMS
from .errors import ProgramError
from .expressions import Scope, action
from .ir import (
    Action,
    Advance,
    Calculation,
    Checksum,
    Conditional,
    Const,
    Extract,
    Field,
    FieldRef,
    Header,
    Ir,
    Lookahead,
    Node,
    ParserOp,
    ParserState,
    Pipeline,
    Primitive,
    Transition,
    ValidBit,
    Verify,
    is_boolean,
)
from .json_reader import Reader
from .table_loader import table

MAJOR_VERSION = 2
CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
_UNSUPPORTED = {
    "header_stacks": "header stacks",
    "header_unions": "header unions",
    "header_union_stacks": "header union stacks",
    "parse_vsets": "parser value sets",
    "meter_arrays": "meters",
    "extern_instances": "extern instances",
}


def load(source: bytes | str) -> Ir:
    """Parse and check a program.

    Raises ProgramError for anything that is not BMv2 JSON of major version 2 or not supported.
    """
    try:
        document = json.loads(source)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ProgramError(f"not JSON: {error}") from None
    except RecursionError:
        raise ProgramError("not JSON that can be read: nested too deeply") from None
    root = Reader(document, "program")
    _check_version(root)
    for key, what in _UNSUPPORTED.items():
        for item in root.list(key):
            raise item.fail(f"{what} are not supported")
    headers = _headers(root)
    scope = Scope(headers)
    scope.calculations = {c["name"].text(): _calculation(c, scope) for c in root.list("calculations")}
    scope.registers = {
        r["name"].text(): (r["size"].integer(), r["bitwidth"].integer()) for r in root.list("register_arrays")
    }
    counters: dict[str, int] = {}
    direct: dict[str, str] = {}
    for counter in root.list("counter_arrays"):
        if counter.optional_flag("is_direct", False):
            direct[counter["binding"].text()] = counter["name"].text()
        else:
            counters[counter["name"].text()] = counter["size"].integer()
    scope.counters = counters
    actions = {a.id: a for a in (action(reader, scope) for reader in root.list("actions"))}
    first, states = _parser(root, scope)
    return Ir(
        headers=headers,
        errors=_errors(root),
        first_state=first,
        states=states,
        deparser=_deparser(root, scope),
        counters=MappingProxyType(counters),
        direct_counters=MappingProxyType(direct),
        registers=MappingProxyType(dict(scope.registers)),
        calculations=MappingProxyType(dict(scope.calculations)),
        checksums=tuple(_checksum(c, scope) for c in root.list("checksums")),
        actions=tuple(actions.values()),
        ingress=_pipeline(root, "ingress", scope, actions),
        egress=_pipeline(root, "egress", scope, actions),
        aliases=_aliases(root, scope),
    )


def _check_version(root: Reader) -> None:
    if not isinstance(root.value, dict) or "__meta__" not in root.value:
        raise ProgramError("program: not BMv2 JSON ('__meta__' is missing)")
    version = root["__meta__"]["version"]
    major = version[0].integer()
    if major != MAJOR_VERSION:
        raise version.fail(
            f"BMv2 JSON of version {version.value} is not supported; supported: {MAJOR_VERSION}.x"
        )


def _headers(root: Reader) -> Mapping[str, Header]:
    types: dict[str, tuple[Mapping[str, Field], int]] = {}
    for header_type in root.list("header_types"):
        fields: dict[str, Field] = {}
        offset = 0
        for item in header_type.list("fields"):
            name = item[0].text()
            if item[1].value == "*":
                raise item.fail("fields of variable width are not supported")
            signed = len(item.value) > 2 and item[2].flag()
            fields[name] = Field(name, item[1].integer(), signed, offset)
            if fields[name].width < 1:
                raise item.fail(f"a field has at least 1 bit, not {fields[name].width}")
            offset += fields[name].width
        types[header_type["name"].text()] = (MappingProxyType(fields), offset)
    headers: dict[str, Header] = {}
    for header in root.list("headers"):
        kind = header["header_type"].text()
        if kind not in types:
            raise header.fail(f"no header type is called '{kind}'")
        metadata = header.optional_flag("metadata", False)
        if not metadata and types[kind][1] % 8:
            raise header.fail(f"a header must fill whole bytes, '{kind}' has {types[kind][1]} bits")
        headers[header["name"].text()] = Header(header["name"].text(), metadata, *types[kind])
    if "standard_metadata" not in headers:
        raise root.fail("there is no 'standard_metadata': only v1model programs can be run")
    return MappingProxyType(headers)


def _errors(root: Reader) -> Mapping[str, int]:
    errors = {e[0].text(): e[1].integer() for e in root.list("errors")}
    following = max(errors.values(), default=-1) + 1
    for name in CORE_ERRORS:
        if name not in errors:
            errors[name] = following
            following += 1
    return MappingProxyType(errors)


def _aliases(root: Reader, scope: Scope) -> Mapping[str, FieldRef]:
    aliases: dict[str, FieldRef] = {}
    for alias in root.list("field_aliases"):
        target = scope.field(alias[1])
        if isinstance(target, FieldRef):
            aliases[alias[0].text()] = target
    return MappingProxyType(aliases)


def _calculation(reader: Reader, scope: Scope) -> Calculation:
    algorithm = reader["algo"].text()
    if algorithm not in ALGORITHMS:
        raise reader.fail(f"hash '{algorithm}' is not supported; supported: {', '.join(sorted(ALGORITHMS))}")
    inputs: list[tuple[FieldRef | Const, int]] = []
    for item in reader.list("input"):
        kind = item["type"].text()
        if kind == "field":
            source = scope.field(item["value"])
            if isinstance(source, ValidBit):
                raise item.fail("a validity bit cannot be hashed")
            inputs.append((source, scope.headers[source.header].fields[source.field].width))
        elif kind == "hexstr":
            width = item["bitwidth"].integer()
            inputs.append((Const(item["value"].hexadecimal() & ((1 << width) - 1)), width))
        elif kind == "header":
            header = scope.header(item["value"])
            inputs += [(FieldRef(header, f.name), f.width) for f in scope.headers[header].fields.values()]
        else:
            raise item.fail(f"hash input of type '{kind}' is not supported; supported: field, header, hexstr")
    return Calculation(reader["name"].text(), algorithm, tuple(inputs))


def _checksum(reader: Reader, scope: Scope) -> Checksum:
    target = scope.field(reader["target"])
    name = reader["calculation"].text()
    if reader["type"].text() != "generic" or name not in scope.calculations or isinstance(target, ValidBit):
        raise reader.fail("only checksums of type 'generic' with a known calculation are supported")
    condition = reader.get("if_cond")
    return Checksum(
        reader["name"].text(),
        target,
        name,
        reader.optional_flag("verify", True),
        reader.optional_flag("update", True),
        None if condition is None else scope.expression(condition),
    )


def _deparser(root: Reader, scope: Scope) -> tuple[str, ...]:
    for deparser in root.list("deparsers"):
        for primitive in deparser.list("primitives"):
            raise primitive.fail("primitives in the deparser are not supported")
        return tuple(scope.header(name) for name in deparser.list("order"))
    raise root.fail("there is no deparser")


def _parser(root: Reader, scope: Scope) -> tuple[str | None, Mapping[str, ParserState]]:
    for parser in root.list("parsers"):
        states = {s["name"].text(): _state(s, scope) for s in parser.list("parse_states")}
        for state in states.values():
            for following in (state.default, *(t.next_state for t in state.transitions)):
                if following is not None and following not in states:
                    raise parser.fail(f"state '{state.name}' goes to an unknown state '{following}'")
        first = parser.optional_text("init_state")
        if first is not None and first not in states:
            raise parser.fail(f"the first state '{first}' does not exist")
        return first, MappingProxyType(states)
    raise root.fail("there is no parser")


def _state(reader: Reader, scope: Scope) -> ParserState:
    name = reader["name"].text()
    key: list[tuple[FieldRef | ValidBit | Lookahead, int]] = []
    for part in reader.list("transition_key"):
        source = scope.expression(part)
        if not isinstance(source, FieldRef | ValidBit | Lookahead):
            raise part.fail("a transition key is made of fields and lookaheads")
        width = source.width if isinstance(source, Lookahead) else 1
        if isinstance(source, FieldRef):
            width = scope.headers[source.header].fields[source.field].width
        key.append((source, width))
    transitions: list[Transition] = []
    default: str | None = None
    for reader_transition in reader.list("transitions"):
        following = reader_transition.optional_text("next_state")
        kind = reader_transition.optional_text("type") or "hexstr"
        value = reader_transition.get("value")
        if kind == "default" or value is None or value.value == "default":
            default = following
            continue
        if kind != "hexstr":
            raise reader_transition.fail(f"transitions of type '{kind}' are not supported; supported: hexstr")
        mask = reader_transition.get("mask")
        masks = None if mask is None else _split(mask.hexadecimal(), key)
        transitions.append(Transition(_split(value.hexadecimal(), key), masks, following))
    ops = tuple(_parser_op(op, scope, name) for op in reader.list("parser_ops"))
    return ParserState(name, ops, tuple(key), tuple(transitions), default)


def _split(value: int, key: list[tuple[FieldRef | ValidBit | Lookahead, int]]) -> tuple[int, ...]:
    """A transition's value, which pads each part of the key to bytes, as one integer for each part."""
    parts: list[int] = []
    for _, width in reversed(key):
        bits = -(-width // 8) * 8
        parts.append(value & ((1 << bits) - 1))
        value >>= bits
    return tuple(reversed(parts))


def _parser_op(reader: Reader, scope: Scope, state: str) -> ParserOp:
    op, args = reader["op"].text(), reader["parameters"]
    if op == "extract":
        kind = args[0]["type"].text()
        if kind != "regular":
            raise reader.fail(f"extraction into a '{kind}' is not supported; supported: regular")
        header = scope.header(args[0]["value"])
        if scope.headers[header].metadata:
            raise reader.fail(f"metadata '{header}' cannot be extracted")
        return Extract(header)
    if op == "set":
        target, source = scope.expression(args[0]), scope.expression(args[1])
        if not isinstance(target, FieldRef) or is_boolean(source):
            raise reader.fail("'set' takes a field and an integer")
        return Primitive("assign", (target, source))
    if op == "verify":
        code = args[1]
        error = Const(code.value) if isinstance(code.value, int) else scope.expression(code)
        return Verify(scope.expression(args[0]), error)
    if op == "shift":
        return Advance(Const(8 * args[0].integer()))
    if op == "advance":
        return Advance(scope.expression(args[0]))
    if op == "primitive":
        call = scope.primitive(args[0], (), 1, f"parser state '{state}'")
        if call.op not in ("assign", "assign_header", "add_header", "remove_header"):
            raise reader.fail(f"primitive '{call.op}' is not supported in a parser")
        return call
    raise reader.fail(
        f"parser operation '{op}' is not supported; supported: advance, extract, primitive, set, shift, "
        "verify"
    )


def _pipeline(root: Reader, name: str, scope: Scope, actions: Mapping[int, Action]) -> Pipeline:
    for reader in root.list("pipelines"):
        if reader["name"].text() != name:
            continue
        for profile in reader.list("action_profiles"):
            raise profile.fail("action profiles and selectors are not supported")
        for call in reader.list("action_calls"):
            raise call.fail("action calls outside a table are not supported")
        nodes: dict[str, Node] = {t["name"].text(): table(t, scope, actions) for t in reader.list("tables")}
        for conditional in reader.list("conditionals"):
            condition = scope.expression(conditional["expression"])
            if not is_boolean(condition):
                raise conditional.fail("the condition is not a truth value")
            if_true = conditional.optional_text("true_next")
            if_false = conditional.optional_text("false_next")
            label = conditional["name"].text()
            nodes[label] = Conditional(label, condition, if_true, if_false)
        pipeline = Pipeline(name, reader.optional_text("init_table"), MappingProxyType(nodes))
        _check_graph(reader, pipeline)
        return pipeline
    raise root.fail(f"there is no pipeline '{name}'")


def _check_graph(reader: Reader, pipeline: Pipeline) -> None:
    """Every node exists and none can come back to itself."""
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str | None) -> None:
        if name is None or name in done:
            return
        if name not in pipeline.nodes:
            raise reader.fail(f"no table or conditional is called '{name}'")
        if name in path:
            raise reader.fail(f"'{name}' comes back to itself")
        path.append(name)
        for following in pipeline.successors(name):
            visit(following)
        done.add(path.pop())

    visit(pipeline.first)
