# SPDX-License-Identifier: Apache-2.0
"""BMv2 JSON with members lost, swapped or of another kind: refused with its place, or it runs."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bmv2_rig import HeapClock

from bmv2 import EmbeddedSwitch, P4ProgramError, load_program
from bmv2.loader import load

DATA = Path(__file__).parents[1] / "data"
PROGRAMS = [
    json.loads((DATA / folder / f"{name}.json").read_text())
    for folder, name in (
        ("stf", "copies"),
        ("stf", "structures"),
        ("p4runtime", "value_sets"),
        ("p4runtime", "every_entity"),
    )
]
SPOILT = 60
STRANGE: list[Any] = [None, -1, 0, 1, 2**40, "", "x", [], {}, True, 1.5, "0x1", [[]], {"type": "hexstr"}]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a document, but for where it came from."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        if key != "source_info":
            yield value, key
            if isinstance(value[key], dict | list):
                yield from places(value[key])


def spoil(rng: Random, document: Any) -> str:
    """The document with one or two things wrong."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.randint(1, 2)):
        (container, key), (other, its) = (rng.choice(list(places(document))) for _ in range(2))
        kind = rng.random()
        if kind < 0.3:
            del container[key]
        elif kind < 0.6:
            container[key] = rng.choice(STRANGE)
        elif kind < 0.8:
            container[key] = json.loads(json.dumps(other[its]))
        elif isinstance(container[key], str):
            container[key] = container[key][:-1]
        elif isinstance(container[key], int):
            container[key] += rng.choice((-1, 1, 7))
    return json.dumps(document)


@pytest.mark.parametrize("seed", range(4))
def test_a_spoilt_program_is_refused_with_its_place_or_runs(seed: int) -> None:
    rng = Random(seed)
    refused = loaded = 0
    for _ in range(SPOILT):
        text = spoil(rng, rng.choice(PROGRAMS))
        try:
            program = load_program(text)
        except P4ProgramError as error:
            refused += str(error).startswith("program")
            continue
        loaded += 1
        clock = HeapClock()
        switch = EmbeddedSwitch("s1", clock)
        for port in range(1, 5):
            switch.add_port(port, rate_bps=None, transmit=lambda frame: None)
        switch.load(program)
        for size in (0, 1, 4, 60):
            switch.receive(1, rng.randbytes(size))
    assert refused + loaded == SPOILT
    assert refused > 20
    assert loaded


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (
            lambda p: p["pipelines"][0]["tables"][0].update(next_tables=1),
            r"\.next_tables: expected an object",
        ),
        (
            lambda p: p["pipelines"][0]["action_profiles"][0].update(selector="x"),
            r"\.selector: expected an object",
        ),
        (
            lambda p: p["pipelines"][0]["conditionals"][0]["expression"].update(value=1),
            r"\.expression\.value: expected an object",
        ),
    ],
)
def test_a_member_of_another_kind_is_named(change: Any, where: str) -> None:
    program = json.loads(json.dumps(PROGRAMS[3]))
    change(program)
    with pytest.raises(P4ProgramError, match=where):
        load_program(json.dumps(program))


def test_an_integer_of_thousands_of_digits_is_refused_in_words():
    """Python converts 4,300 digits at most."""
    with pytest.raises(P4ProgramError, match="not JSON"):
        load_program('{"__meta__": {"version": [2, ' + "9" * 5000 + "]}}")


def test_a_union_that_p4c_declares_among_the_headers_is_a_union():
    """p4c does so with a union of which the program uses members only, and declares its members nowhere."""
    program = json.loads((DATA / "p4runtime/translated.json").read_bytes())
    usual = load(json.dumps(program))
    program["header_unions"] = []
    program["headers"] = [h for h in program["headers"] if not h["name"].startswith("tail.")]
    program["headers"].append({"name": "tail", "id": 5, "header_type": "tail_t", "metadata": True})
    found = load(json.dumps(program))
    assert found.unions == usual.unions == {"tail": ("tail.one", "tail.two")}
    assert (found.headers, found.siblings, found.deparser) == (usual.headers, usual.siblings, usual.deparser)
    program["header_union_types"][0]["headers"][1][1] = "missing_t"
    with pytest.raises(P4ProgramError, match=r"headers\[tail\]: no header type is called 'missing_t'"):
        load(json.dumps(program))
