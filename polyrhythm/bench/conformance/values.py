# SPDX-License-Identifier: Apache-2.0
"""Keys, actions and byte strings of P4Runtime messages, by the specification (8.3, 8.4 and 9.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from finsy.proto import p4d, p4i, p4r, p4t, rpc_code

# The codes that a request may be answered with, and the section that says so.
Codes: TypeAlias = dict[int, str]

INVALID, RANGE = int(rpc_code.INVALID_ARGUMENT), int(rpc_code.OUT_OF_RANGE)
_KINDS = {
    p4i.MatchField.EXACT: "exact",
    p4i.MatchField.LPM: "lpm",
    p4i.MatchField.TERNARY: "ternary",
    p4i.MatchField.RANGE: "range",
    p4i.MatchField.OPTIONAL: "optional",
}
_ONE_SHOT = "action_profile_action_set"
_RANKED = ("ternary", "range", "optional")


def shortest(value: bytes) -> bytes:
    """The canonical form of a byte string; strings of translated types here never begin with a byte of 0."""
    return value.lstrip(b"\0") or b"\0"


def kind_of(field: p4i.MatchField) -> str:
    """The match kind of a field, as the message's member is called."""
    return _KINDS[field.match_type]


def ranked(table: p4i.Table) -> bool:
    """Whether the entries of a table need a priority."""
    return any(kind_of(field) in _RANKED for field in table.match_fields)


class ValueTypes:
    """What byte strings a P4Info's types take."""

    def __init__(self, info: p4t.P4TypeInfo) -> None:
        self._info = info

    def translated(self, type_name: str) -> bool:
        """Whether clients see the type otherwise than the program has it."""
        types = self._info.new_types
        return type_name in types and types[type_name].HasField("translated_type")

    def members(self, bits: int, type_name: str) -> list[str] | None:
        """The names that a value of type `error` may have; None for a value of another type."""
        return None if bits or type_name else list(self._info.error.members)

    def check(self, value: bytes, bits: int, type_name: str = "") -> Codes:
        """The codes for a byte string that is no value of P4Info's `bits` and type."""
        if not value:
            return {INVALID: "8.3"}
        names = self.members(bits, type_name)
        if names is not None:
            return {} if value in [name.encode() for name in names] else {INVALID: "8.4.5"}
        if not bits:
            return {}
        return {RANGE: "8.3"} if int.from_bytes(value, "big") >> bits else {}

    def check_data(self, spec: p4t.P4DataTypeSpec, data: p4d.P4Data) -> Codes:
        """The codes for P4Data that is no value of a scalar type."""
        given = data.WhichOneof("data")
        wanted, bits = self.scalar(spec)
        if given != wanted:
            return {INVALID: "9.7"}
        if wanted == "bool":
            return {}
        return self.check(data.bitstring if wanted == "bitstring" else data.enum_value, bits)

    def scalar(self, spec: p4t.P4DataTypeSpec) -> tuple[str, int]:
        """The member of P4Data that carries a scalar type, and its bits; ("", 0) for another type."""
        match spec.WhichOneof("type_spec"):
            case "bitstring":
                kind = spec.bitstring
                return "bitstring", kind.bit.bitwidth or kind.int.bitwidth
            case "bool":
                return "bool", 1
            case "serializable_enum":
                enum = self._info.serializable_enums[spec.serializable_enum.name]
                return "enum_value", enum.underlying_type.bitwidth
            case "new_type" if not self.translated(spec.new_type.name):
                return self.scalar(self._info.new_types[spec.new_type.name].original_type)
            case _:
                return "", 0

    def check_key(self, table: p4i.Table, message: p4r.TableEntry) -> Codes:
        """The codes for what is wrong with match and priority."""
        codes: Codes = {}
        if (message.priority > 0) != ranked(table) or message.priority < 0:
            codes[INVALID] = "9.1"
        return codes | self.check_match(table.match_fields, message.match)

    def check_match(self, declared: Iterable[p4i.MatchField], match: Iterable[p4r.FieldMatch]) -> Codes:
        """The codes for what is wrong with the fields of an entry's key, or of a value set's member."""
        codes: Codes = {}
        fields = {field.id: field for field in declared}
        given = [item.field_id for item in match]
        needed = {field.id for field in fields.values() if kind_of(field) == "exact"}
        if len(set(given)) != len(given) or not needed <= set(given):
            codes[INVALID] = "9.1.1"
        for item in match:
            field = fields.get(item.field_id)
            if field is None or item.WhichOneof("field_match_type") != kind_of(field):
                codes[INVALID] = "9.1.1"
            else:
                codes |= self._check_field(field, item)
        return codes

    def _check_field(self, field: p4i.MatchField, item: p4r.FieldMatch) -> Codes:
        width, name = field.bitwidth, field.type_name.name
        full = (1 << width) - 1
        match kind_of(field):
            case "exact":
                return self.check(item.exact.value, width, name)
            case "optional":
                return self.check(item.optional.value, width, name)
            case "lpm":
                codes, value = self.check(item.lpm.value, width), int.from_bytes(item.lpm.value, "big")
                wrong = not 1 <= item.lpm.prefix_len <= width or value & full >> item.lpm.prefix_len
            case "ternary":
                codes = self.check(item.ternary.value, width) | self.check(item.ternary.mask, width)
                value, mask = (
                    int.from_bytes(text, "big") for text in (item.ternary.value, item.ternary.mask)
                )
                wrong = not mask or value & ~mask
            case _:
                codes = self.check(item.range.low, width) | self.check(item.range.high, width)
                low, high = (int.from_bytes(text, "big") for text in (item.range.low, item.range.high))
                wrong = low > high or (low, high) == (0, full)
        return codes | {INVALID: "9.1.1"} if wrong else codes

    def check_action(
        self,
        actions: Mapping[int, p4i.Action],
        refs: Iterable[p4i.ActionRef],
        call: p4r.Action,
        barred: int,
    ) -> Codes:
        """The codes for an action that is not of `refs`, out of scope (`barred`), or ill-formed."""
        scopes = {ref.id: ref.scope for ref in refs}
        if call.action_id not in scopes:
            return {INVALID: "9.1.2"}
        codes: Codes = {}
        if scopes[call.action_id] == barred:
            codes[rpc_code.PERMISSION_DENIED] = "9.1.2"
        params = {param.id: param for param in actions[call.action_id].params}
        given = [param.param_id for param in call.params]
        if sorted(given) != sorted(params):
            codes[INVALID] = "9.1.2"
        for item in call.params:
            if item.param_id in params:
                param = params[item.param_id]
                codes |= self.check(item.value, param.bitwidth, param.type_name.name)
        return codes


