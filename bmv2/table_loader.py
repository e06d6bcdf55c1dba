# SPDX-License-Identifier: Apache-2.0
"""Tables of BMv2's JSON: keys, actions, default entry and constant entries."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .entries import Exact, Lpm, MatchValue, Range, TableEntry, Ternary
from .expressions import Scope
from .ir import Action, DefaultEntry, FieldRef, KeyField, ProfileDeclaration, Table, ValidBit
from .json_reader import Reader

KINDS = ("exact", "lpm", "ternary", "range")


def table(
    reader: Reader, scope: Scope, actions: Mapping[int, Action], profiles: Mapping[str, ProfileDeclaration]
) -> Table:
    """One table, its next nodes by the names of its actions."""
    name = reader["name"].text()
    meter = reader.optional_text("direct_meters")
    if meter is not None and (meter not in scope.meters or scope.meters[meter].target is None):
        raise reader.fail(f"no direct meter is called '{meter}'")
    key = tuple(_key_field(k, scope) for k in reader.list("key"))
    kind = reader["match_type"].text()
    if kind not in KINDS:
        raise reader.fail(f"match type '{kind}' is not supported; supported: {', '.join(KINDS)}")
    if sum(part.kind == "lpm" for part in key) > 1:
        raise reader.fail("a table can have one LPM field only")
    own: dict[str, Action] = {}
    for identity in reader.list("action_ids"):
        chosen = _action(identity, actions)
        own[chosen.name] = chosen
    next_reader = reader["next_tables"]
    hit_miss = None
    next_nodes: dict[str, str | None] = {}
    following = next_reader.members()
    if "__HIT__" in following or "__MISS__" in following:
        hit_miss = (next_reader.optional_text("__HIT__"), next_reader.optional_text("__MISS__"))
    else:
        for action_name in own:
            if action_name not in following:
                raise next_reader.fail(f"there is no next node for action '{action_name}'")
            next_nodes[action_name] = next_reader.optional_text(action_name)
    default = _default(reader, actions, own)
    size = reader.get("max_size")
    return Table(
        name=name,
        kind=kind,
        key=key,
        size=1024 if size is None else size.integer(),
        direct_counter=reader.optional_flag("with_counters", False),
        actions=MappingProxyType(own),
        next_nodes=MappingProxyType(next_nodes),
        hit_miss=hit_miss,
        base_next=reader.optional_text("base_default_next"),
        default=default,
        initial_entries=_initial_entries(reader, key, actions),
        profile=_profile(reader, profiles),
        direct_meter=meter,
        timeout=reader.optional_flag("support_timeout", False),
    )


def _profile(reader: Reader, profiles: Mapping[str, ProfileDeclaration]) -> str | None:
    kind = reader["type"].text()
    if kind == "simple":
        return None
    if kind not in ("indirect", "indirect_ws"):
        raise reader.fail(
            f"tables of type '{kind}' are not supported; supported: simple, indirect, indirect_ws"
        )
    name = reader["action_profile"].text()
    if name not in profiles:
        raise reader.fail(f"no action profile is called '{name}'")
    if kind == "indirect_ws" and profiles[name].selector is None:
        raise reader.fail(f"action profile '{name}' has no selector")
    return name


def action_call(reader: Reader, actions: Mapping[int, Action]) -> Table:
    """An action called outside a table, as a table without a key."""
    action = _action(reader["action_id"], actions)
    if action.params:
        raise reader.fail(f"action '{action.name}' needs parameters")
    following = reader.optional_text("next_node")
    return Table(
        name=reader["name"].text(),
        kind="exact",
        key=(),
        size=0,
        direct_counter=False,
        actions=MappingProxyType({action.name: action}),
        next_nodes=MappingProxyType({action.name: following}),
        hit_miss=None,
        base_next=following,
        default=DefaultEntry(action.name, (), True, True),
        initial_entries=None,
    )


def _key_field(reader: Reader, scope: Scope) -> KeyField:
    kind = reader["match_type"].text()
    target = reader["target"]
    source: FieldRef | ValidBit
    if kind == "valid":
        source, kind = ValidBit(scope.header(target)), "exact"
    else:
        source = scope.field(target)
    # p4c writes optional fields as ternary ones; `optional` is accepted for compilers that do not.
    kind = "ternary" if kind == "optional" else kind
    if kind not in KINDS:
        raise reader.fail(
            f"match kind '{kind}' is not supported; supported: {', '.join(KINDS)}, optional, valid"
        )
    width = 1
    if isinstance(source, FieldRef):
        width = scope.headers[source.header].fields[source.field].width
    mask = reader.get("mask")
    label = reader.optional_text("name") or ".".join(target.value)
    return KeyField(label, kind, source, width, None if mask is None else mask.hexadecimal())


def _action(reader: Reader, actions: Mapping[int, Action]) -> Action:
    identity = reader.integer()
    if identity not in actions:
        raise reader.fail(f"no action has the id {identity}")
    return actions[identity]


def _params(reader: Reader, action: Action) -> tuple[int, ...]:
    values = tuple(value.hexadecimal() for value in reader.items())
    if len(values) != len(action.params):
        raise reader.fail(f"action '{action.name}' takes {len(action.params)} parameters, got {len(values)}")
    return values


def _default(reader: Reader, actions: Mapping[int, Action], own: Mapping[str, Action]) -> DefaultEntry | None:
    entry = reader.get("default_entry")
    if entry is None:
        return None
    action = _action(entry["action_id"], actions)
    if action.name not in own:
        raise entry.fail(f"the default action '{action.name}' is not one of the table's")
    return DefaultEntry(
        action.name,
        _params(entry["action_data"], action),
        entry.optional_flag("action_const", False),
        entry.optional_flag("action_entry_const", False),
    )


def _initial_entries(
    reader: Reader, key: tuple[KeyField, ...], actions: Mapping[int, Action]
) -> tuple[TableEntry, ...] | None:
    """The program's own entries; BMv2's priorities (lower wins) turned into P4Runtime's (higher wins)."""
    if reader.get("entries") is None:
        return None
    items = list(reader.list("entries"))
    ranked = any(part.kind in ("ternary", "range") for part in key)
    lowest = max((item["priority"].integer() for item in items), default=0) if ranked else 0
    entries: list[TableEntry] = []
    for item in items:
        values = list(item["match_key"].items())
        if len(values) != len(key):
            raise item.fail(f"the key has {len(key)} fields, the entry {len(values)}")
        match = tuple(_match_value(value) for value in values)
        call = item["action_entry"]
        action = _action(call["action_id"], actions)
        priority = lowest + 1 - item["priority"].integer() if ranked else 0
        entries.append(TableEntry(match, priority, action.name, _params(call["action_data"], action)))
    return tuple(entries)


def _match_value(reader: Reader) -> MatchValue:
    kind = reader["match_type"].text()
    if kind == "valid":
        return Exact(int(reader["key"].flag()))
    if kind == "exact":
        return Exact(reader["key"].hexadecimal())
    if kind == "lpm":
        return Lpm(reader["key"].hexadecimal(), reader["prefix_length"].integer())
    if kind in ("ternary", "optional"):
        return Ternary(reader["key"].hexadecimal(), reader["mask"].hexadecimal())
    if kind == "range":
        return Range(reader["start"].hexadecimal(), reader["end"].hexadecimal())
    raise reader.fail(f"match kind '{kind}' is not supported in an entry")
