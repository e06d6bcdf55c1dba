# SPDX-License-Identifier: Apache-2.0
"""One value in any of the three formats is one value, and every error has its line."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polyrhythm_files import ConfigError, Limits, parse_document, read_document
from polyrhythm_files.errors import Loc
from polyrhythm_files.yaml_text import Scalars

KEYS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=8
)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12),
)
VALUES = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=20,
    ),
    max_size=5,
)


class Dumper(yaml.SafeDumper):
    """Quotes what our reader takes for a number."""


Dumper.yaml_implicit_resolvers = Scalars.yaml_implicit_resolvers


def toml_of(value: Any) -> str:
    """A value as a TOML expression of one or several lines."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(k, ensure_ascii=False)} = {toml_of(v)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + "".join(f"\n  {toml_of(v)}, # ]" for v in value) + "\n]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else json.dumps(value)


def as_toml(data: dict[str, Any]) -> str:
    """A document whose nested tables are written as tables, arrays of tables or inline, in turn."""
    plain, tables = [], []
    for key, value in data.items():
        name = json.dumps(key, ensure_ascii=False)
        if isinstance(value, dict):
            tables.append(f"\n[{name}] # {{\n" + as_toml_pairs(value))
        elif value and isinstance(value, list) and all(isinstance(v, dict) for v in value):
            tables += [f"\n[[{name}]]\n" + as_toml_pairs(v) for v in value]
        else:
            plain.append(f"{name} = {toml_of(value)}\n")
    return "".join(plain + tables)


def as_toml_pairs(table: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(k, ensure_ascii=False)} = {toml_of(v)}\n" for k, v in table.items())


def locs(value: Any, loc: Loc = ()) -> set[Loc]:
    found = {loc}
    if isinstance(value, dict):
        found |= {p for k, v in value.items() for p in locs(v, (*loc, k))}
    elif isinstance(value, list):
        found |= {p for i, v in enumerate(value) for p in locs(v, (*loc, i))}
    return found


@settings(max_examples=150, deadline=None)
@given(VALUES)
@example({"x": '"""', "y": ["'''", "#", {"a.b": "\\", '"': "[["}]})
def test_the_three_formats_of_a_value_are_one_value_with_every_path_in_it(data: dict[str, Any]) -> None:
    texts = {
        "json": json.dumps(data, indent=1),
        "toml": as_toml(data),
        "yaml": yaml.dump(data, Dumper=Dumper, allow_unicode=True, sort_keys=False),
    }
    assert tomllib.loads(texts["toml"]) == data
    for form, text in texts.items():
        document = parse_document(text, "f", form)
        assert document.value == data, form
        lines = dict(document.positions())
        assert set(lines) == locs(data), form
        assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


