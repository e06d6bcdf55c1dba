# SPDX-License-Identifier: Apache-2.0
"""JSON (RFC 8259), strictly: no key twice in an object, no NaN or Infinity; with the line of every value.

Python's own parser does the reading, since it is fast. It keeps no positions, so a second, slower scan finds
them, only when an error needs a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from polyrhythm_files.errors import Loc, dotted
from polyrhythm_files.text import MAX_DEPTH, MAX_DIGITS, Position, TextError

_TOKEN = re.compile(r"""[ \t\r\n]*(?:("[^"\\]*(?:\\.[^"\\]*)*")|([{}\[\],:])|([^\s{}\[\],:"]+))""", re.DOTALL)


class _RefusedError(ValueError):
    """Python's parser would accept this; the scan finds its line."""


def parse(text: str) -> Any:
    """The value of a JSON text. Raises TextError."""
    try:
        return json.loads(text, object_pairs_hook=_each_key_once, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise TextError(error.lineno, f"not JSON: {error.msg} (column {error.colno})") from None
    except (_RefusedError, RecursionError, ValueError) as error:
        for _ in positions(text):
            pass  # The scan raises TextError where it meets what is wrong.
        raise TextError(1, f"not JSON: {error}") from None


def positions(text: str) -> Iterator[Position]:
    """The path and line of every value of a JSON text, in the order of the text.

    Raises TextError for a key that an object has twice, nesting below MAX_DEPTH, a whole number of more than
    MAX_DIGITS digits, and NaN. Other mistakes are for Python's parser to find.
    """
    # One entry per open object or list: the lines of its keys, or None for a list; then the next index.
    keys: list[dict[str, int] | None] = []
    index: list[int] = []
    loc: list[str | int] = []
    line, counted = 1, 0
    key_next = False
    for token in _TOKEN.finditer(text):
        string, mark, word = token.groups()
        start = token.end() - len(token.group().lstrip(" \t\r\n"))
        line += text.count("\n", counted, start)
        counted = start
        if mark == ":":
            continue
        if mark == ",":
            key_next = bool(keys) and keys[-1] is not None
            continue
        if mark in ("}", "]"):
            if keys:
                keys.pop()
                index.pop()
                del loc[len(keys) :]
            key_next = False
            continue
        seen = keys[-1] if keys else None
        if key_next and string and seen is not None:
            key = json.loads(string, strict=False)
            del loc[len(keys) - 1 :]
            loc.append(key)
            if key in seen:
                raise TextError(
                    line, f"{dotted(tuple(loc))}: this key is there twice; first in line {seen[key]}"
                )
            seen[key] = line
            key_next = False
            yield tuple(loc), line
            continue
        if keys and seen is None:
            del loc[len(keys) - 1 :]
            loc.append(index[-1])
            index[-1] += 1
        at: Loc = tuple(loc)
        if not keys or seen is None:
            yield at, line
        if mark:
            if len(keys) == MAX_DEPTH:
                raise TextError(line, f"nested deeper than {MAX_DEPTH} levels")
            keys.append({} if mark == "{" else None)
            index.append(0)
            key_next = mark == "{"
        elif word:
            _check_word(word, at, line)


def _check_word(word: str, at: Loc, line: int) -> None:
    where = f"{dotted(at)}: " if at else ""
    if word in ("NaN", "Infinity", "-Infinity"):
        raise TextError(line, f"{where}{word} is no number; legal: finite numbers")
    digits = word.removeprefix("-")
    if digits.isdecimal() and len(digits) > MAX_DIGITS:
        raise TextError(
            line, f"{where}a whole number of {len(digits)} digits; legal: at most {MAX_DIGITS} digits"
        )


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RefusedError("a key is there twice in one object")
    return found


def _no_constant(text: str) -> float:
    raise _RefusedError(f"{text} is no number")
