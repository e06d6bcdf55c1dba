# SPDX-License-Identifier: Apache-2.0
"""Configuration declared as dataclasses: names, types, defaults, bounds and words side by side.

One declaration gives the reader, which refuses what it does not know with the path and what would be
legal, and the JSON schema. No library for this: an agent has 60 MiB for everything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from polyrhythm_files import ConfigError

T = TypeVar("T")

_JSON_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}
_MOST_BITS = 63
"""Of a whole number: what is read travels in messages that hold no more."""
_WORDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}


def setting(
    what: str,
    default: Any = MISSING,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A declared setting: what it means, its default (none: it must be given), bounds or legal words."""
    metadata = {"what": what, "least": least, "most": most, "choices": choices}
    if default is MISSING:
        return field(metadata=metadata)
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def read(kind: type[T], data: object, path: str = "") -> T:
    """An instance of the declared dataclass `kind` from a parsed document.

    Raises ConfigError for an unknown or missing key, a wrong type, or a value out of bounds.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path or 'the document'}: a table is needed, not {data!r}")
    declared: Mapping[str, tuple[Field[Any], Any]] = _declared(kind)  # type: ignore[arg-type]
    for key in data:
        if key not in declared:
            raise ConfigError(f"{_join(path, str(key))}: unknown key; legal: {', '.join(declared)}")
    values = {}
    for name, (item, type_) in declared.items():
        where = _join(path, name)
        if name in data:
            values[name] = _value(type_, data[name], where, item)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise ConfigError(f"{where}: missing; it is {item.metadata['what']}")
    try:
        return kind(**values)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{path or 'the document'}: {error}") from None


def is_text(value: str) -> bool:
    """Whether a string can be written: JSON lets halves of characters (lone surrogates) through."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def schema(kind: type, title: str) -> dict[str, Any]:
    """The JSON schema (2020-12) of a declared dataclass."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **_object_schema(kind),
    }


@cache
def _declared(kind: Any) -> Mapping[str, tuple[Field[Any], Any]]:
    """Name -> declaration and type; finding types out takes longer than reading a message."""
    types = get_type_hints(kind)
    return {f.name: (f, types[f.name]) for f in fields(kind)}


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _value(kind: Any, value: object, path: str, item: Field[Any]) -> Any:
    origin = get_origin(kind)
    if origin is UnionType:
        kind = next(k for k in get_args(kind) if k is not type(None))
        origin = get_origin(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return read(kind, value, path)
    if origin is tuple:
        return _sequence(get_args(kind), value, path, item)
    if origin is not None:
        return _mapping(get_args(kind)[1], value, path, item)
    return _scalar(kind, value, path, item)


def _sequence(kinds: tuple[Any, ...], value: object, path: str, item: Field[Any]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"{path}: a list is needed, not {value!r}")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        raise ConfigError(f"{path}: {len(kinds)} values are needed, not {len(value)}")
    pairs = zip(kinds, value, strict=True)
    return tuple(_value(kind, v, f"{path}[{i}]", item) for i, (kind, v) in enumerate(pairs))


def _mapping(kind: Any, value: object, path: str, item: Field[Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}: a table is needed, not {value!r}")
    return {str(key): _value(kind, v, _join(path, str(key)), item) for key, v in value.items()}


def _scalar(kind: Any, value: object, path: str, item: Field[Any]) -> Any:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ConfigError(f"{path}: a number of {value.bit_length()} bits; {_MOST_BITS} are legal")
    if isinstance(value, str) and not is_text(value):
        raise ConfigError(f"{path}: {value!r:.100} is no text: it has half a character")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{path}: {_WORDS[kind]} is needed, not {value!r}")
    choices, least, most = (item.metadata[key] for key in ("choices", "least", "most"))
    if choices and value not in choices:
        raise ConfigError(f"{path}: {value!r} is none of {', '.join(choices)}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        low = least is not None and value < least
        high = most is not None and value > most
        if low or high or (isinstance(value, float) and math.isnan(value)):
            bounds = f"from {_shown(least)}" + (f" to {_shown(most)}" if most is not None else "")
            raise ConfigError(f"{path}: {bounds} is legal, not {value!r}")
    return value


def _shown(bound: float) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _object_schema(kind: type) -> dict[str, Any]:
    types = get_type_hints(kind)
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {f.name: _field_schema(types[f.name], f) for f in fields(kind)},
        **({"required": required} if required else {}),
    }


def _field_schema(kind: Any, item: Field[Any]) -> dict[str, Any]:
    described = {"description": item.metadata["what"], **_type_schema(kind, item)}
    if item.default is not MISSING and item.default is not None:
        described["default"] = item.default
    return described


def _type_schema(kind: Any, item: Field[Any]) -> dict[str, Any]:
    origin = get_origin(kind)
    if origin is UnionType:
        kind = next(k for k in get_args(kind) if k is not type(None))
        origin = get_origin(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _object_schema(kind)
    if origin is tuple:
        kinds = get_args(kind)
        if kinds[-1] is Ellipsis:
            return {"type": "array", "items": _type_schema(kinds[0], item)}
        items = [_type_schema(k, item) for k in kinds]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is not None:
        return {"type": "object", "additionalProperties": _type_schema(get_args(kind)[1], item)}
    result: dict[str, Any] = {"type": _JSON_TYPES[kind]}
    choices, least, most = (item.metadata[key] for key in ("choices", "least", "most"))
    if choices:
        result["enum"] = list(choices)
    if least is not None and kind in (int, float):
        result["minimum"] = least
    if most is not None and kind in (int, float):
        result["maximum"] = most
    return result
