# SPDX-License-Identifier: Apache-2.0
"""The control plane of a packet test: entries, default actions and BMv2's direct commands.

Names are found as p4c's runner finds them: by the whole control-plane name, or by the one name that ends so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TypeVar

from bmv2 import EmbeddedSwitch, P4Program
from bmv2.entries import Exact, Lpm, MatchValue, MeterConfig, Range, TableEntry, Ternary
from bmv2.ir import Action, KeyField, Table

from .language import ActionStatement, Add, Check, Command, Remove, SetDefault, SourceLine, is_number, number

T = TypeVar("T")
_DIGIT_BITS = {"x": 4, "b": 1, "o": 3}
_MICROSECONDS = 1_000_000
# Members made for entries of tables with an action profile, where P4Runtime's 32 bits do not reach.
_FIRST_MEMBER = 1 << 32


class Control:
    """Applies `add`, `setdefault` and the direct commands to an embedded switch."""

    def __init__(self, switch: EmbeddedSwitch, program: P4Program) -> None:
        self._switch = switch
        self._program = program
        self._tables = {table.name: table for table in program.tables()}
        self._labels: dict[str, tuple[str, TableEntry]] = {}
        self._members = count(_FIRST_MEMBER)
        self._groups: dict[int, list[int]] = {}
        self._nodes: list[tuple[int, tuple[int, ...]]] = []
        self._mirrors: dict[int, tuple[str, int]] = {}

    def add(self, statement: Add) -> None:
        """Insert a table entry."""
        place = statement.place
        table = self._find("table", statement.table, self._tables, place)
        keys = self._keys(table, statement)
        match = tuple(_match(part, keys.get(part.name), place) for part in table.key)
        action, params = self._call(table, statement.action, place)
        ranked = any(part.kind in ("ternary", "range") for part in table.key)
        priority = (statement.priority or 0) if ranked else 0
        if table.profile is None:
            entry = TableEntry(match, priority, action, params)
        else:
            member = next(self._members)
            self._switch.add_member(table.profile, member, action, params)
            entry = TableEntry(match, priority, "", member=member)
        self._switch.insert(table.name, entry)
        if statement.label is not None:
            self._labels[statement.label] = (table.name, entry)

    def set_default(self, statement: SetDefault) -> None:
        """Set a table's default action."""
        table = self._find("table", statement.table, self._tables, statement.place)
        self._switch.set_default(table.name, *self._call(table, statement.action, statement.place))

    def remove(self, statement: Remove) -> None:
        """Remove one entry, or all entries that are not constant in the program."""
        if statement.label is not None:
            if statement.label not in self._labels:
                raise statement.place.error(f"no entry has the name '{statement.label[:40]}'")
            self._switch.delete(*self._labels.pop(statement.label))
            return
        for name in self._tables:
            table = self._switch.table(name)
            if not table.constant:
                for entry in table.entries():
                    table.delete(entry)
        self._labels.clear()

    def value(self, check: Check) -> int:
        """The value of a counter or register, or of the direct counter of a named entry."""
        place, ir = check.place, self._program.ir
        unit = int(check.unit == "bytes")
        label = check.index.lstrip("$")
        if not is_number(check.index):
            if check.register or label not in self._labels:
                raise place.error(f"no entry has the name '{label[:40]}'")
            return self._switch.read_direct_counter(*self._labels[label])[unit]
        index = number(check.index, place)
        if check.register:
            cells = self._switch.read_register(self._found("register", check.name, ir.registers, place))
            self._within(index, len(cells), place)
            return cells[index]
        counts = self._switch.read_counter(self._found("counter", check.name, ir.counters, place))
        self._within(index, len(counts), place)
        return counts[index][unit]

    def command(self, statement: Command) -> str | None:
        """Execute a direct command; returns what it reads."""
        handlers: Mapping[str, Callable[[SourceLine, tuple[str, ...]], str | None]] = {
            "mirroring_add": lambda place, words: self._mirror("port", place, words),
            "mirroring_add_mc": lambda place, words: self._mirror("group", place, words),
            "mirroring_delete": lambda place, words: self._mirror("none", place, (*words, "0")),
            "mirroring_get": self._mirroring_get,
            "mc_mgrp_create": self._group_create,
            "mc_node_create": self._node_create,
            "mc_node_update": self._node_update,
            "mc_node_associate": self._node_associate,
            "counter_read": self._counter_read,
            "counter_write": self._counter_write,
            "register_read": self._register_read,
            "register_write": self._register_write,
            "register_reset": self._register_reset,
            "meter_get_rates": self._meter_get_rates,
            "meter_set_rates": self._meter_set_rates,
            "meter_array_set_rates": self._meter_array_set_rates,
        }
        return handlers[statement.name](statement.place, statement.words)

    def _keys(self, table: Table, statement: Add) -> dict[str, str]:
        names = [part.name for part in table.key]
        result: dict[str, str] = {}
        for key, value in statement.keys:
            name = _key_name(key, names)
            if name is None:
                raise statement.place.error(
                    f"table '{table.name}' has no key '{key}'; it has: {', '.join(names) or 'none'}"
                )
            result[name] = value
        return result

    def _call(self, table: Table, call: ActionStatement, place: SourceLine) -> tuple[str, tuple[int, ...]]:
        action: Action = self._find("action", call.name, table.actions, place, f" of table '{table.name}'")
        known = [name for name, _ in action.params]
        for name in call.arguments:
            if name not in known:
                raise place.error(f"action '{action.name}' has no parameter '{name}'; it has: {known}")
        for name in known:
            if name not in call.arguments:
                raise place.error(f"action '{action.name}' needs a value for '{name}'")
        values = tuple(
            _fit(number(call.arguments[name], place), width, name, place) for name, width in action.params
        )
        return action.name, values

    def _found(self, kind: str, name: str, known: Iterable[str], place: SourceLine, where: str = "") -> str:
        names = list(known)
        if name in names:
            return name
        ends = [other for other in names if other.endswith(f".{name}")] or [
            other for other in names if other.endswith(name)
        ]
        if len(ends) != 1:
            problem = "is ambiguous between" if ends else "is none of"
            raise place.error(f"{kind} '{name}'{where} {problem}: {', '.join(ends or names) or 'none'}")
        return ends[0]

    def _find(self, kind: str, name: str, known: Mapping[str, T], place: SourceLine, where: str = "") -> T:
        return known[self._found(kind, name, known, place, where)]

    @staticmethod
    def _within(index: int, size: int, place: SourceLine) -> None:
        if not 0 <= index < size:
            raise place.error(f"the index must be in 0..{size - 1}, got {index}")

    def _mirror(self, kind: str, place: SourceLine, words: tuple[str, ...]) -> None:
        session, target = (number(word, place) for word in words)
        self._mirrors[session] = (kind, target)
        self._apply()

    def _mirroring_get(self, place: SourceLine, words: tuple[str, ...]) -> str:
        kind, target = self._mirrors.get(number(words[0], place), ("none", 0))
        return f"session {words[0]}: {kind if kind == 'none' else f'{kind} {target}'}"

    def _group_create(self, place: SourceLine, words: tuple[str, ...]) -> None:
        self._groups.setdefault(number(words[0], place), [])

    def _node_create(self, place: SourceLine, words: tuple[str, ...]) -> str:
        rid, *ports = (number(word, place) for word in words)
        self._nodes.append((rid, tuple(ports)))
        return f"node {len(self._nodes) - 1}"

    def _node_update(self, place: SourceLine, words: tuple[str, ...]) -> None:
        handle, *ports = (number(word, place) for word in words)
        self._within(handle, len(self._nodes), place)
        self._nodes[handle] = (self._nodes[handle][0], tuple(ports))
        self._apply()

    def _node_associate(self, place: SourceLine, words: tuple[str, ...]) -> None:
        group, handle = (number(word, place) for word in words)
        self._within(handle, len(self._nodes), place)
        if group not in self._groups:
            raise place.error(f"there is no multicast group {group}")
        self._groups[group].append(handle)
        self._apply()

    def _apply(self) -> None:
        """Give the present groups and mirror sessions to the switch."""
        for group in self._groups:
            self._switch.set_multicast_group(group, self._replicas(group))
        for session, (kind, target) in self._mirrors.items():
            replicas = {"port": ((target, 0),), "none": ()}.get(kind)
            self._switch.set_clone_session(session, self._replicas(target) if replicas is None else replicas)

    def _replicas(self, group: int) -> tuple[tuple[int, int], ...]:
        nodes = (self._nodes[handle] for handle in self._groups.get(group, ()))
        return tuple((port, rid) for rid, ports in nodes for port in ports)

    def _counter_read(self, place: SourceLine, words: tuple[str, ...]) -> str:
        counts = self._switch.read_counter(self._found("counter", words[0], self._program.ir.counters, place))
        index = number(words[1], place)
        self._within(index, len(counts), place)
        return f"{words[0]}[{index}] = {counts[index][0]} packets, {counts[index][1]} bytes"

    def _counter_write(self, place: SourceLine, words: tuple[str, ...]) -> None:
        name = self._found("counter", words[0], self._program.ir.counters, place)
        self._switch.write_counter(name, *(number(word, place) for word in words[1:]))

    def _register_read(self, place: SourceLine, words: tuple[str, ...]) -> str:
        cells = self._switch.read_register(
            self._found("register", words[0], self._program.ir.registers, place)
        )
        index = number(words[1], place)
        self._within(index, len(cells), place)
        return f"{words[0]}[{index}] = {cells[index]}"

    def _register_write(self, place: SourceLine, words: tuple[str, ...]) -> None:
        name = self._found("register", words[0], self._program.ir.registers, place)
        self._switch.write_register(name, *(number(word, place) for word in words[1:]))

    def _register_reset(self, place: SourceLine, words: tuple[str, ...]) -> None:
        name = self._found("register", words[0], self._program.ir.registers, place)
        for index in range(len(self._switch.read_register(name))):
            self._switch.write_register(name, index, 0)

    def _meter(self, name: str, place: SourceLine) -> str:
        return self._found("meter", name, self._program.ir.meters, place)

    def _meter_get_rates(self, place: SourceLine, words: tuple[str, ...]) -> str:
        configs = self._switch.read_meter(self._meter(words[0], place))
        index = number(words[1], place)
        self._within(index, len(configs), place)
        return f"{words[0]}[{index}] = {configs[index]}"

    def _meter_set_rates(self, place: SourceLine, words: tuple[str, ...]) -> None:
        config = _rates(words[2:], place)
        self._switch.set_meter(self._meter(words[0], place), number(words[1], place), config)

    def _meter_array_set_rates(self, place: SourceLine, words: tuple[str, ...]) -> None:
        name, config = self._meter(words[0], place), _rates(words[1:], place)
        for index in range(len(self._switch.read_meter(name))):
            self._switch.set_meter(name, index, config)