def canonical_action(call: p4r.Action) -> p4r.Action:
    """An action as it is read: parameters by their ids, values in the shortest form."""
    kept = p4r.Action(action_id=call.action_id)
    for param in sorted(call.params, key=lambda param: param.param_id):
        kept.params.add(param_id=param.param_id, value=shortest(param.value))
    return kept


def canonical_match(match: Iterable[p4r.FieldMatch]) -> list[p4r.FieldMatch]:
    """The fields of a key as they are read: by their ids, values in the shortest form."""
    kept = []
    for item in sorted(match, key=lambda item: item.field_id):
        field = p4r.FieldMatch()
        field.CopyFrom(item)
        kept.append(field)
        which = field.WhichOneof("field_match_type")
        if which is None:
            continue
        value = getattr(field, which)
        for name in ("value", "mask", "low", "high"):
            if name in value.DESCRIPTOR.fields_by_name:
                setattr(value, name, shortest(getattr(value, name)))
    return kept


def canonical_entry(message: p4r.TableEntry) -> p4r.TableEntry:
    """An entry as it is read: fields by their ids, values in the shortest form."""
    kept = p4r.TableEntry()
    kept.CopyFrom(message)
    del kept.match[:]
    kept.match.extend(canonical_match(message.match))
    which = kept.action.WhichOneof("type")
    if which == "action":
        kept.action.action.CopyFrom(canonical_action(message.action.action))
    for part in kept.action.action_profile_action_set.action_profile_actions if which == _ONE_SHOT else ():
        part.action.CopyFrom(canonical_action(part.action))
        if part.watch_port:
            part.watch_port = shortest(part.watch_port)
    return kept
