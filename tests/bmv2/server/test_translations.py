# SPDX-License-Identifier: Apache-2.0
"""Values that clients see otherwise than the program, through P4Runtime and packets.

The program is translated.p4. Its frames are `more` (2 bytes), `fewer` (2), `plain` (1), `colour` (1).
"""

import json

import grpc
import pytest
from finsy.proto import p4r, rpc_code
from hypothesis import given
from hypothesis import strategies as st
from p4rt_bench import Bench, config_of

from bmv2.entries import Lpm, Range, Ternary
from bmv2.server.errors import INVALID_ARGUMENT, OUT_OF_RANGE, RESOURCE_EXHAUSTED, StatusError
from bmv2.server.matches import MatchField, MatchKind, decode_fields, encode_fields
from bmv2.server.translations import Members, Resized, Strings


@pytest.fixture
def bench(rig, connect, batch_errors):
    return Bench(rig, connect(), config_of("translated"), batch_errors)


def frame(more, fewer=0, plain=0, colour=0):
    return more.to_bytes(2, "big") + fewer.to_bytes(2, "big") + bytes((plain, colour))


def by_port(port, to, more=""):
    return (
        f'table_entry {{ table_id: $by_port match {{ field_id: 1 exact {{ value: "{port}" }} }} '
        f'action {{ action {{ action_id: $send params {{ param_id: 1 value: "{to}" }} }} }} {more} }}'
    )


def stamp(more, fewer):
    params = f'params {{ param_id: 1 value: "{more}" }} params {{ param_id: 2 value: "{fewer}" }}'
    return f"action {{ action {{ action_id: $stamp {params} }} }}"


def sent_by(bench, port, data):
    """All frames that leave, by port, for one that comes in."""
    bench.rig.on_data_plane(lambda: bench.rig.switch.receive(port, data))
    out = []
    while not bench.rig.sent.empty():
        out.append(bench.rig.sent.get())
    return out


def test_digits_are_port_numbers_and_other_strings_get_numbers_of_their_own(bench):
    assert bench.write("INSERT", by_port("1", "2")) == "OK"
    assert bench.write("INSERT", by_port("uplink", "downlink")) == "OK"
    assert bench.write("INSERT", by_port("uplink", "2")) == "ALREADY_EXISTS"
    read = bench.read("table_entry { table_id: $by_port }")
    assert read == [bench.entity(by_port("1", "2")), bench.entity(by_port("uplink", "downlink"))]
    assert sent_by(bench, 1, frame(7)) == [(2, frame(7))]
    for wrong, code in (("", "INVALID_ARGUMENT"), ("512", "OUT_OF_RANGE"), ("9" * 99, "OUT_OF_RANGE")):
        assert bench.write("INSERT", by_port("3", wrong)) == code
    # 511 is what `uplink` stands for in the program now; 0511 is no number's own string.
    assert bench.write("INSERT", by_port("511", "2")) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", by_port("0511", "2")) == "OK"
    assert bench.write("DELETE", by_port("uplink", "")) == "OK"


def test_numbers_keep_their_value_whatever_the_width(bench):
    masks = (
        "table_entry {{ table_id: $by_masks match {{ field_id: 1 lpm {{ {} }} }} "
        "match {{ field_id: 2 ternary {{ {} }} }} priority: 5 "
        + stamp("\\x01\\x02", "\\x09").replace("{", "{{").replace("}", "}}")
        + " }}"
    )
    # 0x0100/16 of the program's 16 bits is 0x000100/24 of the client's; its mask 0xff0f is the client's 0x0f.
    good = masks.format('value: "\\x01\\x00" prefix_len: 24', 'value: "\\x05" mask: "\\x0f"')
    assert bench.write("INSERT", good) == "OK"
    assert bench.read("table_entry { table_id: $by_masks }") == [bench.entity(good)]
    told = sent_by(bench, 1, frame(0x0100, 0x0095, 1, 2))
    assert told == []
    (packet,) = [bench.client.next().packet]
    assert packet.payload == frame(0x0102, 0x0009, 1, 2)
    metadata = {item.metadata_id: item.value for item in packet.metadata}
    assert metadata == {1: b"1", 2: b"\x00", 3: b"\x01\x02"}
    # `fewer` of the program has bits that the client's mask does not see: they must be 0.
    sent_by(bench, 1, frame(0x0100, 0x0195))
    assert bench.client.next().packet.payload == frame(0x0100, 0x0195)
    for prefix, fewer, code in (
        ('value: "\\x01\\x00\\x00" prefix_len: 24', 'value: "\\x05" mask: "\\x0f"', "OUT_OF_RANGE"),
        ('value: "\\x00" prefix_len: 8', 'value: "\\x05" mask: "\\x0f"', "OUT_OF_RANGE"),
        ('value: "\\x00" prefix_len: 25', 'value: "\\x05" mask: "\\x0f"', "INVALID_ARGUMENT"),
        ('value: "\\x00" prefix_len: 24', 'value: "\\x05" mask: "\\x0f\\x0f"', "OUT_OF_RANGE"),
    ):
        assert bench.write("INSERT", masks.format(prefix, fewer)) == code
    entry = good.replace('"\\x01\\x02"', '"\\x01\\x00\\x00"')
    assert bench.write("MODIFY", entry) == "OUT_OF_RANGE"


