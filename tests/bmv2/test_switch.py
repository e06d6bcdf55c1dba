# SPDX-License-Identifier: Apache-2.0
"""The embedded switch: BMv2's meanings of metadata, counters, drops, multicast and externs."""

import pytest
from bmv2_programs import (
    Json,
    ProgramBuilder,
    assign,
    call,
    const,
    extract,
    field,
    forwarder,
    header,
    op,
    param,
    std,
)
from bmv2_rig import Rig, ethernet

from bmv2.entries import Exact, TableEntry, TableEntryError

SRC, DST, TYPE = field("eth", "src"), field("eth", "dst"), field("eth", "type")


def source(frame: bytes) -> int:
    return int.from_bytes(frame[6:12])


def shown(value: Json, egress: bool = False) -> ProgramBuilder:
    """The forwarder with a value written into the source address, in ingress or egress."""
    step = assign(SRC, value)
    b = forwarder([] if egress else [step])
    if egress:
        b.first["egress"] = "show"
        b.do("egress", "show", [step])
    return b


def result(value: Json, egress: bool = False, frame: bytes = ethernet(2)) -> int:
    rig = Rig(shown(value, egress).json())
    rig.clock.now = 5_000_999
    rig.switch.receive(3, frame)
    return source(rig.frames(2)[0])


def test_untouched_frames_leave_as_they_came() -> None:
    rig = Rig(forwarder().json())
    frame = ethernet(4, priority=3, size=60)
    rig.switch.receive(1, frame)
    assert rig.sent == [(0, 4, frame)]


@pytest.mark.parametrize(
    ("name", "egress", "expected"),
    [
        ("ingress_port", False, 3),
        ("ingress_port", True, 3),
        ("packet_length", False, 14),
        ("ingress_global_timestamp", False, 5000),
        ("ingress_global_timestamp", True, 5000),
        ("egress_global_timestamp", True, 5000),
        ("enq_timestamp", True, 5000),
        ("egress_port", True, 2),
        ("egress_port", False, 0),
        ("egress_spec", True, 0),  # drop_port + 1 in 9 bits
        ("instance_type", True, 0),
        ("parser_error", False, 0),
    ],
)
def test_standard_metadata(name: str, egress: bool, expected: int) -> None:
    assert result(std(name), egress) == expected


def test_a_frame_cut_short_is_a_parser_error_and_its_bytes_stay_payload() -> None:
    b = ProgramBuilder()
    b.add_header("eth", {"dst": 48, "src": 48, "type": 16})
    b.add_header("more", {"x": 32})
    b.add_state("start", [extract("eth")], default="next")
    b.add_state("next", [extract("more")])
    b.first["ingress"] = "go"
    b.do("ingress", "go", [assign(std("egress_spec"), const(2)), assign(SRC, std("parser_error"))])
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(2) + b"abc")
    rig.switch.receive(1, b"short")
    first, second = rig.frames(2)
    assert (source(first), first[14:]) == (1, b"abc")
    assert second == b"short"


def test_fields_wrap_at_their_width_and_signed_ones_keep_their_sign() -> None:
    assert result(op("-", const(0), const(1))) == (1 << 48) - 1
    assert result(op("+", const((1 << 48) - 1), const(2))) == 1
    b = shown(op("b2d", None, op("<", field("meta", "s"), const(0))))
    b.add_header("meta", {"s": (8, True)}, metadata=True)
    action = b.document["actions"][1]["primitives"]
    action.insert(0, assign(field("meta", "s"), const(0xFF)))
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(2))
    assert source(rig.frames(2)[0]) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (op("two_comp_mod", const(255), const(8)), (1 << 48) - 1),
        (op("usat_cast", op("-", const(1), const(2)), const(8)), 0),
        (op("usat_cast", const(300), const(8)), 255),
        (op("sat_cast", const(300), const(8)), 127),
        (op("?", const(7), const(8), op("d2b", None, const(0))), 8),
        (op("~", None, const(0)), (1 << 48) - 1),
        (op("<<", const(1), op("&", TYPE, const(0))), 1),
        (op("<<", const(1), op("+", TYPE, const(1 << 40))), 0),
        (op("/", const(7), op("&", TYPE, const(0))), 0),
        (op("-", None, const(1)), (1 << 48) - 1),
    ],
)
def test_operators(value: Json, expected: int) -> None:
    assert result(value) == expected