@pytest.mark.parametrize(
    ("form", "text", "line", "words"),
    [
        ("json", '{"a": 1,\n "a": 2}', 2, "a: this key is there twice; first in line 1"),
        ("json", '{"a": [1,\n NaN]}', 2, "a[1]: NaN is no number"),
        ("json", '{"a":\n -Infinity}', 2, "a: -Infinity is no number"),
        ("json", '{"a":\n 1e999}', 1, "a: inf is no number"),
        ("json", '{"a": 1\n "b": 2}', 2, "not JSON: Expecting ',' delimiter (column 2)"),
        ("json", "[" * 100_000, 1, "nested deeper than 64 levels"),
        ("json", "\n" + "[" * 70 + "]" * 70, 2, "nested deeper than 64 levels"),
        ("json", '{"a":\n\n' + "1" * 5000 + "}", 3, "a: a whole number of 5000 digits; legal: at most 77"),
        ("json", '{"a":\n' + "1" * 80 + "}", 1, "a: a whole number of more than 77 digits"),
        ("json", '{"a": "\\ud800"}', 1, "half a character"),
        ("json", "", 1, "not JSON"),
        ("yaml", "a: 1\nb: {c: 2,\n a: 1, c: 3}", 3, "b.c: this key is there twice; first in line 2"),
        ("yaml", "a:\n- .nan", 2, "a[0]: nan is no number"),
        ("yaml", "a:\n  b: 2026-01-01", 2, "a.b: '2026-01-01' is a timestamp"),
        ("yaml", "a: !!int x", 1, "a: 'x' is no int"),
        ("yaml", "a: !!python/object:os.system x", 1, "legal: quoted text"),
        ("yaml", "a: !!set {b}", 1, "a: a value of type"),
        ("yaml", "\na: [", 3, "not YAML"),
        ("yaml", "a: &x\n - *x", 2, "*x: no complete value above has this anchor"),
        ("yaml", "? [a]\n: b", 1, "a key is a list or a table"),
        ("yaml", "a: {1: 2, '1': 3}", 1, "a.1: this key is there twice"),
        ("yaml", "a: 1\n---\nb: 2", 2, "a second YAML document"),
        ("yaml", "[" * 100_000, 1, "nested deeper than 64 levels"),
        ("yaml", "a: \x07", 1, "not YAML"),
        ("yaml", "\ta: b", 1, "not YAML"),
        ("toml", "a = 1\n\na = 2", 3, "a: this key is there twice; first in line 1"),
        ("toml", "[a]\nb = 1\n[a]", 3, "a: this key is there twice; first in line 1"),
        ("toml", "[[a]]\n[[a]]\nb = 1\nb = 2", 4, "a[1].b: this key is there twice; first in line 3"),
        ("toml", "a = { b = 1, b = 2 }", 1, "not TOML: Duplicate inline table key"),
        ("toml", "a = 1\nb =\n", 2, "not TOML"),
        ("toml", "a = [\n 1,\n inf ]", 3, "a[1]: inf is no number"),
        ("toml", "x = 1\n[a]\nb = 1979-05-27 07:32:00", 3, "a.b: '1979-05-27 07:32:00' is a date"),
        ("toml", "a = " + "[" * 100_000, 1, "nested deeper than 64 levels"),
        ("toml", "a = 1\nb = " + "1" * 5000, 2, "digits"),
        ("toml", 'a = """\n\\ud800"""', 2, "not TOML"),
    ],
)  # fmt: skip
def test_what_no_file_may_hold_is_told_with_its_line(form: str, text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_document(text, "f", form)
    message = str(caught.value)
    assert message.startswith(f"f:{line}: "), message
    assert words in message
    assert "\n" not in message


def test_aliases_count_in_full_and_cost_no_memory() -> None:
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    with pytest.raises(ConfigError, match=r"f:\d+: more than 200,000 values, aliases counted in full"):
        parse_document("\n".join(rows), "f", "yaml", Limits())


def test_an_alias_is_its_value_in_its_own_place() -> None:
    document = parse_document("a: &x {b: [1, 2]}\nc: *x\n*y : 1\n".replace("*y ", "d"), "f", "yaml")
    assert document.value == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}, "d": 1}
    assert (document.line(("a", "b", 1)), document.line(("c", "b", 1)), document.line(("d",))) == (1, 2, 3)


def test_numbers_of_yaml_are_those_of_the_others() -> None:
    value = parse_document("[1e9, 1E-3, +1.5, .5, 0x10, 1_000, '1e9', 1.2.3, 1e]", "f", "yaml").value
    assert value == [1e9, 1e-3, 1.5, 0.5, 16, 1000, "1e9", "1.2.3", "1e"]


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("f.json", "{}", "json"),
        ("f.JSON", "{}", "json"),
        ("f.yml", "{}", "yaml"),
        ("f.yaml", "a: 1", "yaml"),
        ("f.toml", "a = 1", "toml"),
        ("f", '\n{"a": 1}', "json"),
        ("f", "[1, 2]", "json"),
        ("f", "{a: 1}", "yaml"),
        ("f", "# x\n[agent]\nhost = 'h1'", "toml"),
        ("f.conf", "# x\n\n[[jobs]] # y\n", "toml"),
        ("f", "a.b = 1", "toml"),
        ("f", "a: 1", "yaml"),
        ("f", "", "yaml"),
        ("f.json", "\ufeff{}", "json"),
    ],
)
def test_the_suffix_names_the_format_and_else_the_text(
    tmp_path: Path, name: str, text: str, form: str
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert read_document(path).format == form


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b" " * 101)
    (tmp_path / "latin").write_bytes(b"a: 1\nb: \xff")
    for name, words in (
        ("none", "none: cannot be read: No such file"),
        ("", ": cannot be read: Is a directory"),
        ("large", "large: too large; legal: at most 100 bytes"),
        ("latin", "latin:2: not UTF-8 text (byte 8)"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_document(tmp_path / name, Limits(max_bytes=100))
        assert words in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(st.sampled_from("[]{}\"'#=,.:&*!?|>-% \n\tab1e0\\"), max_size=40),
    form=st.sampled_from(["json", "yaml", "toml", None]),
)
def test_any_text_is_a_value_or_an_error_of_one_line(text: str, form: str | None) -> None:
    try:
        document = parse_document(text, "f", form)
    except ConfigError as error:
        message = str(error)
        assert message.startswith("f:")
        assert message.split(":")[1].isdecimal()
        assert "\n" not in message
    else:
        assert not (isinstance(document.value, float) and math.isnan(document.value))
        assert document.value is None or dict(document.positions())
