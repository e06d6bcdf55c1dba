# SPDX-License-Identifier: Apache-2.0
"""Random byte strings, keys, actions and rates: most of them legal, some spoiled in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from finsy.proto import p4d, p4i, p4r, p4t

from polyrhythm.bench.conformance.values import ValueTypes, kind_of

UNKNOWN_ID = 0x00ABCDEF
# Chosen: small, so that updates meet what earlier ones wrote.
_VALUES = 5
_SPOILED = 0.15
# Names and numbers of strings: few enough for a type of the fewest bits that a program of p4c's has.
_STRINGS = (b"1", b"2", b"0", b"uplink", b"to/spine-1", b"\xc3\xa9")


class ValueDraws:
    """Draws for one P4Info's types."""

    def __init__(self, rng: Random, types: ValueTypes) -> None:
        self.rng = rng
        self._types = types

    def spoiled(self) -> bool:
        """Whether to do something wrong now."""
        return self.rng.random() < _SPOILED

    def value(self, bits: int, type_name: str = "") -> bytes:
        """A value: small or any, in the shortest form or padded, seldom too wide or empty."""
        rng = self.rng
        if not bits:
            names = self._types.members(bits, type_name)
            legal = _STRINGS if names is None else [name.encode() for name in names]
            return b"" if rng.random() < 0.01 else rng.choice(legal) if rng.random() < 0.97 else b"\x01\x02"
        value = self.number(bits, type_name)
        if rng.random() < 0.01:
            return b"" if rng.random() < 0.3 else (value | 1 << bits).to_bytes(bits // 8 + 1, "big")
        length = max(1, (value.bit_length() + 7) // 8) + (rng.random() < 0.1)
        return value.to_bytes(length, "big")

    def number(self, bits: int, type_name: str = "") -> int:
        """A number of so many bits; a small one of a translated type, whose program may have fewer."""
        if self.rng.random() < 0.8 or self._types.translated(type_name):
            return self.rng.randrange(min(_VALUES, 1 << bits))
        return self.rng.getrandbits(bits)

    def match(self, fields: Iterable[p4i.MatchField]) -> list[p4r.FieldMatch]:
        """The fields of a key in any order."""
        chosen = list(fields)
        self.rng.shuffle(chosen)
        return [
            self._field(field)
            for field in chosen
            if self.rng.random() >= (0.005 if kind_of(field) == "exact" else 0.25)
        ]

    def _field(self, field: p4i.MatchField) -> p4r.FieldMatch:
        rng, kind, bits, name = self.rng, kind_of(field), field.bitwidth, field.type_name.name
        # Of a translated type only whole values are drawn: what else there is depends on the program's bits.
        whole = self._types.translated(name)
        item = p4r.FieldMatch(field_id=field.id)
        if kind == "exact":
            item.exact.value = self.value(bits, name)
        elif kind == "optional":
            item.optional.value = self.value(bits, name)
        elif kind == "lpm":
            prefix = bits if whole else rng.randint(1, bits)
            item.lpm.prefix_len = prefix
            item.lpm.value = encode(self.number(bits, name) << (bits - prefix) & (1 << bits) - 1)
        elif kind == "ternary":
            mask = (1 << bits) - 1 if whole else rng.getrandbits(bits) or 1
            item.ternary.mask = encode(mask)
            item.ternary.value = encode(self.number(bits, name) & mask)
        else:
            low = self.number(bits, name)
            low, high = sorted((low, low if whole else rng.getrandbits(bits)))
            item.range.low, item.range.high = encode(low), encode(high)
        return item

    def spoil_match(self, match: list[p4r.FieldMatch]) -> None:
        """Do something wrong to a key."""
        rng = self.rng
        choice = rng.randrange(4)
        if choice == 0 or not match:
            match.append(p4r.FieldMatch(field_id=rng.randint(60, 70)))
            match[-1].exact.value = b"\1"
            return
        item = rng.choice(match)
        if choice == 1:
            match.append(item)
        elif choice == 2:
            if item.HasField("exact"):
                item.ternary.value = item.ternary.mask = b"\1"
            else:
                item.exact.value = b"\1"
        elif item.HasField("ternary"):
            item.ternary.value, item.ternary.mask = b"\1", b"\2"
        elif item.HasField("range"):
            item.range.low, item.range.high = b"\2", b"\1"
        elif item.HasField("lpm"):
            item.lpm.prefix_len = rng.choice((0, -1, 4096))

    def action(self, refs: list[p4i.ActionRef], actions: Mapping[int, p4i.Action]) -> p4r.Action:
        """A call of one of `refs`, seldom of another action or with parameters too few or too many."""
        rng = self.rng
        message = p4r.Action(action_id=rng.choice(refs).id if refs else UNKNOWN_ID)
        if rng.random() < 0.01:
            message.action_id = rng.choice((0, UNKNOWN_ID, *actions))
        for param in actions.get(message.action_id, p4i.Action()).params:
            if rng.random() > 0.01:
                value = self.value(param.bitwidth, param.type_name.name)
                message.params.add(param_id=param.id, value=value)
        if rng.random() < 0.01:
            message.params.add(param_id=rng.randint(1, 9), value=b"\1")
        return message

    def rates(self, kind: int) -> p4r.MeterConfig:
        """A meter's configuration, legal for a meter of any type or only for the one of two rates."""
        rng = self.rng
        rate = rng.randrange(1, 50)
        config = p4r.MeterConfig(cir=rate, pir=rate, cburst=rate + 1, pburst=rate + 1)
        if kind == p4i.MeterSpec.TWO_RATE_THREE_COLOR and rng.random() < 0.5:
            config.pir, config.pburst = rate + rng.randrange(9), rate + rng.randrange(9)
        if self.spoiled():
            name = rng.choice(("cir", "cburst", "pir", "pburst", "eburst"))
            setattr(config, name, rng.choice((-1, 1000)))
        return config

    def counts(self) -> p4r.CounterData:
        """A counter's data."""
        data = p4r.CounterData(packet_count=self.rng.randrange(100), byte_count=self.rng.randrange(1000))
        if self.rng.random() < 0.02:
            data.packet_count = -1
        return data

    def index(
        self, message: p4r.CounterEntry | p4r.MeterEntry | p4r.RegisterEntry, size: int, most: int
    ) -> None:
        """Give a request an index, seldom a wrong one, or none in arrays of at most `most` cells."""
        rng = self.rng
        if size <= most and rng.random() < 0.05:
            return
        message.index.index = rng.randrange(min(size, _VALUES) or 1)
        if self.spoiled():
            message.index.index = rng.choice((-1, size, size + 5))

    def data(self, spec: p4t.P4DataTypeSpec) -> p4d.P4Data:
        """A value of a scalar type, seldom of another."""
        rng = self.rng
        member, bits = self._types.scalar(spec)
        if rng.random() < 0.02:
            member = rng.choice(("bool", "bitstring", "enum_value", ""))
        match member:
            case "bool":
                return p4d.P4Data(bool=rng.random() < 0.5)
            case "bitstring":
                return p4d.P4Data(bitstring=self.value(bits or 8))
            case "enum_value":
                return p4d.P4Data(enum_value=self.value(bits or 8))
            case _:
                return p4d.P4Data()


def encode(value: int) -> bytes:
    """The shortest byte string of a number."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