def test_added_headers_start_at_zero_and_count_in_the_length() -> None:
    b = forwarder()
    b.add_header("tag", {"a": 8, "b": 8})
    b.document["deparsers"][0]["order"] = ["tag", "eth"]
    b.document["actions"][1]["primitives"] += [
        assign(field("tag", "b"), const(9)),
        call("add_header", header("tag")),
        assign(field("tag", "a"), const(7)),
        call("add_header", header("tag")),
    ]
    b.first["egress"] = "show"
    b.do("egress", "show", [assign(SRC, std("packet_length"))])
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(2, size=20))
    frame = rig.frames(2)[0]
    assert frame[:2] == b"\x07\x00"
    assert source(frame[2:]) == 22


def test_tables_read_fields_of_invalid_headers_as_zero() -> None:
    b = forwarder([call("remove_header", header("eth"))])
    hit = b.add_action("hit", [assign(std("egress_spec"), param(0))], port=9)
    b.add_table("ingress", "t", [("exact", ("eth", "src"))], [hit, 0])
    b.nodes["ingress"]["tables"][0]["next_tables"] = {"go_act": "t"}
    rig = Rig(b.json())
    rig.switch.insert("t", TableEntry((Exact(0),), 0, "hit", (3,)))
    rig.switch.receive(1, bytes(5) + b"\x02" + b"\xff" * 6 + bytes(2) + b"payload")
    assert rig.sent == [(0, 3, b"payload")]


def test_a_table_without_a_default_does_nothing_on_a_miss() -> None:
    b = forwarder()
    mark = b.add_action("mark", [assign(SRC, const(1))])
    b.add_table(
        "ingress",
        "t",
        [("exact", ("eth", "type"))],
        [mark],
        default_entry=None,
        base_default_next="missed",
        next_tables={"mark": None},
    )
    b.do("ingress", "missed", [assign(SRC, const(2))])
    b.nodes["ingress"]["tables"][0]["next_tables"] = {"go_act": "t"}
    rig = Rig(b.json())
    rig.switch.insert("t", TableEntry((Exact(1),), 0, "mark", ()))
    rig.switch.receive(1, ethernet(2, priority=1))
    rig.switch.receive(1, ethernet(2, priority=0))
    assert [source(frame) for frame in rig.frames(2)] == [1, 2]


def test_the_kind_of_packet_is_the_targets_to_say() -> None:
    b = forwarder([assign(std("instance_type"), const(9))])
    b.first["egress"] = "show"
    b.do("egress", "show", [assign(SRC, std("instance_type"))])
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(2))
    assert source(rig.frames(2)[0]) == 0


def test_what_the_parser_wrote_gives_way_to_what_it_extracts() -> None:
    b = forwarder()
    first: Json = {"op": "set", "parameters": [DST, const(9)]}
    b.document["parsers"][0]["parse_states"][0]["parser_ops"].insert(0, first)
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(2, size=20))
    assert rig.frames(2) == [ethernet(2, size=20)]


def test_written_and_never_read_fields_keep_their_sign_bits() -> None:
    b = forwarder([assign(field("tail", "s"), const(0xFFFE)), assign(field("tail", "t"), const(0x1FF))])
    b.add_header("tail", {"s": (16, True), "t": (8, True), "rest": 8})
    b.document["parsers"][0]["parse_states"][0]["parser_ops"].append(extract("tail"))
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(2) + b"abcdef")
    assert rig.frames(2)[0][14:] == b"\xff\xfe\xffdef"


def test_drops() -> None:
    rig = Rig(forwarder([call("mark_to_drop", header("standard_metadata"))]).json())
    rig.switch.receive(1, ethernet(2))
    egress = forwarder()
    egress.first["egress"] = "drop"
    egress.do("egress", "drop", [call("mark_to_drop", header("standard_metadata"))])
    late = Rig(egress.json())
    late.switch.receive(1, ethernet(2))
    assert rig.sent == late.sent == []
    assert late.switch.ports[2].queues[0].packets == 0