def _rates(words: tuple[str, ...], place: SourceLine) -> MeterConfig:
    """Two rates per microsecond with their bursts, each as `rate:burst`, the smaller rate first."""
    values: list[int] = []
    for word in words:
        rate, _, burst = word.partition(":")
        try:
            values += [round(float(rate) * _MICROSECONDS), number(burst, place)]
        except (ValueError, OverflowError):
            raise place.error(f"'{word[:40]}' is not a rate written rate:burst") from None
        if values[-2] < 0:
            raise place.error(f"a rate is not negative, got {rate}")
    return MeterConfig(*values)


def _key_name(key: str, names: list[str]) -> str | None:
    """The name of a key: `a$1` stands for `a[1]`, `valid` for the validity of a header."""
    head, dollar, tail = key.partition("$")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    if dollar and digits:
        key = f"{head}[{tail[:digits]}]{tail[digits:]}"
    wanted = [key, f"{key}$", f"{key}.$valid$", f"{key}.isValid()"]
    for ending in (".valid", ".$valid$"):
        if key.endswith(ending):
            stem = key.removesuffix(ending)
            wanted += [f"{stem}.$valid$", f"{stem}.isValid()", f"{stem}.$valid"]
    for name in wanted:
        if name in names:
            return name
    ends = [name for name in names if any(name.endswith(f".{ending}") for ending in wanted)]
    ends = ends or [name for name in names if any(ending.endswith(f".{name}") for ending in wanted)]
    return ends[-1] if ends else None


