# SPDX-License-Identifier: Apache-2.0
"""Convert table entries between P4Runtime messages and the switch's values, with the checks of the
specification.
"""

from __future__ import annotations

from finsy.proto import p4r

from bmv2.entries import MatchValue, TableEntry
from bmv2.server.errors import INVALID_ARGUMENT, PERMISSION_DENIED, StatusError, invalid
from bmv2.server.matches import decode_fields, encode_fields
from bmv2.server.schema import Schema, TableInfo
from bmv2.server.translations import read_value, write_value


def decode_match(table: TableInfo, message: p4r.TableEntry) -> tuple[MatchValue, ...]:
    """Read an entry's key.

    Raises StatusError for unknown, repeated, missing, ill-typed or ill-formed fields.
    """
    return decode_fields(f"table {table.name}", table.key, message.match)


def decode_priority(table: TableInfo, message: p4r.TableEntry) -> int:
    """Read an entry's priority: above 0 where the key has a ternary, range or optional field, 0 elsewhere."""
    if table.prioritised and message.priority <= 0:
        raise invalid(
            f"table {table.name}: a priority above 0 is needed (its key has a ternary, range or "
            f"optional field), not {message.priority}"
        )
    if not table.prioritised and message.priority != 0:
        raise invalid(f"table {table.name}: takes no priority, but {message.priority} is given")
    return message.priority


def decode_action(
    schema: Schema, table: TableInfo, message: p4r.TableAction, *, default: bool
) -> tuple[str, tuple[int, ...]]:
    """Read an action and its parameters (in the order of their ids) for an entry, or for the default entry.

    Raises StatusError for an action that is not the table's, or not allowed in that place, and for
    unknown, repeated, missing or too wide parameters.
    """
    if message.WhichOneof("type") != "action":
        raise invalid(f"table {table.name}: a plain action is needed here")
    allowed, barred = table.entry_actions, table.default_actions
    place = "its entries"
    if default:
        allowed, barred, place = barred, allowed, "its default entry"
    return decode_call(schema, message.action, allowed, barred, f"table {table.name}, {place}")


def decode_call(
    schema: Schema, call: p4r.Action, allowed: frozenset[int], barred: frozenset[int], what: str
) -> tuple[str, tuple[int, ...]]:
    """Read an action, one of `allowed`, and its parameters; `what` names the place in errors.

    Raises StatusError: PERMISSION_DENIED for another action of `barred`, those of the table that its scope
    keeps from this place; INVALID_ARGUMENT for one that is not the table's at all.
    """
    if call.action_id not in allowed:
        names = ", ".join(f"{key:#x} ({schema.actions[key].name})" for key in sorted(allowed)) or "none"
        code = PERMISSION_DENIED if call.action_id in barred else INVALID_ARGUMENT
        raise StatusError(code, f"{what}: action id {call.action_id:#x} is not allowed; legal: {names}")
    action = schema.actions[call.action_id]
    params = {param.id: param for param in action.params}
    values: dict[int, int] = {}
    for item in call.params:
        param = params.get(item.param_id)
        if param is None:
            legal = ", ".join(f"{known.id} ({known.name})" for known in action.params) or "none"
            raise invalid(f"action {action.name}: parameter id {item.param_id} is unknown; legal: {legal}")
        if param.id in values:
            raise invalid(f"action {action.name}: parameter {param.name} is given twice")
        values[param.id] = read_value(param, item.value, f"action {action.name}, {param.name}")
    for param in action.params:
        if param.id not in values:
            raise invalid(f"action {action.name}: parameter {param.name} (id {param.id}) is missing")
    return action.name, tuple(values[param.id] for param in action.params)


def encode_call(schema: Schema, name: str, params: tuple[int, ...]) -> p4r.Action:
    """Write an action with its parameters in canonical form."""
    action = schema.action_named(name)
    message = p4r.Action(action_id=action.id)
    for field, value in zip(action.params, params, strict=True):
        message.params.add(param_id=field.id, value=write_value(field, value))
    return message


def encode_action(schema: Schema, name: str, params: tuple[int, ...]) -> p4r.TableAction:
    """Write an action of a table with its parameters in canonical form."""
    return p4r.TableAction(action=encode_call(schema, name, params))


def encode_key(table: TableInfo, entry: TableEntry) -> p4r.TableEntry:
    """Write an entry's table, match and priority: don't-care fields left out, canonical values."""
    message = p4r.TableEntry(table_id=table.id, priority=entry.priority)
    message.match.extend(encode_fields(table.key, entry.match))
    return message


def encode_entry(schema: Schema, table: TableInfo, entry: TableEntry) -> p4r.TableEntry:
    """Write an entry as a client would have to write it, but for an action set."""
    message = encode_key(table, entry)
    message.idle_timeout_ns = entry.timeout_ns
    if entry.member is not None:
        message.action.action_profile_member_id = entry.member
    elif entry.group is not None:
        message.action.action_profile_group_id = entry.group
    else:
        message.action.CopyFrom(encode_action(schema, entry.action, entry.params))
    return message