def test_ranges_and_optional_fields_of_translated_types(bench):
    text = (
        'table_entry { table_id: $by_range match { field_id: 1 range { low: "\\x10" high: "\\x20" } } '
        'match { field_id: 2 optional { value: "\\x07" } } priority: 1 ' + stamp("\\x11", "\\xff") + " }"
    )
    assert bench.write("INSERT", text) == "OK"
    assert bench.read("table_entry { table_id: $by_range }") == [bench.entity(text)]
    sent_by(bench, 2, frame(0x18, 7))
    packet = bench.client.next().packet
    assert packet.payload == frame(0x11, 0xFF)
    assert packet.metadata[0].value == b"2"
    everything = text.replace('low: "\\x10" high: "\\x20"', 'low: "\\x00" high: "\\xff\\xff"')
    assert bench.write("INSERT", everything) == "OUT_OF_RANGE"
    assert bench.write("INSERT", text.replace('"\\x07"', '"\\x01\\x07"')) == "OUT_OF_RANGE"


def test_errors_are_matched_by_their_names(bench):
    entry = (
        'table_entry { table_id: $by_error match { field_id: 1 exact { value: "PacketTooShort" } } '
        + stamp("\\x0e", "\\x0e")
        + " }"
    )
    assert bench.write("INSERT", entry.replace("PacketTooShort", "\\x01")) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", entry) == "OK"
    assert bench.read("table_entry { table_id: $by_error }") == [bench.entity(entry)]


def test_packet_metadata_is_translated_both_ways(bench):
    def packet_out(port, fewer):
        packet = p4r.PacketOut(payload=frame(1, 2, 3, 4))
        for field, value in ((1, port), (2, b"\x00"), (3, fewer)):
            packet.metadata.add(metadata_id=field, value=value)
        return packet

    bench.client.send(packet=packet_out(b"2", b"\x42"))
    assert bench.rig.next_frame() == (2, frame(1, 0x42, 3, 4))
    bench.client.send(packet=packet_out(b"2", b"\x01\x42"))
    assert bench.client.next().error.canonical_code == rpc_code.OUT_OF_RANGE
    bench.client.send(packet=packet_out(b"", b"\x42"))
    assert bench.client.next().error.canonical_code == rpc_code.INVALID_ARGUMENT


def test_digests_and_registers_of_enums_errors_and_new_types(bench):
    """p4c calls the unnamed digest digest_0 in P4Info and tuple_0 in the device config."""
    text = "digest_entry { digest_id: $digest_0 config { max_list_size: 1 } }"
    assert bench.write("INSERT", text) == "OK"
    # A packet-in beside each: the frame goes to the CPU.
    sent_by(bench, 2, frame(0x0201, 0, 5, 9))
    messages = {
        message.WhichOneof("update"): message for message in (bench.client.next(), bench.client.next())
    }
    (data,) = messages["digest"].digest.data
    expected = p4r.DigestList().data.add()
    expected.tuple.members.add(bitstring=b"\x02\x01")
    expected.tuple.members.add(enum="LEARNT")
    expected.tuple.members.add(error="NoError")
    expected.tuple.members.add(bool=False)
    expected.tuple.members.add(enum_value=b"\x09")
    expected.tuple.members.add(bitstring=b"2")
    expected.tuple.members.add(bitstring=b"\x05")
    assert data == expected
    cell = 'register_entry { register_id: $colours index { index: %d } data { enum_value: "%s" } }'
    assert bench.read("register_entry { register_id: $colours index { index: 1 } }") == [
        bench.entity(cell % (1, "\\x09"))
    ]
    assert bench.write("MODIFY", cell % (3, "\\x03")) == "OK"
    assert bench.read(cell % (3, "")) == [bench.entity(cell % (3, "\\x03"))]
    assert bench.write("MODIFY", cell % (3, "\\x01\\x00")) == "OUT_OF_RANGE"
    assert (
        bench.write("MODIFY", (cell % (3, "\\x01")).replace("enum_value", "bitstring")) == "INVALID_ARGUMENT"
    )


