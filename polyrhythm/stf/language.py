# SPDX-License-Identifier: Apache-2.0
"""The language of p4c's packet tests (Simple Test Framework), with BMv2's direct commands, as typed
statements.

There is one statement per line; an `add` may continue until its parenthesis closes. `#` begins a comment.
Commands are not case-sensitive. Beyond p4c's grammar: keys `value&&&mask` and `low..high`, `remove NAME` for
an entry that was named with `= NAME`, and `check_register NAME(INDEX) CONDITION VALUE`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

NAME = r'(?:"[^"]+"|[A-Za-z_$][\w$]*(?:\[\d+\])?(?:\.[A-Za-z_$][\w$]*(?:\[\d+\])?)*)'
_NUMBER = re.compile(r"0[xX][0-9a-fA-F*]+|0[bB][01*]+|0[oO][0-7*]+|[0-9]+")
# What stands around `:`, `/`, `&&&` and `..` of a key, as p4c's grammar allows.
_SPACED = re.compile(r"""("[^"]*")|[ \t]*(:|/|&&&|\.\.|->)[ \t]*""")
_ACTION = re.compile(rf"({NAME})\s*\(([^()]*)\)\s*(?:=\s*([\w$]+))?\s*$")
_KEY = re.compile(rf"({NAME})\s*:\s*(\S+)")
_HEAD = re.compile(rf"({NAME})\s*(\d+(?=\s|$))?")
_CHECK = re.compile(
    rf"({NAME})\s*\(\s*([\w$]+)\s*\)\s*(?:(packets|bytes)?\s*(==|!=|<=|<|>=|>)\s*(\S+))?\s*$", re.IGNORECASE
)


# Python converts no decimal number of more than 4,300 digits unless it is told to.
_MAX_DIGITS = 4000
# Chosen: characters of a test that an error repeats.
_SHOWN = 60
# A name in quotes, or what a comment is. `#` may stand in such a name.
_COMMENT = re.compile(r"""("[^"]*")|#.*""")


class StfError(ValueError):
    """A test cannot be read or run. The message has the file and the line."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The file and line of a statement."""

    file: str
    line: int

    def __str__(self) -> str:
        """FILE:LINE, as compilers write it."""
        return f"{self.file}:{self.line}"

    def error(self, message: str) -> StfError:
        """An error about this statement."""
        return StfError(f"{self}: {message}")


@dataclass(frozen=True, slots=True)
class ActionStatement:
    """An action, with its arguments by name."""

    name: str
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Add:
    """Insert a table entry. Later statements use its name `label`."""

    place: SourceLine
    table: str
    priority: int | None
    keys: tuple[tuple[str, str], ...]
    action: ActionStatement
    label: str | None


@dataclass(frozen=True, slots=True)
class SetDefault:
    """Set the default action of a table."""

    place: SourceLine
    table: str
    action: ActionStatement


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the entry with this name, or all entries."""

    place: SourceLine
    label: str | None


@dataclass(frozen=True, slots=True)
class Send:
    """A packet that arrives on a port."""

    place: SourceLine
    port: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """Expect a packet to leave by a port.

    `digits` are hexadecimal, with `*` for any digit; None: any packet. `exact`: nothing may follow the
    digits.
    """

    place: SourceLine
    port: int
    digits: str | None
    exact: bool


@dataclass(frozen=True, slots=True)
class NoPacket:
    """Expect that the last packet has not left by any port."""

    place: SourceLine


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait one second."""

    place: SourceLine


@dataclass(frozen=True, slots=True)
class Check:
    """Check the value of a counter or register. Without a condition the value is only read."""

    place: SourceLine
    register: bool
    name: str
    index: str
    unit: str
    condition: str | None
    value: int


@dataclass(frozen=True, slots=True)
class Command:
    """A command of BMv2's CLI, with its arguments."""

    place: SourceLine
    name: str
    words: tuple[str, ...]


Statement = Add | SetDefault | Remove | Send | Expect | NoPacket | Wait | Check | Command

# How many words each direct command takes, at least and at most.
COMMANDS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "mirroring_add": (2, 2),
        "mirroring_add_mc": (2, 2),
        "mirroring_delete": (1, 1),
        "mirroring_get": (1, 1),
        "mc_mgrp_create": (1, 1),
        "mc_node_create": (1, 99),
        "mc_node_update": (1, 99),
        "mc_node_associate": (2, 2),
        "counter_read": (2, 2),
        "counter_write": (4, 4),
        "register_read": (2, 2),
        "register_write": (3, 3),
        "register_reset": (1, 1),
        "meter_get_rates": (2, 2),
        "meter_set_rates": (4, 4),
        "meter_array_set_rates": (3, 3),
    }
)


def number(text: str, place: SourceLine) -> int:
    """A number without wildcards: decimal, 0x, 0b or 0o."""
    if not is_number(text) or "*" in text:
        raise place.error(f"'{_shown(text)}' is not a number")
    return int(text, 10 if text.isdecimal() else 0)


def is_number(text: str) -> bool:
    """Whether the text is a number, which may have wildcards, that is not too long for Python to convert."""
    return _NUMBER.fullmatch(text) is not None and (not text.isdecimal() or len(text) <= _MAX_DIGITS)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def read_statements(text: str, file: str) -> list[Statement]:
    """All statements of a test."""
    return [_statement(place, words) for place, words in _lines(text, file)]


