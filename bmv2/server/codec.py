# SPDX-License-Identifier: Apache-2.0
"""Table entries between P4Runtime's messages and the switch's values, with every check of the specification.

Byte strings follow P4Runtime 1.4, section 8.3: a receiver looks at the value, not at the length, so a
padded string is read; everything kept, compared and sent is the canonical (shortest) form.
"""

from __future__ import annotations

from finsy.proto import p4r

from bmv2.entries import Exact, Lpm, MatchValue, Optional, Range, TableEntry, Ternary
from bmv2.server.errors import OUT_OF_RANGE, StatusError, invalid
from bmv2.server.schema import MatchField, MatchKind, Schema, Table


def decode_uint(data: bytes, width: int, what: str) -> int:
    """Read an unsigned big-endian value of at most `width` bits.

    Raises StatusError: INVALID_ARGUMENT for an empty string, OUT_OF_RANGE for a value that does not fit.
    """
    if not data:
        raise invalid(f"{what}: the byte string is empty; zero is the one byte 00")
    value = int.from_bytes(data, "big")
    if value >> width:
        raise StatusError(OUT_OF_RANGE, f"{what}: {value:#x} does not fit into {width} bits")
    return value


def encode_uint(value: int) -> bytes:
    """Write an unsigned value in the canonical form: the fewest bytes, at least one."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode_match(table: Table, message: p4r.TableEntry) -> tuple[MatchValue, ...]:
    """Read a key: one value per field of the table's key, don't-care where a field may be left out.

    Raises StatusError for unknown, repeated, missing, ill-typed or ill-formed fields.
    """
    given: dict[int, p4r.FieldMatch] = {}
    known = {field.id for field in table.key}
    for item in message.match:
        if item.field_id not in known:
            legal = ", ".join(f"{field.id} ({field.name})" for field in table.key) or "none"
            raise invalid(f"table {table.name}: match field id {item.field_id} is unknown; legal: {legal}")
        if item.field_id in given:
            raise invalid(f"table {table.name}: match field id {item.field_id} is given twice")
        given[item.field_id] = item
    return tuple(_decode_field(table, field, given.get(field.id)) for field in table.key)


def _decode_field(table: Table, field: MatchField, item: p4r.FieldMatch | None) -> MatchValue:
    what = f"table {table.name}, match field {field.name}"
    if item is None:
        return _absent(field, what)
    kind = item.WhichOneof("field_match_type")
    if kind != field.kind.value:
        raise invalid(f"{what}: is {field.kind.value}, but {kind or 'nothing'} is given")
    full = (1 << field.width) - 1
    if field.kind is MatchKind.EXACT:
        return Exact(decode_uint(item.exact.value, field.width, what))
    if field.kind is MatchKind.OPTIONAL:
        return Optional(decode_uint(item.optional.value, field.width, what))
    if field.kind is MatchKind.LPM:
        value, prefix = decode_uint(item.lpm.value, field.width, what), item.lpm.prefix_len
        if not 1 <= prefix <= field.width:
            raise invalid(
                f"{what}: a prefix length of {prefix} is not in 1..{field.width}; leave the field out for 0"
            )
        if value & (full >> prefix):
            raise invalid(f"{what}: {value:#x} has bits set beyond its prefix of {prefix}")
        return Lpm(value, prefix)
    if field.kind is MatchKind.TERNARY:
        value = decode_uint(item.ternary.value, field.width, what)
        mask = decode_uint(item.ternary.mask, field.width, f"{what}, mask")
        if not mask:
            raise invalid(f"{what}: the mask is 0; leave the field out to match anything")
        if value & ~mask:
            raise invalid(f"{what}: {value:#x} has bits set outside its mask {mask:#x}")
        return Ternary(value, mask)
    low = decode_uint(item.range.low, field.width, f"{what}, low end")
    high = decode_uint(item.range.high, field.width, f"{what}, high end")
    if low > high:
        raise invalid(f"{what}: the low end {low} is above the high end {high}")
    if low == 0 and high == full:
        raise invalid(f"{what}: the range is everything; leave the field out to match anything")
    return Range(low, high)


def _absent(field: MatchField, what: str) -> MatchValue:
    if field.kind is MatchKind.EXACT:
        raise invalid(f"{what}: is missing, and an exact field must be given")
    if field.kind is MatchKind.LPM:
        return Lpm(0, 0)
    if field.kind is MatchKind.TERNARY:
        return Ternary(0, 0)
    if field.kind is MatchKind.RANGE:
        return Range(0, (1 << field.width) - 1)
    return Optional(None)


def decode_priority(table: Table, message: p4r.TableEntry) -> int:
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
    schema: Schema, table: Table, message: p4r.TableAction, *, default: bool
) -> tuple[str, tuple[int, ...]]:
    """Read an action and its parameters (in the order of their ids) for an entry, or for the default entry.

    Raises StatusError for an action that is not the table's, or not allowed in that place, and for
    unknown, repeated, missing or too wide parameters.
    """
    if message.WhichOneof("type") != "action":
        raise invalid(f"table {table.name}: a plain action is needed here")
    allowed = table.default_actions if default else table.entry_actions
    place = "its default entry" if default else "its entries"
    return decode_call(schema, message.action, allowed, f"table {table.name}, {place}")


def decode_call(
    schema: Schema, call: p4r.Action, allowed: frozenset[int], what: str
) -> tuple[str, tuple[int, ...]]:
    """Read an action, one of `allowed`, and its parameters; `what` names the place in errors."""
    if call.action_id not in allowed:
        names = ", ".join(f"{key:#x} ({schema.actions[key].name})" for key in sorted(allowed)) or "none"
        raise invalid(f"{what}: action id {call.action_id:#x} is not allowed; legal: {names}")
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
        values[param.id] = decode_uint(item.value, param.width, f"action {action.name}, {param.name}")
    for param in action.params:
        if param.id not in values:
            raise invalid(f"action {action.name}: parameter {param.name} (id {param.id}) is missing")
    return action.name, tuple(values[param.id] for param in action.params)


def encode_call(schema: Schema, name: str, params: tuple[int, ...]) -> p4r.Action:
    """Write an action with its parameters in canonical form."""
    action = schema.action_named(name)
    message = p4r.Action(action_id=action.id)
    for field, value in zip(action.params, params, strict=True):
        message.params.add(param_id=field.id, value=encode_uint(value))
    return message


def encode_action(schema: Schema, name: str, params: tuple[int, ...]) -> p4r.TableAction:
    """Write an action of a table with its parameters in canonical form."""
    return p4r.TableAction(action=encode_call(schema, name, params))


def encode_key(table: Table, entry: TableEntry) -> p4r.TableEntry:
    """Write an entry's table, match and priority: don't-care fields left out, canonical values."""
    message = p4r.TableEntry(table_id=table.id, priority=entry.priority)
    for field, value in zip(table.key, entry.match, strict=True):
        _encode_field(message, field, value)
    return message


def encode_entry(schema: Schema, table: Table, entry: TableEntry) -> p4r.TableEntry:
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


def _encode_field(message: p4r.TableEntry, field: MatchField, value: MatchValue) -> None:
    item = p4r.FieldMatch(field_id=field.id)
    match value:
        case Exact():
            item.exact.value = encode_uint(value.value)
        case Lpm():
            if value.prefix_len == 0:
                return
            item.lpm.value = encode_uint(value.value)
            item.lpm.prefix_len = value.prefix_len
        case Ternary():
            if value.mask == 0:
                return
            item.ternary.value = encode_uint(value.value)
            item.ternary.mask = encode_uint(value.mask)
        case Range():
            if value.low == 0 and value.high == (1 << field.width) - 1:
                return
            item.range.low = encode_uint(value.low)
            item.range.high = encode_uint(value.high)
        case Optional():
            if value.value is None:
                return
            item.optional.value = encode_uint(value.value)
    message.match.append(item)
