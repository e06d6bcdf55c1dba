# SPDX-License-Identifier: Apache-2.0
"""TOML 1.0, with the line of every value.

Python's own parser does the reading. No maintained TOML library for Python gives positions (tomlkit keeps the
layout but no lines), so a scanner finds them, only when an error needs a line. The scanner need not judge the
text: it runs on what the parser has accepted, or up to where the parser stopped.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from polyrhythm_files.errors import Loc, dotted
from polyrhythm_files.text import MAX_DEPTH, MAX_DIGITS, Position, TextError

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_KEY_PART = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}\n#]+")


def parse(text: str) -> Any:
    """The value of a TOML text. Raises TextError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _check_keys(text)
        place = _PLACE.search(str(error))
        message = _PLACE.sub("", str(error))
        if place and place[1]:
            raise TextError(int(place[1]), f"not TOML: {message} (column {place[2]})") from None
        line = text.rstrip().count("\n") + 1
        raise TextError(line, f"not TOML: {message} (at the end)") from None
    except (RecursionError, ValueError):
        _check_keys(text)
        raise TextError(*_too_many_digits(text)) from None


def positions(text: str) -> Iterator[Position]:
    """The path and line of every value of a TOML text, in the order of the text. Raises TextError."""
    return ((loc, line) for loc, line, _ in _Scanner(text).statements())


def _check_keys(text: str) -> None:
    """Raise TextError for a key or table that is there twice, if that is what is wrong."""
    first: dict[Loc, int] = {}
    for loc, line, named in _Scanner(text).statements():
        if named and first.setdefault(loc, line) != line:
            raise TextError(line, f"{dotted(loc)}: this key is there twice; first in line {first[loc]}")


def _too_many_digits(text: str) -> tuple[int, str]:
    """The line and message for a whole number that Python's parser gave up on."""
    found = re.search(rf"[0-9]{{{MAX_DIGITS + 1},}}", text)
    line = text.count("\n", 0, found.start()) + 1 if found else 1
    return line, f"a whole number of too many digits; legal: at most {MAX_DIGITS} digits"


class _Scanner:
    """Goes through the statements of a text; ends silently at what is no TOML."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counted = 0
        self._line_number = 1
        self._table: Loc = ()
        # The index of the last table of each array of tables.
        self._last: dict[Loc, int] = {}

    def statements(self) -> Iterator[tuple[Loc, int, bool]]:
        """(path, line, whether the text names this path itself and not only something below it)."""
        yield (), 1, False
        while True:
            self._skip(_BLANK)
            if self._at >= len(self._text):
                return
            before = self._at
            if self._text[self._at] == "[":
                yield from self._header()
            else:
                yield from self._pair(self._table, 0)
            if self._at == before:
                return

    def _header(self) -> Iterator[tuple[Loc, int, bool]]:
        line = self._line()
        array = self._text.startswith("[[", self._at)
        self._at += 2 if array else 1
        self._skip(_SPACE)
        parts = self._key()
        if not parts:
            self._at = len(self._text)
            return
        loc: Loc = ()
        for part in parts[:-1]:
            loc = (*loc, part)
            yield loc, line, False
            if loc in self._last:
                loc = (*loc, self._last[loc])
        loc = (*loc, parts[-1])
        if array:
            self._last[loc] = self._last.get(loc, -1) + 1
            yield loc, line, False
            loc = (*loc, self._last[loc])
        elif loc in self._last:
            loc = (*loc, self._last[loc])
        yield loc, line, True
        self._table = loc
        self._skip(_SPACE)
        self._at += 2 if array else 1

    def _pair(self, table: Loc, depth: int) -> Iterator[tuple[Loc, int, bool]]:
        line = self._line()
        parts = self._key()
        if not parts or not self._text.startswith("=", self._at):
            self._at = len(self._text)
            return
        self._at += 1
        loc = table
        for part in parts[:-1]:
            loc = (*loc, part)
            yield loc, line, False
        loc = (*loc, parts[-1])
        yield loc, line, True
        self._skip(_SPACE)
        yield from self._value(loc, depth)

    def _value(self, loc: Loc, depth: int) -> Iterator[tuple[Loc, int, bool]]:
        if depth == MAX_DEPTH:
            raise TextError(self._line(), f"nested deeper than {MAX_DEPTH} levels")
        mark = self._text[self._at : self._at + 1]
        if mark == "[":
            self._at += 1
            index = 0
            while True:
                self._skip(_BLANK)
                if self._ends("]"):
                    return
                yield (*loc, index), self._line(), False
                before = self._at
                yield from self._value((*loc, index), depth + 1)
                index += 1
                self._skip(_BLANK)
                self._take(",")
                if self._at == before:
                    self._at = len(self._text)
        elif mark == "{":
            self._at += 1
            while True:
                self._skip(_BLANK)
                if self._ends("}"):
                    return
                yield from self._pair(loc, depth + 1)
                self._skip(_BLANK)
                self._take(",")
        else:
            self._skip(_STRING if mark in ('"', "'") else _BARE)

    def _ends(self, mark: str) -> bool:
        if self._at >= len(self._text):
            return True
        return self._take(mark)

    def _take(self, mark: str) -> bool:
        found = self._text.startswith(mark, self._at)
        self._at += len(mark) if found else 0
        return found

    def _key(self) -> list[str]:
        """The parts of a dotted key, and on to what follows it."""
        parts = []
        while found := _KEY_PART.match(self._text, self._at):
            word = found.group()
            parts.append(_unquoted(word))
            self._at = found.end()
            self._skip(_SPACE)
            if not self._take("."):
                return parts
            self._skip(_SPACE)
        return []

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _line(self) -> int:
        self._line_number += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line_number


def _unquoted(word: str) -> str:
    if word[0] == "'":
        return word[1:-1]
    if word[0] != '"':
        return word
    try:
        (key,) = tomllib.loads(f"{word} = 0")
    except tomllib.TOMLDecodeError:
        return word
    return key