def test_a_port_that_is_not_there_gets_nothing_and_is_counted() -> None:
    rig = Rig(forwarder().json(), queues=4)
    rig.switch.receive(1, ethernet(200))
    rig.switch.receive(1, ethernet(2, priority=4))
    assert rig.sent == []
    assert rig.switch.misdirected == 2
    with pytest.raises(KeyError, match="no port 9"):
        rig.switch.receive(9, ethernet(2))


def test_the_cpu_port_both_ways() -> None:
    rig = Rig(forwarder().json(), rate_bps=8_000, cpu_port=100)
    rig.switch.receive(100, ethernet(2))
    rig.switch.receive(1, ethernet(100))
    assert rig.cpu == [ethernet(100)]
    rig.clock.run()
    assert rig.frames(2) == [ethernet(2)]


def counting(size: int = 8, index: Json = TYPE) -> str:
    b = forwarder()
    b.document["counter_arrays"].append({"name": "c", "id": 0, "size": size, "is_direct": False})
    counter = {"type": "counter_array", "value": "c"}
    b.add_header("tag", {"a": 64})
    b.document["actions"][1]["primitives"].append(call("add_header", header("tag")))
    b.first["egress"] = "count"
    b.do("egress", "count", [call("count", counter, index)])
    return b.json()


def test_counters_count_bytes_as_received_even_in_egress() -> None:
    rig = Rig(counting())
    for size in (20, 30):
        rig.switch.receive(1, ethernet(2, priority=3, size=size))
    assert rig.switch.read_counter("c")[3] == (2, 50)
    rig.switch.write_counter("c", 3, 7, 8)
    rig.switch.receive(1, ethernet(2, priority=3, size=14))
    assert rig.switch.read_counter("c")[3] == (8, 22)


def test_a_counter_is_left_alone_beyond_its_end() -> None:
    rig = Rig(counting(size=2))
    rig.switch.receive(1, ethernet(2, priority=3))
    assert rig.switch.read_counter("c") == [(0, 0), (0, 0)]
    with pytest.raises(TableEntryError, match="has 2 indices, got 2"):
        rig.switch.write_counter("c", 2, 0, 0)
    with pytest.raises(TableEntryError, match="no counter 'd'"):
        rig.switch.read_counter("d")


def test_an_index_is_checked_to_the_last() -> None:
    rig = Rig(counting(size=7, index=op("&", TYPE, const(7))))
    for priority in (6, 7):
        rig.switch.receive(1, ethernet(2, priority=priority))
    assert [packets for packets, _ in rig.switch.read_counter("c")] == [0] * 6 + [1]


def test_loading_again_clears_everything() -> None:
    rig = Rig(counting(), rate_bps=8_000)
    for _ in range(2):
        rig.switch.receive(1, ethernet(2, priority=3))
    program = rig.switch.program
    assert program is not None
    rig.switch.load(program)
    assert rig.switch.read_counter("c")[3] == (0, 0)
    assert rig.switch.ports[2].queues[3].depth == 0
    rig.clock.run()
    assert len(rig.sent) == 1


def test_multicast_makes_a_copy_for_each_replica() -> None:
    b = forwarder([assign(std("mcast_grp"), const(7))])
    b.first["egress"] = "show"
    kind = op("<<", std("instance_type"), const(16))
    b.do("egress", "show", [assign(SRC, op("|", kind, std("egress_rid")))])
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(2))
    rig.switch.set_multicast_group(7, ((2, 10), (3, 11), (3, 12)))
    rig.switch.receive(1, ethernet(4))
    assert [(port, source(frame)) for _, port, frame in rig.sent] == [
        (2, 5 << 16 | 10),
        (3, 5 << 16 | 11),
        (3, 5 << 16 | 12),
    ]
    rig.switch.set_multicast_group(7, ())
    rig.switch.receive(1, ethernet(4))
    assert len(rig.sent) == 3
