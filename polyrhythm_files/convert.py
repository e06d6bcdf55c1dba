# SPDX-License-Identifier: Apache-2.0
"""From plain values to declared types, and errors that say what would be legal.

msgspec converts and checks. It stops at the first mistake and names it in terms of Python; the same declared
types give the words for a person: the legal range, the legal keys, the nearest legal key.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from polyrhythm_files.document import Document
from polyrhythm_files.errors import InvalidValueError, Loc, shown

T = TypeVar("T")

LARGEST = sys.float_info.max
MAX_WHOLE = (1 << 63) - 1
"""Of a whole number without a bound of its own: what the messages between our processes hold."""
Whole = Annotated[int, msgspec.Meta(ge=0, le=MAX_WHOLE)]
_WHERE = re.compile(r" - at (?:`key` in )?`\$(.*)`$", re.DOTALL)
_SEGMENT = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_MOST_LEGAL = 40
"""Legal words that an error lists (chosen: as many as fit a few lines of a terminal)."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a file: unknown keys are refused, and no value is turned into another type.

    A check of several keys together is a `__post_init__` that raises InvalidValueError, with a path that
    counts from the table.
    """


def finite(
    least: float | None = None, most: float | None = None, *, above: float | None = None, what: str = ""
) -> msgspec.Meta:
    """The bounds of a number that is neither NaN nor infinite, and what it means."""
    high = LARGEST if most is None else most
    if above is not None:
        return msgspec.Meta(gt=above, le=high, description=what or None)
    return msgspec.Meta(ge=-LARGEST if least is None else least, le=high, description=what or None)


def convert(document: Document, kind: type[T], loc: Loc = ()) -> T:
    """The value at `loc` of a document as an instance of a declared type.

    Raises:
        ConfigError: an unknown or missing key, a wrong type, a value out of bounds, or a failed check.
    """
    value = document.at(loc)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        fault = _fault(kind, value, error)
        raise document.error((*loc, *fault.loc), fault.message) from None


def legal_keys(kind: Any) -> tuple[str, ...]:
    """The keys of a declared table, the tag (`kind`) first."""
    config = kind.__struct_config__
    tag = (config.tag_field,) if config.tag_field else ()
    return (*tag, *(f.encode_name for f in msgspec.structs.fields(kind)))


def unknown_key(key: str, legal: Sequence[str]) -> str:
    """The message for a key that is not legal."""
    near = difflib.get_close_matches(key, legal, n=1)
    hint = f" (is {near[0]} meant?)" if near else ""
    return f"unknown key{hint}; legal: {listed(legal)}"


def listed(words: Sequence[str], most: int = _MOST_LEGAL) -> str:
    """Words for a sentence: the first `most`, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more if words else "none"


def _fault(kind: Any, value: Any, error: msgspec.ValidationError) -> InvalidValueError:
    """What msgspec found, with the path of the value and what would be legal there."""
    text = str(error)
    where = _WHERE.search(text)
    loc, at, inner = _follow(kind, value, where[1] if where else "")
    if isinstance(error.__cause__, InvalidValueError):
        return error.__cause__.below(loc)
    if isinstance(error.__cause__, ValueError):
        return InvalidValueError(loc, str(error.__cause__))
    if isinstance(inner, dict) and (text.startswith("Object ") or "kind" in loc[-1:]):
        table = _table(at, inner)
        if table is not None:
            keys = legal_keys(table)
            wrong = next((key for key in inner if key not in keys), None)
            if wrong is not None:
                return InvalidValueError((*loc, wrong), unknown_key(wrong, keys))
            types = get_type_hints(table, include_extras=True)
            missing = next(
                (f for f in msgspec.structs.fields(table) if f.required and f.name not in inner), None
            )
            if missing is not None:
                legal = described(types[missing.name])
                return InvalidValueError((*loc, missing.encode_name), f"missing; legal: {legal}")
        else:
            tags = _tags(at)
            return InvalidValueError((*loc, "kind"), f"missing; legal: {listed(tags)}")
    bits = " of at most 63 bits" if isinstance(inner, int) and inner > MAX_WHOLE else ""
    return InvalidValueError(loc, f"{shown(inner)} is wrong; legal: {described(at)}{bits}")


