# SPDX-License-Identifier: Apache-2.0
"""Value sets against their definition, and under the masks that BMv2's JSON may lay over them."""

import json
from pathlib import Path
from random import Random

import pytest
from bmv2_pair import random_match
from bmv2_rig import Rig
from hypothesis import given, settings
from hypothesis import strategies as st

from bmv2 import load_program
from bmv2.entries import EntryFault, Exact, Lpm, Optional, Range, TableEntryError, Ternary
from bmv2.ir import FieldRef, KeyField, ValueSet
from bmv2.value_sets import MemberSet

PROGRAM = Path(__file__).parents[1] / "data" / "p4runtime" / "value_sets.json"
KINDS = ("exact", "lpm", "ternary", "range", "optional")


def fits(match, value, width):
    """Whether one field's match holds, written out bit by bit."""
    if isinstance(match, Range):
        return match.low <= value <= match.high
    if isinstance(match, Optional):
        return match.value is None or value == match.value
    if isinstance(match, Exact):
        return value == match.value
    if isinstance(match, Lpm):
        return (
            format(value, f"0{width}b")[: match.prefix_len]
            == format(match.value, f"0{width}b")[: match.prefix_len]
        )
    assert isinstance(match, Ternary)
    return all(value >> bit & 1 == match.value >> bit & 1 for bit in range(width) if match.mask >> bit & 1)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_a_set_holds_what_one_of_its_members_matches(seed, widths):
    rng = Random(seed)
    members = []
    for _ in range(rng.randint(0, 5)):
        parts = []
        for width in widths:
            kind = rng.choice(KINDS)
            match = random_match(rng, KeyField("", kind, FieldRef("", ""), width, None))
            parts.append(Optional(match.value) if kind == "optional" else match)
        members.append(tuple(parts))
    known = MemberSet(ValueSet("set", None, tuple(widths)))
    view = known.view(None)
    known.replace(members)
    for _ in range(20):
        values = [rng.getrandbits(width) for width in widths]
        if members and rng.random() < 0.5:
            values = [getattr(part, "value", getattr(part, "low", 0)) or 0 for part in rng.choice(members)]
        key = 0
        for value, width in zip(values, widths, strict=True):
            key = key << width | value
        wanted = any(all(map(fits, member, values, widths)) for member in members)
        assert [view[key], view[key]] == [wanted, wanted]


def test_a_transitions_mask_lies_over_key_and_members():
    document = json.loads(PROGRAM.read_text())
    for state in document["parsers"][0]["parse_states"]:
        for way in state["transitions"]:
            if way["type"] == "parse_vset":
                way["mask"] = {"Read.wild": "0xf000ff", "Read.plain": "0x0f"}[way["value"]]
    rig = Rig(json.dumps(document))
    rig.switch.set_value_set("Read.wild", ((0x45, 0x1234),))
    rig.switch.set_value_set("Read.plain", ((0xA7,),))
    for port, frame in ((3, "4f993400"), (1, "5f993400"), (1, "45123500"), (4, "00000017"), (1, "00000018")):
        before = len(rig.sent)
        rig.switch.receive(1, bytes.fromhex(frame))
        assert [out for _, out, _ in rig.sent[before:]] == [port]


def test_old_compilers_do_not_tell_a_sets_size():
    document = json.loads(PROGRAM.read_text())
    for known in document["parse_vsets"]:
        del known["max_size"]
    program = load_program(json.dumps(document))
    assert program.ir.value_sets["Read.plain"].size is None
    rig = Rig(json.dumps(document))
    rig.switch.set_value_set("Read.plain", tuple((value,) for value in range(200)))
    assert len(rig.switch.read_value_set("Read.plain")) == 200


def test_many_keys_do_not_fill_the_memory():
    known = MemberSet(ValueSet("set", 2, (32,)))
    view = known.view(None)
    known.replace([(Ternary(1, 1),)])
    assert sum(view[key] for key in range(70_000)) == 35_000
    assert len(view) < 66_000


@pytest.mark.parametrize(
    ("member", "what"),
    [((1, 2), "has 1 fields"), ((256,), "8 bits wide, got 256"), ((Ternary(0, 256),), "8 bits wide")],
)
def test_members_that_do_not_fit_are_refused(member, what):
    known = MemberSet(ValueSet("set", 2, (8,)))
    known.replace([(7,)])
    with pytest.raises(TableEntryError, match=what) as refusal:
        known.insert(member)
    assert refusal.value.fault is EntryFault.INVALID
    with pytest.raises(TableEntryError, match="holds"):
        known.insert((7,))
    assert known.members() == ((7,),)
