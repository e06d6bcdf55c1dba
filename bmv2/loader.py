# SPDX-License-Identifier: Apache-2.0
"""Translate p4c's BMv2 JSON into the intermediate representation. Refuses what the switch cannot execute."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from .errors import P4ProgramError
from .expressions import Scope
from .ir import (
    Action,
    Checksum,
    Conditional,
    FieldRef,
    Ir,
    Node,
    Pipeline,
    Primitive,
    ProfileDeclaration,
    ValidBit,
    is_boolean,
)
from .json_reader import Reader
from .objects_loader import profile, read_objects
from .parser_loader import read_parser
from .primitives import Primitives
from .table_loader import action_call, table

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


def load(source: bytes | str) -> Ir:
    """Parse and check a program.

    Raises P4ProgramError for anything that is not BMv2 JSON of major version 2 or not supported.
    """
    try:
        document = json.loads(source)
    except ValueError as error:
        # Also an integer of more digits than Python converts: no value of a program needs thousands.
        raise P4ProgramError(f"not JSON: {error}") from None
    except RecursionError:
        raise P4ProgramError("not JSON that can be read: nested too deeply") from None
    root = Reader(document, "program")
    _check_version(root)
    for item in root.list("extern_instances"):
        kind = item.optional_text("type") or "?"
        raise item.fail(
            f"an extern object of type '{kind}' cannot be run: v1model has none, and BMv2 takes them only "
            "from C++ modules; the supported externs are v1model's functions"
        )
    scope = read_objects(root)
    primitives = Primitives(scope)
    actions = {a.id: a for a in map(primitives.action, root.list("actions"))}
    structures = scope.structures
    first, states, value_sets = read_parser(root, scope, primitives)
    counters = scope.counters
    order, steps = _deparser(root, scope, primitives)
    profiles = {
        p.name: p
        for pipeline in root.list("pipelines")
        for p in (profile(reader, scope) for reader in pipeline.list("action_profiles"))
    }
    direct = {
        c["binding"].text(): c["name"].text()
        for c in root.list("counter_arrays")
        if c.optional_flag("is_direct", False)
    }
    return Ir(
        headers=structures.headers,
        errors=_errors(root),
        enums=_enums(root),
        first_state=first,
        states=states,
        deparser=order,
        counters=MappingProxyType(dict(counters)),
        direct_counters=MappingProxyType(direct),
        registers=MappingProxyType(dict(scope.registers)),
        calculations=MappingProxyType(dict(scope.calculations)),
        checksums=tuple(_checksum(c, scope) for c in root.list("checksums")),
        actions=tuple(actions.values()),
        ingress=_pipeline(root, "ingress", scope, actions, profiles),
        egress=_pipeline(root, "egress", scope, actions, profiles),
        aliases=_aliases(root, scope),
        stacks=structures.stacks,
        unions=structures.unions,
        siblings=structures.siblings,
        meters=MappingProxyType(dict(scope.meters)),
        value_sets=value_sets,
        digests=MappingProxyType(dict(scope.digests)),
        field_lists=MappingProxyType(dict(scope.field_lists)),
        profiles=MappingProxyType(profiles),
        deparser_steps=steps,
    )


def _check_version(root: Reader) -> None:
    if not isinstance(root.value, dict) or "__meta__" not in root.value:
        raise P4ProgramError("program: not BMv2 JSON ('__meta__' is missing)")
    version = root["__meta__"]["version"]
    major = version[0].integer()
    if major != MAJOR_VERSION:
        raise version.fail(
            f"BMv2 JSON of version {version.value} is not supported; supported: {MAJOR_VERSION}.x"
        )


def _errors(root: Reader) -> Mapping[str, int]:
    errors = {e[0].text(): e[1].integer() for e in root.list("errors")}
    following = max(errors.values(), default=-1) + 1
    for name in CORE_ERRORS:
        if name not in errors:
            errors[name] = following
            following += 1
    return MappingProxyType(errors)


def _enums(root: Reader) -> Mapping[str, Mapping[str, int]]:
    return MappingProxyType(
        {
            enum["name"].text(): MappingProxyType({e[0].text(): e[1].integer() for e in enum.list("entries")})
            for enum in root.list("enums")
        }
    )


def _aliases(root: Reader, scope: Scope) -> Mapping[str, FieldRef]:
    aliases: dict[str, FieldRef] = {}
    for alias in root.list("field_aliases"):
        target = scope.field(alias[1])
        if isinstance(target, FieldRef):
            aliases[alias[0].text()] = target
    return MappingProxyType(aliases)


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


def _deparser(
    root: Reader, scope: Scope, primitives: Primitives
) -> tuple[tuple[str, ...], tuple[Primitive, ...]]:
    for deparser in root.list("deparsers"):
        steps = tuple(primitives.step(p, (), 1, "the deparser") for p in deparser.list("primitives"))
        return tuple(scope.header(name) for name in deparser.list("order")), steps
    raise root.fail("there is no deparser")


def _pipeline(
    root: Reader,
    name: str,
    scope: Scope,
    actions: Mapping[int, Action],
    profiles: Mapping[str, ProfileDeclaration],
) -> Pipeline:
    for reader in root.list("pipelines"):
        if reader["name"].text() != name:
            continue
        nodes: dict[str, Node] = {
            t["name"].text(): table(t, scope, actions, profiles) for t in reader.list("tables")
        }
        for call in reader.list("action_calls"):
            nodes[call["name"].text()] = action_call(call, actions)
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
    """Check that every node exists and that the graph has no cycle."""
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
