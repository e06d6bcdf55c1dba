# SPDX-License-Identifier: Apache-2.0
"""A file in YAML, JSON or TOML as plain values, which knows the line of every value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from polyrhythm_files.errors import ConfigError, InvalidValueError, Loc, dotted, shown
from polyrhythm_files.text import MAX_DEPTH, MAX_DIGITS, Position, TextError

_FORMATS = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}
SUFFIXES = tuple(_FORMATS)
_TOML_LINE = re.compile(r"""\[\[?[\w."' -]+\]\]?[ \t]*(#.*)?$|[\w."' -]+=""")
_MAX_BITS = math.ceil(MAX_DIGITS * math.log2(10))


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a file is read: bytes, and values after YAML's aliases are followed.

    The defaults are chosen: a scenario of 256 jobs has 200 kB and 30,000 values.
    """

    max_bytes: int = 4 << 20
    max_values: int = 200_000


LARGE = Limits(200_000_000, 40_000_000)
"""For files that programs write too: topologies, lists of jobs and links. Chosen: a topology of 200,000 hosts
has 30 MB."""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file. `name` is how errors call it; `value` holds dict, list, str, int, float, bool and None.

    `text` and `format` are kept to find lines; a document without text (a value in memory) has no lines.
    """

    name: str
    value: Any
    text: str | None = None
    format: str = "json"
    max_values: int = LARGE.max_values

    def at(self, loc: Loc) -> Any:
        """The value at a path."""
        value = self.value
        for part in loc:
            value = value[part]
        return value

    def line(self, loc: Loc) -> int:
        """The line of the value at `loc`, from 1; of the nearest value around it where there is none."""
        line, known = 1, -1
        for found, at in self.positions():
            if len(found) > known and found == loc[: len(found)]:
                line, known = at, len(found)
                if known == len(loc):
                    break
        return line

    def error(self, loc: Loc, message: str) -> ConfigError:
        """The error for the value at `loc`."""
        where = f"{self.name}:{self.line(loc)}" if self.text is not None else self.name
        parts = (where, dotted(loc), message) if loc else (where, message)
        return ConfigError(": ".join(filter(None, parts)))

    @contextmanager
    def checks(self, loc: Loc = ()) -> Iterator[None]:
        """Turn an InvalidValueError of the block, whose path counts from `loc`, into a ConfigError."""
        try:
            yield
        except InvalidValueError as error:
            raise self.error((*loc, *error.loc), error.message) from None

    def check_values(self) -> None:
        """Raise ConfigError for a value that no file may have: NaN, a date, half a character, too deep."""
        fault = _fault(self.value, [self.max_values], 0)
        if fault is not None:
            raise self.error(*fault)

    def positions(self) -> Iterator[Position]:
        """The path and line of every value, in the order of the text. Found anew at each call."""
        if self.text is None:
            return iter(())
        if self.format == "json":
            from polyrhythm_files import json_text

            return json_text.positions(self.text)
        if self.format == "toml":
            from polyrhythm_files import toml_text

            return toml_text.positions(self.text)
        from polyrhythm_files import yaml_text

        return yaml_text.positions(self.text, self.max_values)


def read_document(path: Path, limits: Limits = Limits()) -> Document:
    """Parse a file in the format that its suffix names (.yaml, .yml, .json, .toml), or that it looks like.

    Raises:
        ConfigError: the file cannot be read, is not of its format, or is beyond `limits`.
    """
    return parse_document(
        read_text(path, limits.max_bytes), str(path), _FORMATS.get(path.suffix.lower()), limits
    )


def read_text(path: Path, max_bytes: int) -> str:
    """The text of a file of at most `max_bytes`. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # A name that no file can have.
        raise ConfigError(f"{path!s:.200}: cannot be read: {error}") from None
    if len(content) > max_bytes:
        raise ConfigError(f"{path}: too large; legal: at most {max_bytes:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text (byte {error.start})") from None


def parse_document(text: str, name: str, format: str | None = None, limits: Limits = LARGE) -> Document:
    """Parse a text; `format` is json, yaml or toml, or None for what the text looks like.

    Raises:
        ConfigError: as `read_document`.
    """
    try:
        if format is None:
            format, value = _guess(text, limits)
        else:
            value = _parse(text, format, limits)
    except TextError as error:
        raise ConfigError(f"{name}:{error.line}: {error}") from None
    document = Document(name, value, text, format, limits.max_values)
    document.check_values()
    return document


def value_document(value: Any, name: str = "") -> Document:
    """A document for a value in memory: its errors have a path, but no file and line."""
    return Document(name, value)


def _parse(text: str, format: str, limits: Limits) -> Any:
    # Imported when used: an agent that reads TOML needs no YAML.
    if format == "json":
        from polyrhythm_files import json_text

        return json_text.parse(text)
    if format == "toml":
        from polyrhythm_files import toml_text

        return toml_text.parse(text)
    from polyrhythm_files import yaml_text

    return yaml_text.parse(text, limits.max_values)


def _guess(text: str, limits: Limits) -> tuple[str, Any]:
    """The format of a text without a telling name, and its value."""
    lines = (line.strip() for line in islice(text.splitlines(), 1000))
    first = next((line for line in lines if line and not line.startswith("#")), "")
    if _TOML_LINE.match(first):
        return "toml", _parse(text, "toml", limits)
    if not first.startswith(("{", "[")):
        return "yaml", _parse(text, "yaml", limits)
    try:
        return "json", _parse(text, "json", limits)
    except TextError as error:
        # YAML has braces too, and quotes are optional in it.
        try:
            return "yaml", _parse(text, "yaml", limits)
        except TextError:
            raise error from None


def is_text(value: str) -> bool:
    """Whether a string can be written: JSON lets half characters (lone surrogates) through."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _fault(value: Any, left: list[int], depth: int) -> tuple[Loc, str] | None:
    """The path of the first value that no file may have, and why; `left` counts values down."""
    left[0] -= 1
    if left[0] < 0:
        return (), "more values than are read of such a file"
    if isinstance(value, str):
        if not is_text(value):
            return (), f"{value!a:.40} has half a character (a lone surrogate); legal: whole characters"
        return None
    if isinstance(value, dict):
        if depth == MAX_DEPTH:
            return (), f"nested deeper than {MAX_DEPTH} levels"
        for key, item in value.items():
            fault = _fault(key, left, depth + 1)
            if fault is not None:
                return fault
            fault = _fault(item, left, depth + 1)
            if fault is not None:
                return (key, *fault[0]), fault[1]
        return None
    if isinstance(value, list):
        if depth == MAX_DEPTH:
            return (), f"nested deeper than {MAX_DEPTH} levels"
        for i, item in enumerate(value):
            fault = _fault(item, left, depth + 1)
            if fault is not None:
                return (i, *fault[0]), fault[1]
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else ((), f"{value} is no number; legal: finite numbers")
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        long = value.bit_length() > _MAX_BITS
        return ((), f"a whole number of more than {MAX_DIGITS} digits") if long else None
    return (), f"{shown(str(value))} is a date or time; put it in quotes if it is text"
