# SPDX-License-Identifier: Apache-2.0
"""YAML, with the line of every value, each key once in a mapping, and aliases that cannot blow up.

The values are built from PyYAML's events, not from its nodes: so depth and the number of values are checked
before anything is built, and nothing recurses, in Python or in libyaml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from re import compile as pattern
from typing import Any

import yaml

from polyrhythm_files.errors import Loc, dotted, shown
from polyrhythm_files.text import MAX_DEPTH, Position, TextError

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_CONSTRUCTORS = yaml.SafeLoader.yaml_constructors


class Scalars(yaml.SafeLoader):
    """The types of plain words: those of YAML 1.1, and numbers such as 1e9, which YAML 1.1 takes for text."""


Scalars.add_implicit_resolver(
    f"{_TAG}float", pattern(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


@dataclass(slots=True)
class _Open:
    """A mapping or sequence that is being read; `lines` are those of a mapping's keys."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    first: int
    lines: dict[str, int] = field(default_factory=dict)
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    """Puts the values of one document together; `report` is called with each value's path and line."""

    text: str
    max_values: int
    report: Callable[[Loc, int], None]
    stack: list[_Open] = field(default_factory=list)
    loc: list[str | int] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    count: int = 0
    result: Any = None

    def build(self) -> Any:
        scalars: Any = Scalars("")
        documents = 0
        for event in yaml.parse(self.text, Loader=_PARSER):
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise TextError(line, "a second YAML document begins; legal: one document in a file")
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event, line)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event, line, scalars)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open({} if isinstance(event, yaml.MappingStartEvent) else [], event, line)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._close()
        return self.result

    def _place(self, line: int) -> None:
        """Count a value and enter its path."""
        self._count(1, line)
        if not self.stack:
            self.report((), line)
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            self.loc.append(len(top.value))
            self.report(tuple(self.loc), line)
        elif top.key is None:
            raise TextError(line, f"{self._path()}a key is a list or a table; legal: text")

    def _leave(self, value: Any) -> None:
        """A value is complete: hand it to what it is in."""
        if not self.stack:
            self.result = value
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        else:
            assert top.key is not None
            top.value[top.key] = value
            top.key = None
        self.loc.pop()

    def _is_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None

    def _scalar(self, event: yaml.ScalarEvent, line: int, scalars: Any) -> None:
        if self._is_key():
            # As in TOML, a key is the text that is written, not a number or a truth value.
            self._key(event.value, line)
            return
        self._place(line)
        value = self._plain(event, line, scalars)
        if event.anchor is not None:
            self.anchors[event.anchor] = value, 1
        self._leave(value)

    def _key(self, key: str, line: int) -> None:
        top = self.stack[-1]
        self.loc.append(key)
        if key in top.lines:
            raise TextError(
                line, f"{dotted(tuple(self.loc))}: this key is there twice; first in line {top.lines[key]}"
            )
        self._count(1, line)
        top.lines[key] = line
        top.key = key
        self.report(tuple(self.loc), line)

    def _plain(self, event: yaml.ScalarEvent, line: int, scalars: Any) -> Any:
        """A scalar as str, int, float, bool or None."""
        tag = event.tag
        if tag is None or tag == "!":
            tag = str(scalars.resolve(yaml.ScalarNode, event.value, event.implicit))
        kind = tag.removeprefix(_TAG)
        if kind in ("str", "value", "merge"):
            return event.value
        if kind not in ("null", "bool", "int", "float"):
            raise TextError(
                line,
                f"{self._path()}{shown(event.value)} is a {kind}; legal: quoted text, numbers, true, false",
            )
        try:
            return _CONSTRUCTORS[tag](scalars, yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError, IndexError, OverflowError):
            # What YAML's own types make of words that look like theirs: `!!int x`, `0x`.
            raise TextError(line, f"{self._path()}{shown(event.value)} is no {kind}") from None

    def _open(self, value: dict[str, Any] | list[Any], event: yaml.CollectionStartEvent, line: int) -> None:
        self._place(line)
        default = f"{_TAG}{'map' if isinstance(value, dict) else 'seq'}"
        if event.tag not in (None, "!", default):
            raise TextError(line, f"{self._path()}a value of type {event.tag}; legal: plain tables and lists")
        if len(self.stack) == MAX_DEPTH:
            raise TextError(line, _TOO_DEEP)
        self.stack.append(_Open(value, event.anchor, self.count))

    def _close(self) -> None:
        done = self.stack.pop()
        if done.anchor is not None:
            self.anchors[done.anchor] = done.value, self.count - done.first + 1
        self._leave(done.value)

    def _alias(self, event: yaml.AliasEvent, line: int) -> None:
        if event.anchor not in self.anchors:
            raise TextError(line, f"{self._path()}*{event.anchor}: no complete value above has this anchor")
        value, size = self.anchors[event.anchor]
        if self._is_key():
            if not isinstance(value, str):
                raise TextError(line, f"{self._path()}*{event.anchor} is no text, so it is no key")
            self._key(value, line)
            return
        self._place(line)
        # The value is not copied; it counts in full, for what reads it goes through all of it.
        self._count(size - 1, line)
        self._leave(value)

    def _count(self, more: int, line: int) -> None:
        self.count += more
        if self.count > self.max_values:
            raise TextError(line, f"more than {self.max_values:,} values, aliases counted in full")

    def _path(self) -> str:
        return f"{dotted(tuple(self.loc))}: " if self.loc else ""


def parse(text: str, max_values: int) -> Any:
    """The value of a YAML text of one document. Raises TextError."""
    return _built(text, max_values, lambda loc, line: None)


_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_PARSER_LIMIT = "maximum nesting depth"
"""What PyYAML says from 6.0.4 on, which has a limit of its own."""


def positions(text: str, max_values: int) -> Iterator[Position]:
    """The path and line of every value of a YAML text that `parse` has read."""
    found: list[Position] = []
    _built(text, max_values, lambda loc, line: found.append((loc, line)))
    return iter(found)


def _built(text: str, max_values: int, report: Callable[[Loc, int], None]) -> Any:
    try:
        return _Builder(text, max_values, report).build()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, problem = mark.line + 1 if mark else 1, str(error.problem or error.context)
        raise TextError(line, _TOO_DEEP if _PARSER_LIMIT in problem else f"not YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else 1
        raise TextError(line, f"not YAML: {error.reason}") from None
    except yaml.YAMLError as error:
        problem = str(error).splitlines()[0]
        raise TextError(1, _TOO_DEEP if _PARSER_LIMIT in problem else f"not YAML: {problem}") from None
    except RecursionError:
        raise TextError(1, _TOO_DEEP) from None
