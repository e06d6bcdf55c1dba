# SPDX-License-Identifier: Apache-2.0
"""Entries and packet metadata: what is written comes back, in canonical form, and nothing ill-formed passes."""

import pytest
from finsy.proto import p4i, p4r
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from p4rt_bench import PROGRAMS

from bmv2.entries import Exact, Lpm, Optional, Range, TableEntry, Ternary
from bmv2.loader import load
from bmv2.server.codec import decode_action, decode_match, decode_priority, encode_entry
from bmv2.server.errors import INVALID_ARGUMENT, OUT_OF_RANGE, StatusError
from bmv2.server.packets import decode_packet_in, encode_packet_out
from bmv2.server.schema import FieldInfo, PacketHeader, Schema
from bmv2.server.values import decode_uint, encode_uint

INFO = """
tables {
  preamble { id: 1 name: "t" }
  match_fields { id: 1 name: "e" bitwidth: 12 match_type: EXACT }
  match_fields { id: 2 name: "l" bitwidth: 32 match_type: LPM }
  match_fields { id: 3 name: "t" bitwidth: 48 match_type: TERNARY }
  match_fields { id: 4 name: "r" bitwidth: 19 match_type: RANGE }
  match_fields { id: 5 name: "o" bitwidth: 9 match_type: OPTIONAL }
  action_refs { id: 10 }
  action_refs { id: 11 scope: DEFAULT_ONLY }
  size: 4
}
actions { preamble { id: 10 name: "go" }
  params { id: 2 name: "b" bitwidth: 128 } params { id: 1 name: "a" bitwidth: 1 } }
actions { preamble { id: 11 name: "stop" } }
"""
# Any program does: P4Info tells all widths.
SCHEMA = Schema.parse(
    text_format.Parse(INFO, p4i.P4Info()), load((PROGRAMS / "every_entity.json").read_bytes())
)
TABLE = SCHEMA.tables[1]


@st.composite
def entries(draw):
    bits = draw(st.integers(0, 32))
    prefix = draw(st.integers(0, (1 << bits) - 1)) << (32 - bits)
    mask = draw(st.integers(0, (1 << 48) - 1))
    low, high = sorted(draw(st.tuples(st.integers(0, (1 << 19) - 1), st.integers(0, (1 << 19) - 1))))
    return TableEntry(
        match=(
            Exact(draw(st.integers(0, (1 << 12) - 1))),
            Lpm(prefix, bits),
            Ternary(draw(st.integers(0, (1 << 48) - 1)) & mask, mask),
            Range(low, high),
            Optional(draw(st.none() | st.integers(0, 511))),
        ),
        priority=draw(st.integers(1, 1 << 30)),
        action="go",
        params=(draw(st.integers(0, 1)), draw(st.integers(0, (1 << 128) - 1))),
    )


def byte_strings(message):
    for descriptor, value in message.ListFields():
        if descriptor.type == descriptor.TYPE_BYTES:
            yield value
        elif descriptor.type == descriptor.TYPE_MESSAGE:
            for item in value if descriptor.is_repeated else [value]:
                yield from byte_strings(item)


@given(entries())
def test_an_entry_survives_the_wire_in_canonical_form(entry):
    message = encode_entry(SCHEMA, TABLE, entry)
    for data in byte_strings(message):
        assert len(data) == 1 or (data and data[0] != 0)
    action, params = decode_action(SCHEMA, TABLE, message.action, default=False)
    back = TableEntry(decode_match(TABLE, message), decode_priority(TABLE, message), action, params)
    assert back == entry


@given(st.integers(0, (1 << 128) - 1), st.integers(0, 5))
def test_padding_is_read_but_never_written(value, zeros):
    data = encode_uint(value)
    assert int.from_bytes(data, "big") == value
    assert decode_uint(b"\0" * zeros + data, 128, "x") == value


@given(st.integers(1, 64), st.integers(0, 1 << 70), st.integers(0, 4))
def test_width_is_enforced(width, value, zeros):
    padded = bytes(zeros) + encode_uint(value)
    if value < 1 << width:
        assert decode_uint(padded, width, "x") == value
    else:
        with pytest.raises(StatusError) as caught:
            decode_uint(padded, width, "x")
        assert caught.value.code == OUT_OF_RANGE