def _lines(text: str, file: str) -> Iterator[tuple[SourceLine, str]]:
    lines = [
        _COMMENT.sub(lambda found: found[1] or "", line).strip()
        for line in text.removeprefix("\ufeff").splitlines()
    ]
    number = 0
    while number < len(lines):
        place, line = SourceLine(file, number + 1), lines[number]
        number += 1
        begins = line.split(None, 1)[0].lower() if line else ""
        while begins in ("add", "setdefault") and ")" not in line and number < len(lines):
            line = f"{line} {lines[number]}"
            number += 1
        if line:
            yield place, line


def _statement(place: SourceLine, line: str) -> Statement:
    word, _, rest = line.partition(" ")
    word, _, more = word.partition("\t")
    rest = f"{more} {rest}".strip()
    name = word.lower()
    if name in COMMANDS:
        words = tuple(rest.split())
        least, most = COMMANDS[name]
        if not least <= len(words) <= most:
            raise place.error(f"'{name}' takes {least}{'' if least == most else ' or more'} words: {line}")
        return Command(place, name, words)
    readers: Mapping[str, Callable[[SourceLine, str], Statement]] = {
        "add": _add,
        "setdefault": _set_default,
        "remove": _remove,
        "packet": _send,
        "expect": _expect,
        "no_packet": lambda place, _: NoPacket(place),
        "wait": lambda place, _: Wait(place),
        "check_counter": lambda place, rest: _check(place, rest, register=False),
        "check_register": lambda place, rest: _check(place, rest, register=True),
    }
    if name not in readers:
        raise place.error(f"'{word}' is not a command; there are: {', '.join([*readers, *COMMANDS])}")
    return readers[name](place, rest)


def _plain(name: str) -> str:
    return name.strip('"')


def _call(place: SourceLine, text: str) -> tuple[int, ActionStatement, str | None]:
    """Read the action at the end of a statement; returns it with its position and the name after it."""
    found = _ACTION.search(text)
    if found is None:
        raise place.error("there is no action with its arguments in parentheses at the end")
    arguments: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in found[2].split(","))):
        key, colon, value = part.partition(":")
        if not colon or not is_number(value.strip()):
            raise place.error(f"'{_shown(part)}' is not an argument written name:number")
        arguments[_plain(key.strip())] = value.strip()
    return found.start(), ActionStatement(_plain(found[1]), MappingProxyType(arguments)), found[3]


def _add(place: SourceLine, rest: str) -> Add:
    start, action, label = _call(place, rest)
    text = _SPACED.sub(lambda found: found[1] or found[2], rest[:start])
    head = _HEAD.match(text)
    if head is None:
        raise place.error("a table's name must follow 'add'")
    keys: list[tuple[str, str]] = []
    position = head.end()
    while text[position:].strip():
        found = _KEY.match(text, position + len(text[position:]) - len(text[position:].lstrip()))
        if found is None:
            raise place.error(f"'{text[position:].strip()}' is not a key written field:value")
        keys.append((_plain(found[1]), found[2]))
        position = found.end()
    priority = None if head[2] is None else number(head[2], place)
    return Add(place, _plain(head[1]), priority, tuple(keys), action, label)


def _set_default(place: SourceLine, rest: str) -> SetDefault:
    start, action, _ = _call(place, rest)
    if not re.fullmatch(NAME, rest[:start].strip()):
        raise place.error("a table's name must follow 'setdefault'")
    return SetDefault(place, _plain(rest[:start].strip()), action)


def _remove(place: SourceLine, rest: str) -> Remove:
    if rest.lower() == "all":
        return Remove(place, None)
    if not re.fullmatch(r"[\w$]+", rest):
        raise place.error("'remove' takes 'all' or the name of an entry")
    return Remove(place, rest.lstrip("$"))


def _port(place: SourceLine, rest: str) -> tuple[int, str]:
    word, _, data = rest.replace("\t", " ").partition(" ")
    if not word.isdecimal() or not is_number(word):
        raise place.error(f"'{_shown(word)}' is not a port number")
    return int(word), "".join(data.split())


def _send(place: SourceLine, rest: str) -> Send:
    port, digits = _port(place, rest)
    try:
        frame = bytes.fromhex(digits)
    except ValueError:
        raise place.error("a packet is written in pairs of hexadecimal digits") from None
    return Send(place, port, frame)


def _expect(place: SourceLine, rest: str) -> Expect:
    port, digits = _port(place, rest)
    if not digits:
        return Expect(place, port, None, False)
    exact = digits.endswith("$")
    wanted = digits.removesuffix("$").lower()
    if not re.fullmatch(r"[0-9a-f*]*", wanted):
        raise place.error("a packet is expected in hexadecimal digits and '*', with '$' at its end at most")
    return Expect(place, port, wanted, exact)


def _check(place: SourceLine, rest: str, register: bool) -> Check:
    found = _CHECK.match(rest)
    if found is None or (register and found[3]):
        kind = "" if register else " [packets|bytes]"
        raise place.error(f"a check is written NAME(INDEX){kind} CONDITION NUMBER")
    value = 0 if found[5] is None else number(found[5], place)
    return Check(
        place, register, _plain(found[1]), found[2], (found[3] or "packets").lower(), found[4], value
    )