def test_a_table_that_p4c_leaves_out_has_a_default_action_and_nothing_else(rig, connect, batch_errors):
    config = config_of("translated")
    program = json.loads(config.p4_device_config)
    ingress = program["pipelines"][0]
    (idle,) = [table for table in ingress["tables"] if table["name"] == "Translated.idle"]
    ingress["tables"].remove(idle)
    for table in ingress["tables"]:
        for action, follows in table["next_tables"].items():
            if follows == idle["name"]:
                table["next_tables"][action] = idle["base_default_next"]
        if table["base_default_next"] == idle["name"]:
            table["base_default_next"] = idle["base_default_next"]
    config.p4_device_config = json.dumps(program).encode()
    bench = Bench(rig, connect(), config, batch_errors)
    default = (
        "table_entry { table_id: $idle is_default_action: true action { action { action_id: $NoAction } } }"
    )
    assert bench.write("MODIFY", default) == "OK"
    assert bench.read("table_entry { table_id: $idle is_default_action: true }") == [bench.entity(default)]
    assert bench.write("INSERT", "table_entry { table_id: $idle }") == "INVALID_ARGUMENT"
    # A table with a key, or with actions that do something, is not left out: P4Info and program do not fit.
    ingress["tables"] = [table for table in ingress["tables"] if table["name"] != "Translated.by_port"]
    config.p4_device_config = json.dumps(program).encode()
    with pytest.raises(grpc.RpcError) as caught:
        bench.client.set_config(config)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def of_port(config):
    return next(t for t in config.p4info.tables if t.preamble.name.endswith("by_port")).match_fields[0]


def a_string_with_bits(config):
    of_port(config).bitwidth = 9


def a_string_under_a_mask(config):
    of_port(config).match_type = of_port(config).TERNARY


def a_width_that_is_not_the_types(config):
    config.p4info.type_info.new_types["More_t"].translated_type.sdn_bitwidth = 23


def no_width_at_all(config):
    config.p4info.type_info.new_types["More_t"].translated_type.sdn_bitwidth = 0


def an_unknown_type(config):
    of_port(config).type_name.name = "Nobodys_t"


def strings_of_two_widths(config):
    config.p4info.type_info.new_types["More_t"].translated_type.uri = "example/port"
    config.p4info.type_info.new_types["More_t"].translated_type.sdn_string.SetInParent()


def a_header_that_the_program_lacks(config):
    config.p4info.controller_packet_metadata[0].metadata[1].name = "unheard_of"


def an_error_without_a_width_in_a_program_without_errors(config):
    config.p4info.type_info.ClearField("error")


def a_type_that_is_itself(config):
    config.p4info.type_info.new_types["Plain_t"].original_type.new_type.name = "Plain_t"


def an_enum_of_negative_width(config):
    config.p4info.type_info.serializable_enums["Colour_t"].underlying_type.bitwidth = -8


