# SPDX-License-Identifier: Apache-2.0
"""Keys, actions and byte strings of P4Runtime messages, by the specification (P4Runtime 1.5, 8.3 and 9.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from finsy.proto import p4i, p4r, rpc_code

_KINDS = {
    p4i.MatchField.EXACT: "exact",
    p4i.MatchField.LPM: "lpm",
    p4i.MatchField.TERNARY: "ternary",
    p4i.MatchField.RANGE: "range",
    p4i.MatchField.OPTIONAL: "optional",
}
_RANKED = ("ternary", "range", "optional")


def shortest(value: bytes) -> bytes:
    """The canonical form of a byte string."""
    return value.lstrip(b"\0") or b"\0"


def kind_of(field: p4i.MatchField) -> str:
    """The match kind of a field, as the message's member is called."""
    return _KINDS[field.match_type]


def ranked(table: p4i.Table) -> bool:
    """Whether the entries of a table need a priority."""
    return any(kind_of(field) in _RANKED for field in table.match_fields)


def check_value(value: bytes, width: int) -> set[int]:
    """The codes for a byte string that is no value of `width` bits."""
    if not value:
        return {rpc_code.INVALID_ARGUMENT}
    return {rpc_code.OUT_OF_RANGE} if int.from_bytes(value, "big") >> width else set()


def check_key(table: p4i.Table, message: p4r.TableEntry) -> set[int]:
    """The codes for what is wrong with match and priority."""
    codes: set[int] = set()
    invalid = rpc_code.INVALID_ARGUMENT
    fields = {field.id: field for field in table.match_fields}
    given = [item.field_id for item in message.match]
    if len(set(given)) != len(given) or (message.priority > 0) != ranked(table) or message.priority < 0:
        codes.add(invalid)
    needed = {field.id for field in table.match_fields if kind_of(field) == "exact"}
    if not needed <= set(given):
        codes.add(invalid)
    for item in message.match:
        field = fields.get(item.field_id)
        if field is None or item.WhichOneof("field_match_type") != kind_of(field):
            codes.add(invalid)
        else:
            codes |= _check_field(field, item)
    return codes


def _check_field(field: p4i.MatchField, item: p4r.FieldMatch) -> set[int]:
    width, invalid = field.bitwidth, {int(rpc_code.INVALID_ARGUMENT)}
    full = (1 << width) - 1
    match kind_of(field):
        case "exact":
            return check_value(item.exact.value, width)
        case "optional":
            return check_value(item.optional.value, width)
        case "lpm":
            codes, value = check_value(item.lpm.value, width), int.from_bytes(item.lpm.value, "big")
            wrong = not 1 <= item.lpm.prefix_len <= width or value & full >> item.lpm.prefix_len
        case "ternary":
            codes = check_value(item.ternary.value, width) | check_value(item.ternary.mask, width)
            value, mask = (int.from_bytes(text, "big") for text in (item.ternary.value, item.ternary.mask))
            wrong = not mask or value & ~mask
        case _:
            codes = check_value(item.range.low, width) | check_value(item.range.high, width)
            low, high = (int.from_bytes(text, "big") for text in (item.range.low, item.range.high))
            wrong = low > high or (low, high) == (0, full)
    return codes | invalid if wrong else codes


def check_action(
    actions: Mapping[int, p4i.Action], refs: Iterable[p4i.ActionRef], call: p4r.Action, barred: int
) -> set[int]:
    """The codes for an action that is none of `refs`, is out of its scope (`barred`), or is ill-formed."""
    scopes = {ref.id: ref.scope for ref in refs}
    if call.action_id not in scopes:
        return {rpc_code.INVALID_ARGUMENT}
    codes: set[int] = {rpc_code.PERMISSION_DENIED} if scopes[call.action_id] == barred else set()
    params = {param.id: param.bitwidth for param in actions[call.action_id].params}
    given = [param.param_id for param in call.params]
    if sorted(given) != sorted(params):
        codes.add(rpc_code.INVALID_ARGUMENT)
    for param in call.params:
        if param.param_id in params:
            codes |= check_value(param.value, params[param.param_id])
    return codes


def canonical_action(call: p4r.Action) -> p4r.Action:
    """An action as it is read: parameters by their ids, values in the shortest form."""
    kept = p4r.Action(action_id=call.action_id)
    for param in sorted(call.params, key=lambda param: param.param_id):
        kept.params.add(param_id=param.param_id, value=shortest(param.value))
    return kept


def canonical_entry(message: p4r.TableEntry) -> p4r.TableEntry:
    """An entry as it is read: fields by their ids, values in the shortest form."""
    kept = p4r.TableEntry()
    kept.CopyFrom(message)
    del kept.match[:]
    for item in sorted(message.match, key=lambda item: item.field_id):
        kept.match.append(item)
        which = kept.match[-1].WhichOneof("field_match_type")
        value = getattr(kept.match[-1], which or "exact")
        for name in ("value", "mask", "low", "high"):
            if name in value.DESCRIPTOR.fields_by_name:
                setattr(value, name, shortest(getattr(value, name)))
    if kept.action.WhichOneof("type") == "action":
        kept.action.action.CopyFrom(canonical_action(message.action.action))
    return kept