def _fit(value: int, width: int, name: str, place: SourceLine) -> int:
    """A value as its field stores it. As in BMv2's CLI, it must fit the bytes of the field."""
    if value >> (-(-width // 8) * 8):
        raise place.error(f"'{name}' is {width} bits wide, {value:#x} does not fit")
    return value & ((1 << width) - 1)


def _masked(text: str, place: SourceLine) -> tuple[int, int]:
    """The value and the mask of a number in which `*` stands for any digit."""
    if not is_number(text):
        raise place.error(f"'{text[:40]}' is not a number")
    if text.isdecimal():
        return int(text), -1
    bits = _DIGIT_BITS[text[1].lower()]
    value = mask = 0
    for digit in text[2:]:
        value = value << bits | (0 if digit == "*" else int(digit, 16))
        mask = mask << bits | (0 if digit == "*" else (1 << bits) - 1)
    return value, mask if "*" in text else -1


def _match(part: KeyField, text: str | None, place: SourceLine) -> MatchValue:
    """The match of a key. A key that the test omits matches anything, or 0 for an exact match."""
    full = (1 << part.width) - 1
    if part.kind == "range":
        low, dots, high = (text or f"0..{full}").replace("->", "..").partition("..")
        first = _fit(number(low, place), part.width, part.name, place)
        return Range(first, _fit(number(high, place), part.width, part.name, place) if dots else first)
    if part.kind == "exact":
        return Exact(_fit(number(text or "0", place), part.width, part.name, place))
    text = text or ("0/0" if part.kind == "lpm" else "0&&&0")
    value, slash, length = text.partition("/")
    if part.kind == "lpm":
        bits, mask = _masked(value, place)
        prefix = number(length, place) if slash else _prefix(value, part.width)
        if prefix > part.width:
            raise place.error(f"'{part.name}' is {part.width} bits wide, a prefix of {prefix} does not fit")
        return Lpm(_fit(bits & mask, part.width, part.name, place), prefix)
    value, and_mask, mask_text = text.partition("&&&")
    if slash:
        kept = number(length, place)
        bits = number(text.partition("/")[0], place)
        mask = full & ~((1 << max(part.width - kept, 0)) - 1)
    elif and_mask:
        bits, mask = number(value, place), number(mask_text, place)
    else:
        bits, mask = _masked(value, place)
    bits = _fit(bits & mask if mask >= 0 else bits, part.width, part.name, place)
    return Ternary(bits & mask & full, mask & full)


def _prefix(text: str, width: int) -> int:
    """The prefix length of a number without one: the digits before the first `*`, or else the whole field."""
    if "*" not in text:
        return width
    return min(width, len(text[2:].split("*", 1)[0]) * _DIGIT_BITS[text[1].lower()])