def a_register_of_negative_width(config):
    config.p4info.registers[0].type_spec.bitstring.bit.bitwidth = -8


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (a_type_that_is_itself, grpc.StatusCode.INVALID_ARGUMENT),
        (an_enum_of_negative_width, grpc.StatusCode.INVALID_ARGUMENT),
        (a_register_of_negative_width, grpc.StatusCode.INVALID_ARGUMENT),
        (a_string_with_bits, grpc.StatusCode.INVALID_ARGUMENT),
        (a_string_under_a_mask, grpc.StatusCode.UNIMPLEMENTED),
        (a_width_that_is_not_the_types, grpc.StatusCode.INVALID_ARGUMENT),
        (no_width_at_all, grpc.StatusCode.INVALID_ARGUMENT),
        (an_unknown_type, grpc.StatusCode.INVALID_ARGUMENT),
        (strings_of_two_widths, grpc.StatusCode.UNIMPLEMENTED),
        (a_header_that_the_program_lacks, grpc.StatusCode.INVALID_ARGUMENT),
        (an_error_without_a_width_in_a_program_without_errors, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_types_that_contradict_themselves_are_refused(spoil, code, bench):
    config = config_of("translated")
    spoil(config)
    with pytest.raises(grpc.RpcError) as caught:
        bench.client.set_config(config)
    assert caught.value.code() is code


def test_only_a_write_that_is_kept_gives_a_string_its_number(bench, connect):
    """There are 512 numbers for names of ports: neither reads of anybody nor refused writes use them up."""
    reader = connect()
    keys = [bench.entity(by_port(f"guess{number}", "1")) for number in range(600)]
    for key in keys:
        key.table_entry.ClearField("action")
    for start in (0, 300):
        assert reader.read(*keys[start : start + 300]) == []
    refused = by_port("uplink", "downlink", "is_const: true")
    for number in range(3):
        assert bench.write("INSERT", by_port(f"refused{number}", "999")) == "OUT_OF_RANGE"
        assert bench.write("INSERT", refused) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", by_port("511", "510")) == "OK"
    assert bench.write("INSERT", by_port("uplink", "downlink")) == "OK"
    assert sent_by(bench, 1, frame(7)) == []


def test_strings_end_where_their_numbers_do():
    strings = Strings(2)
    assert [strings.to_program(name, "x") for name in (b"a", b"2", b"b", b"a", b"c")] == [3, 2, 1, 3, 0]
    strings.settle(keep=True)
    for number, name in ((3, b"a"), (2, b"2"), (1, b"b"), (0, b"c")):
        assert strings.to_client(number) == name
    for name, code in ((b"d", RESOURCE_EXHAUSTED), (b"0", INVALID_ARGUMENT), (b"4", OUT_OF_RANGE)):
        with pytest.raises(StatusError) as caught:
            strings.to_program(name, "x")
        assert caught.value.code == code


def test_a_string_of_a_refused_request_leaves_its_number():
    strings = Strings(1)
    assert strings.to_program(b"a", "x") == 1
    strings.settle(keep=False)
    assert strings.to_client(1) == b"1"
    assert [strings.to_program(name, "x") for name in (b"b", b"c")] == [1, 0]


def test_a_number_that_nobody_named_is_its_digits():
    assert Strings(9).to_client(17) == b"17"
    assert Members({"NoError": 0}).to_client(9) == b"9"


def matched(value, bits, number):
    """Whether a match value over so many bits takes a number, by its definition."""
    match value:
        case Lpm():
            return number >> bits - value.prefix_len == value.value >> bits - value.prefix_len
        case Ternary():
            return number & value.mask == value.value
    return value.low <= number <= value.high


@given(st.data(), st.sampled_from(["lpm", "ternary", "range"]), st.integers(1, 7), st.integers(1, 7))
def test_what_a_client_matches_is_what_the_program_matches(data, kind, bits, width):
    """For every number of the program: the client's mask, prefix or range takes it just if the program's does.

    What is accepted comes back as it was written.
    """
    field = MatchField(1, "f", width, MatchKind(kind), Resized(bits, width))
    item = p4r.FieldMatch(field_id=1)
    number = data.draw(st.integers(0, (1 << bits) - 1))
    other = data.draw(st.integers(0, (1 << bits) - 1))
    if kind == "lpm":
        prefix = data.draw(st.integers(1, bits))
        seen = Lpm(number >> bits - prefix << bits - prefix, prefix)
        item.lpm.value, item.lpm.prefix_len = bytes([seen.value]), prefix
    elif kind == "ternary":
        seen = Ternary(number & other, other)
        item.ternary.value, item.ternary.mask = bytes([seen.value]), bytes([other])
    else:
        seen = Range(min(number, other), max(number, other))
        item.range.low, item.range.high = bytes([seen.low]), bytes([seen.high])
    try:
        (held,) = decode_fields("t", (field,), [item])
    except StatusError:
        return
    for value in range(1 << width):
        within = value < 1 << bits
        assert matched(held, width, value) == (within and matched(seen, bits, value))
    assert list(encode_fields((field,), (held,))) == [item]
