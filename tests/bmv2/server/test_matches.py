# SPDX-License-Identifier: Apache-2.0
"""Value sets whose members are ternary, ranges and exact, from P4Runtime to the parser."""

import pytest
from p4rt_bench import Bench, config_of

from bmv2.server.values import encode_uint

TERNARY = 'match {{ field_id: 1 ternary {{ value: "\\x{0:02x}" mask: "\\x{1:02x}" }} }}'


def span(low, high):
    ends = ["".join(f"\\x{byte:02x}" for byte in encode_uint(end)) for end in (low, high)]
    return f'match {{ field_id: 2 range {{ low: "{ends[0]}" high: "{ends[1]}" }} }}'


@pytest.fixture
def bench(rig, connect, batch_errors):
    return Bench(rig, connect(), config_of("value_sets"), batch_errors)


def wild(*members):
    return f"value_set_entry {{ value_set_id: $wild {' '.join(f'members {{ {m} }}' for m in members)} }}"


def test_members_match_as_p4info_says(bench):
    both = TERNARY.format(0x40, 0xF0) + span(0xA, 0x100)
    assert bench.ports(0x41, 0, 10, 0) == [1]
    assert bench.write("MODIFY", wild(both, span(0xFF00, 0xFF09))) == "OK"
    expected = {
        (0x41, 0, 10): 3,
        (0x4F, 1, 0): 3,
        (0x51, 0, 10): 1,
        (0x41, 0, 9): 1,
        (0x41, 1, 1): 1,
        (0x00, 0xFF, 9): 3,
        (0x77, 0xFF, 10): 1,
    }
    for _ in range(2):
        assert {frame: bench.ports(*frame, 0)[0] for frame in expected} == expected
    assert bench.read("value_set_entry { value_set_id: $wild }") == [
        bench.entity(wild(both, span(0xFF00, 0xFF09)))
    ]
    assert bench.write("MODIFY", wild(TERNARY.format(0, 1))) == "OK"
    assert [bench.ports(kind, 0, 10, 0)[0] for kind in (0x40, 0x41)] == [3, 1]
    assert bench.write("MODIFY", wild("")) == "OK"
    assert bench.ports(0x41, 0, 10, 0) == [3]


@pytest.mark.parametrize(
    ("member", "code"),
    [
        (TERNARY.format(0x41, 0x40), "INVALID_ARGUMENT"),
        (TERNARY.format(0, 0), "INVALID_ARGUMENT"),
        (span(0x100, 0xA), "INVALID_ARGUMENT"),
        ('match { field_id: 2 range { low: "\\x01" high: "\\x01\\x00\\x00" } }', "OUT_OF_RANGE"),
        ('match { field_id: 1 exact { value: "\\x01" } }', "INVALID_ARGUMENT"),
        (TERNARY.format(0x40, 0x40) * 2, "INVALID_ARGUMENT"),
        ('match { field_id: 3 exact { value: "\\x01" } }', "INVALID_ARGUMENT"),
    ],
)
def test_members_that_do_not_fit_are_refused_and_change_nothing(bench, member, code):
    good = wild(TERNARY.format(0x40, 0xF0))
    assert bench.write("MODIFY", good) == "OK"
    assert bench.write("MODIFY", wild(member)) == code
    assert bench.ports(0x41, 0, 0, 0) == [3]
    assert bench.read("value_set_entry { value_set_id: $wild }") == [bench.entity(good)]


def test_an_exact_set_beside_it_needs_its_field(bench):
    plain = "value_set_entry {{ value_set_id: $plain members {{ {} }} }}"
    assert bench.write("MODIFY", plain.format("")) == "INVALID_ARGUMENT"
    assert bench.write("MODIFY", plain.format('match { field_id: 1 exact { value: "\\x07" } }')) == "OK"
    assert [bench.ports(0, 0, 0, flag)[0] for flag in (7, 8)] == [4, 1]


def test_a_set_of_another_kind_than_p4info_knows_is_refused(rig, connect):
    config = config_of("value_sets")
    config.p4info.value_sets[0].match[0].ClearField("match_type")
    client = connect()
    client.arbitrate(1)
    with pytest.raises(Exception, match="unknown match kind") as refusal:
        client.set_config(config)
    assert "wild.kind" in str(refusal.value)