def _follow(kind: Any, value: Any, path: str) -> tuple[Loc, Any, Any]:
    """Walk msgspec's path, such as `.jobs[0].hosts[...]`, down the types and the value together.

    Returns the path, the type and the value there. msgspec does not say which key of a mapping `[...]` is:
    the first one whose value does not convert.
    """
    loc: list[str | int] = []
    for name, index in _SEGMENT.findall(path):
        if name:
            table = _table(kind, value)
            if table is None or name not in get_type_hints(table):
                # The tag of a union of tables.
                tag: Any = Literal[tuple(_tags(kind))]
                return (*loc, name), tag, value.get(name) if isinstance(value, dict) else None
            loc.append(name)
            kind, value = get_type_hints(table, include_extras=True)[name], value[name]
        elif index == "...":
            inner = _item(kind, value, 0)
            key = next((k for k, v in value.items() if not _converts(v, inner)), None)
            if key is None:
                return tuple(loc), kind, value
            loc.append(key)
            kind, value = inner, value[key]
        else:
            loc.append(int(index))
            kind, value = _item(kind, value, int(index)), value[int(index)]
    return tuple(loc), kind, value


def _converts(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _options(kind: Any) -> list[Any]:
    """The alternatives of a type, without what is annotated to it and without null."""
    if get_origin(kind) is Annotated:
        return _options(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [option for arg in get_args(kind) for option in _options(arg)]
    return [] if kind is NoneType else [kind]


def _tables(kind: Any) -> list[Any]:
    return [k for k in _options(kind) if isinstance(k, type) and issubclass(k, msgspec.Struct)]


def _tags(kind: Any) -> list[str]:
    return [str(table.__struct_config__.tag) for table in _tables(kind)]


def _table(kind: Any, value: Any) -> Any:
    """The declared table that reads this value; of several, the one whose tag the value has."""
    tables = _tables(kind)
    if len(tables) == 1 and tables[0].__struct_config__.tag is None:
        return tables[0]
    if not isinstance(value, dict):
        return None
    return next(
        (t for t in tables if value.get(t.__struct_config__.tag_field) == t.__struct_config__.tag), None
    )


def _item(kind: Any, value: Any, index: int) -> Any:
    """The type of what is in a list (at an index) or a mapping."""
    for option in _options(kind):
        origin, args = get_origin(option), get_args(option)
        if origin is tuple and isinstance(value, list):
            return args[0] if args[-1] is Ellipsis else args[index]
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict):
            return args[1]
    return Any


@cache
def _type_of(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def described(kind: Any) -> str:
    """The legal values of a type in words: "a whole number from 1 to 64"."""
    options = _options(kind)
    if len(options) == 1 and get_origin(options[0]) is Literal:
        # In the declared order, which msgspec does not keep.
        return listed([str(value) for value in get_args(options[0])])
    return _words(_type_of(kind))


def _words(found: inspect.Type) -> str:
    match found:
        case inspect.Metadata():
            return str((found.extra or {}).get("legal") or _words(found.type))
        case inspect.IntType():
            return f"a whole number{_range(found)}"
        case inspect.FloatType():
            return f"a number{_range(found)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType():
            return listed([str(v) for v in found.values])
        case inspect.StrType():
            return f"text{_length(found, 'character')}" + (
                f" that matches {found.pattern}" if found.pattern else ""
            )
        case inspect.VarTupleType():
            return f"a list{_length(found, 'value')}, each {_words(found.item_type)}"
        case inspect.TupleType():
            return f"a list of {len(found.item_types)}: {'; '.join(map(_words, found.item_types))}"
        case inspect.DictType():
            return f"a table of {_words(found.value_type)} by name"
        case inspect.StructType():
            return f"a table with the keys {listed(legal_keys(found.cls))}"
        case inspect.UnionType():
            tables = [t for t in found.types if isinstance(t, inspect.StructType) and t.tag is not None]
            rest = [t for t in found.types if t not in tables and not isinstance(t, inspect.NoneType)]
            words = list(map(_words, rest))
            if tables:
                words.append(f"a table of kind {listed([str(t.tag) for t in tables])}")
            return ", or ".join(words)
    return "any value"


def _range(found: inspect.IntType | inspect.FloatType) -> str:
    low = high = ""
    if found.gt is not None:
        low = f" above {_figure(found.gt)}"
    elif found.ge is not None and found.ge not in (-LARGEST, -MAX_WHOLE):
        low = f" from {_figure(found.ge)}"
    if found.le is not None and found.le not in (LARGEST, MAX_WHOLE):
        high = f" to {_figure(found.le)}" if found.gt is None else f", at most {_figure(found.le)}"
    return low + high


def _figure(value: float) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.12g}"
    return str(int(value)) if abs(value) < 1e15 else f"{value:g}"


def _length(found: Any, unit: str) -> str:
    least, most = found.min_length, found.max_length
    if least is None and most is None:
        return ""
    if most is None:
        return f" of {least} {unit}{'s' if least > 1 else ''} or more"
    return f" of {least or 0} to {most} {unit}s"