def test_an_empty_byte_string_is_refused():
    with pytest.raises(StatusError) as caught:
        decode_uint(b"", 8, "x")
    assert caught.value.code == INVALID_ARGUMENT


EXACT = 'match { field_id: 1 exact { value: "\\001" } }'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "e: is missing"),
        (EXACT + EXACT, "given twice"),
        (EXACT + 'match { field_id: 9 exact { value: "a" } }', "9 is unknown"),
        ('match { field_id: 1 lpm { value: "a" prefix_len: 1 } }', "is exact, but lpm"),
        ("match { field_id: 1 }", "is exact, but nothing"),
        ('match { field_id: 1 exact { value: "\\020\\000" } }', "does not fit into 12 bits"),
        (EXACT + 'match { field_id: 2 lpm { value: "\\000" prefix_len: 0 } }', "not in 1..32"),
        (EXACT + 'match { field_id: 2 lpm { value: "\\000" prefix_len: 33 } }', "not in 1..32"),
        (EXACT + 'match { field_id: 2 lpm { value: "\\001" prefix_len: 8 } }', "beyond its prefix"),
        (EXACT + 'match { field_id: 3 ternary { value: "\\000" mask: "\\000" } }', "mask is 0"),
        (EXACT + 'match { field_id: 3 ternary { value: "\\003" mask: "\\001" } }', "outside its mask"),
        (EXACT + 'match { field_id: 4 range { low: "\\003" high: "\\001" } }', "above the high end"),
        (EXACT + 'match { field_id: 4 range { low: "\\000" high: "\\007\\377\\377" } }', "is everything"),
        (EXACT + "match { field_id: 5 optional { } }", "empty"),
    ],
)
def test_ill_formed_keys_are_refused(text, said):
    with pytest.raises(StatusError, match=said):
        decode_match(TABLE, text_format.Parse(text, p4r.TableEntry()))


GOOD = 'action { action_id: 10 params { param_id: 1 value: "\\001" } params { param_id: 2 value: "\\002" } }'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a plain action is needed"),
        ("action_profile_member_id: 3", "a plain action is needed"),
        ("action { action_id: 12 }", "0xc is not allowed"),
        ("action { action_id: 11 }", "its entries: action id 0xb is not allowed"),
        ('action { action_id: 10 params { param_id: 1 value: "\\001" } }', "b .id 2. is missing"),
        (GOOD.replace("param_id: 2", "param_id: 1"), "given twice"),
        (GOOD.replace("param_id: 2", "param_id: 3"), "3 is unknown"),
        (GOOD.replace('"\\001"', '"\\002"'), "does not fit into 1 bits"),
    ],
)
def test_ill_formed_actions_are_refused(text, said):
    with pytest.raises(StatusError, match=said):
        decode_action(SCHEMA, TABLE, text_format.Parse(text, p4r.TableAction()), default=False)


@pytest.mark.parametrize("priority", [0, -1])
def test_a_prioritised_table_needs_a_priority(priority):
    with pytest.raises(StatusError, match="priority above 0"):
        decode_priority(TABLE, p4r.TableEntry(priority=priority))


@st.composite
def headers(draw):
    widths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    if sum(widths) % 8:
        widths.append(8 - sum(widths) % 8)
    fields = tuple(FieldInfo(index + 1, f"f{index}", width) for index, width in enumerate(widths))
    return PacketHeader(fields), [draw(st.integers(0, (1 << width) - 1)) for width in widths]


@given(headers(), st.binary(max_size=40))
def test_metadata_is_packed_msb_first_and_comes_back(header_and_values, payload):
    header, values = header_and_values
    packet = p4r.PacketOut(payload=payload)
    for field, value in reversed(list(zip(header.fields, values, strict=True))):
        packet.metadata.add(metadata_id=field.id, value=encode_uint(value))
    frame = encode_packet_out(header, packet)
    bits = "".join(f"{value:0{field.width}b}" for field, value in zip(header.fields, values, strict=True))
    assert frame == int(bits, 2).to_bytes(len(bits) // 8, "big") + payload
    back = decode_packet_in(header, frame)
    assert back.payload == payload
    assert [int.from_bytes(item.value, "big") for item in back.metadata] == values


def test_a_frame_shorter_than_its_header_is_refused():
    with pytest.raises(StatusError, match="shorter than its header of 4 bytes"):
        decode_packet_in(PacketHeader((FieldInfo(1, "f", 32),)), b"abc")
