# SPDX-License-Identifier: Apache-2.0
"""Declared types read values, and their errors say where and what would be legal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from msgspec import Meta

from polyrhythm_files import (
    ConfigError,
    InvalidValueError,
    Section,
    convert,
    finite,
    json_schema,
    parse_document,
    value_document,
)


class Phase(Section, frozen=True, kw_only=True):
    start_ms: Annotated[float, finite(0, what="from the period's start")]
    end_ms: Annotated[float, finite(above=0, most=1000.5)] = 1.0

    def __post_init__(self) -> None:
        if self.end_ms < self.start_ms:
            raise InvalidValueError(("end_ms",), f"{self.end_ms:g} is before start_ms")


class Circle(Section, frozen=True, kw_only=True, tag_field="kind", tag="circle"):
    radius: int


class Square(Section, frozen=True, kw_only=True, tag_field="kind", tag="square"):
    side: int


class File(Section, frozen=True, kw_only=True):
    name: Annotated[str, Meta(pattern="^[a-z]+$", extra={"legal": "a name of small letters"})]
    phases: Annotated[tuple[Phase, ...], Meta(min_length=1)]
    shape: Circle | Square | None = None
    level: Literal["low", "high"] = "low"
    hash: Literal["unknown"] | Phase | None = None
    rates: Mapping[str, Annotated[int, Meta(ge=1, le=9)]] = {}
    pairs: tuple[tuple[str, int], ...] = ()
    on: bool = True


GOOD: dict[str, Any] = {"name": "a", "phases": [{"start_ms": 0}]}


def test_values_are_read_and_whole_numbers_are_numbers() -> None:
    found = convert(value_document(GOOD | {"shape": {"kind": "square", "side": 2}, "rates": {"x": 3}}), File)
    assert found == File(name="a", phases=(Phase(start_ms=0.0),), shape=Square(side=2), rates={"x": 3})
    assert isinstance(found.phases[0].start_ms, float)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phases": []}, "phases: an empty list is wrong; legal: a list of 1 value or more, each a table with the keys start_ms, end_ms"),
        ({"phases": 3}, "phases: 3 is wrong; legal: a list of 1 value or more"),
        ({"phases": [{}]}, "phases[0].start_ms: missing; legal: a number from 0"),
        ({"phases": [{"start_ms": 0, "end_m": 1}]}, "phases[0].end_m: unknown key (is end_ms meant?); legal: start_ms, end_ms"),
        ({"phases": [{"strt_ms": 0}]}, "phases[0].strt_ms: unknown key (is start_ms meant?)"),
        ({"phases": [{"start_ms": 0, "end_ms": 0}]}, "phases[0].end_ms: 0 is wrong; legal: a number above 0, at most 1000.5"),
        ({"phases": [{"start_ms": float("inf")}]}, "phases[0].start_ms: inf is wrong; legal: a number from 0"),
        ({"phases": [{"start_ms": float("nan")}]}, "phases[0].start_ms: nan is wrong; legal: a number from 0"),
        ({"phases": [{"start_ms": True}]}, "phases[0].start_ms: true is wrong; legal: a number from 0"),
        ({"phases": [{"start_ms": 0}, {"start_ms": 5}]}, "phases[1].end_ms: 1 is before start_ms"),
        ({"name": "A"}, "name: 'A' is wrong; legal: a name of small letters"),
        ({"name": None}, "name: nothing (null) is wrong; legal: a name of small letters"),
        ({"level": "mid"}, "level: 'mid' is wrong; legal: low, high"),
        ({"level": []}, "level: an empty list is wrong; legal: low, high"),
        ({"shape": {}}, "shape.kind: missing; legal: circle, square"),
        ({"shape": {"kind": "x"}}, "shape.kind: 'x' is wrong; legal: circle, square"),
        ({"shape": {"kind": 1}}, "shape.kind: 1 is wrong; legal: circle, square"),
        ({"shape": {"kind": "circle"}}, "shape.radius: missing; legal: a whole number"),
        ({"shape": {"kind": "circle", "side": 1}}, "shape.side: unknown key; legal: kind, radius"),
        ({"shape": "circle"}, "shape: 'circle' is wrong; legal: a table of kind circle, square"),
        ({"hash": "known"}, "hash: 'known' is wrong; legal: unknown, or a table with the keys"),
        ({"hash": {"start_ms": -1}}, "hash.start_ms: -1 is wrong; legal: a number from 0"),
        ({"rates": {"x": 3, "y.z": 0}}, "rates.y.z: 0 is wrong; legal: a whole number from 1 to 9"),
        ({"rates": [1]}, "rates: a list is wrong; legal: a table of a whole number from 1 to 9 by name"),
        ({"pairs": [["a", 1], ["b"]]}, "pairs[1]: a list is wrong; legal: a list of 2: text; a whole number"),
        ({"pairs": [["a", "b"]]}, "pairs[0][1]: 'b' is wrong; legal: a whole number"),
        ({"on": 1}, "on: 1 is wrong; legal: true or false"),
        ({"nam": "x"}, "nam: unknown key (is name meant?); legal: name, phases"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_by_path_and_what_would_be_legal(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        convert(value_document(GOOD | change), File)
    assert str(caught.value).startswith(message)


def test_an_error_below_a_path_has_the_whole_path_and_its_line() -> None:
    document = parse_document('{"file":\n {"name": "a",\n "phases": [{"start_ms":\n "x"}]}}', "f.json")
    with pytest.raises(ConfigError, match=r"^f\.json:3: file\.phases\[0\]\.start_ms: 'x' is wrong; legal"):
        convert(document, File, ("file",))
    with pytest.raises(ConfigError, match=r"^f\.json:2: file\.name: odd$"), document.checks(("file",)):
        raise InvalidValueError(("name",), "odd")


def test_what_is_no_table_at_all() -> None:
    for value in (None, [], "x", 3):
        with pytest.raises(ConfigError, match="legal: a table with the keys name, phases"):
            convert(value_document(value, "f"), File)


def test_the_schema_takes_what_the_reader_takes() -> None:
    schema = json_schema([File], "A file")
    checker = jsonschema.Draft202012Validator(schema)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert checker.is_valid(GOOD)
    assert not checker.is_valid(GOOD | {"level": "mid"})
    assert not checker.is_valid(GOOD | {"x": 1})
    assert "maximum" not in schema["$defs"]["Phase"]["properties"]["start_ms"]
