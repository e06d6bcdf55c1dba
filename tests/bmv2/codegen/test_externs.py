# SPDX-License-Identifier: Apache-2.0
"""Hashes, random numbers, registers, checksums, and the ways through parser, actions and tables."""

import zlib
from typing import Any

import pytest
from bmv2_programs import Json, ProgramBuilder, assign, call, const, extract, field, forwarder, op, std
from bmv2_rig import Rig, ethernet

from bmv2 import P4ProgramError, load_program
from bmv2.entries import Exact, TableEntry

SRC, DST, TYPE = field("eth", "src"), field("eth", "dst"), field("eth", "type")


def source(frame: bytes) -> int:
    return int.from_bytes(frame[6:12])


def hashing(algorithm: str, base: int, size: int) -> str:
    b = forwarder()
    inputs: list[Json] = [SRC, {"type": "hexstr", "value": "0x5", "bitwidth": 4}, TYPE]
    b.document["calculations"].append({"name": "h", "id": 0, "algo": algorithm, "input": inputs})
    calculation = {"type": "calculation", "value": "h"}
    b.document["actions"][1]["primitives"].append(
        call("modify_field_with_hash_based_offset", DST, const(base), calculation, const(size))
    )
    return b.json()


@pytest.mark.parametrize(("base", "size"), [(0, 1 << 32), (0, 8), (5, 100), (0, 0)])
def test_hashes_pack_their_fields_from_the_most_significant_bit(base: int, size: int) -> None:
    rig = Rig(hashing("crc32", base, size))
    frame = bytes(5) + b"\x02" + bytes.fromhex("a1a2a3a4a5a6") + b"\x12\x30"
    rig.switch.receive(1, frame)
    packed = bytes.fromhex("a1a2a3a4a5a6" + "51230" + "0")
    assert int.from_bytes(rig.frames(2)[0][:6]) == base + zlib.crc32(packed) % (size or 1)


def drawing(seed: int, name: str = "s1") -> list[int]:
    b = forwarder([call("modify_field_rng_uniform", SRC, const(0), const(0xFFFE))])
    rig = Rig(b.json(), seed=seed)
    rig.switch.name = name
    rig.switch.load(load_program(b.json()))
    for _ in range(20):
        rig.switch.receive(1, ethernet(2))
    return [source(frame) for frame in rig.frames(2)]


def test_random_numbers_depend_on_seed_and_switch_only() -> None:
    assert drawing(1) == drawing(1)
    assert len({tuple(drawing(1)), tuple(drawing(2)), tuple(drawing(1, "s2"))}) == 3
    assert all(0 <= value <= 0xFFFE for value in drawing(3))


def test_exit_ends_the_pipeline_but_not_the_action() -> None:
    b = forwarder([call("exit"), assign(SRC, const(1))])
    b.do("ingress", "after", [assign(SRC, const(2))])
    b.nodes["ingress"]["tables"][0]["next_tables"] = {"go_act": "after"}
    b.first["egress"] = "egress"
    b.do("egress", "egress", [assign(TYPE, const(3))])
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(2))
    assert source(rig.frames(2)[0]) == 1
    assert rig.frames(2)[0][12:14] == b"\x00\x03"


def test_actions_may_jump_back() -> None:
    more = op("b2d", None, op("<", SRC, op("&", TYPE, const(0xFF))))
    steps = [
        assign(SRC, const(0)),
        call("_jump_if_zero", more, const(4)),
        assign(SRC, op("+", SRC, const(1))),
        call("_jump", const(1)),
        assign(DST, op("+", DST, SRC)),
    ]
    b = forwarder()
    b.add_header("unused", {"a": 8})
    b.first["egress"] = "loop"
    b.do("egress", "loop", steps)
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(2, priority=5))
    assert rig.frames(2)[0][:12] == (7).to_bytes(6) + (5).to_bytes(6)


def test_registers_keep_what_packets_write() -> None:
    register = {"type": "register_array", "value": "r"}
    b = forwarder(
        [
            call("register_read", SRC, register, TYPE),
            call("register_write", register, TYPE, op("+", SRC, const(0x101))),
        ]
    )
    b.document["register_arrays"].append({"name": "r", "id": 0, "size": 4, "bitwidth": 8})
    rig = Rig(b.json())
    for priority in (1, 1, 1, 6):
        rig.switch.receive(1, ethernet(2, priority=priority))
    assert sorted(source(frame) for frame in rig.frames(2)) == [0, 0, 1, 2]
    assert rig.switch.read_register("r") == [0, 3, 0, 0]


def looping_parser(limit: int) -> str:
    """Counts 2-byte items until one is zero; a parser with a loop."""
    b = ProgramBuilder()
    b.add_header("meta", {"n": 48}, metadata=True)
    b.add_header("eth", {"dst": 48, "src": 48, "type": 16})
    b.add_header("item", {"v": 16})
    count: Json = {"op": "set", "parameters": [field("meta", "n"), op("+", field("meta", "n"), const(1))]}
    b.add_state("start", [extract("eth")], default="loop")
    ops = [extract("item"), count] if limit else [count]
    b.add_state("loop", ops, [field("item", "v")], [("0x0000", None, None if limit else "loop")], "loop")
    b.first["ingress"] = "go"
    b.do("ingress", "go", [assign(std("egress_spec"), const(2)), assign(SRC, field("meta", "n"))])
    b.document["deparsers"][0]["order"] = ["eth"]
    return b.json()


def test_parsers_may_loop() -> None:
    rig = Rig(looping_parser(1))
    rig.switch.receive(1, ethernet(2) + b"\x00\x01\x00\x02\x00\x00rest")
    assert rig.frames(2)[0][6:] == (3).to_bytes(6) + bytes(2) + b"rest"


def test_a_parser_that_never_ends_is_stopped() -> None:
    rig = Rig(looping_parser(0))
    rig.switch.receive(1, ethernet(2))
    assert source(rig.frames(2)[0]) > 4000


def test_checksums_are_verified_and_mended() -> None:
    b = ProgramBuilder()
    b.add_header("ip", {"a": 16, "ttl": 8, "b": 8, "sum": 16, "c": 16})
    b.add_state("start", [extract("ip")])
    inputs = [field("ip", name) for name in ("a", "ttl", "b", "c")]
    b.document["calculations"].append({"name": "s", "id": 0, "algo": "csum16", "input": inputs})
    for verify in (True, False):
        b.document["checksums"].append(
            {
                "name": str(verify),
                "type": "generic",
                "target": ["ip", "sum"],
                "calculation": "s",
                "verify": verify,
                "update": not verify,
                "if_cond": op("d2b", None, field("ip", "$valid$")),
            }
        )
    ttl = op("&", op("-", field("ip", "ttl"), const(1)), const(0xFF))
    port = op("+", std("checksum_error"), const(2))
    b.first["ingress"] = "go"
    b.do("ingress", "go", [assign(std("egress_spec"), port), assign(field("ip", "ttl"), ttl)])
    rig = Rig(b.json())
    rig.switch.receive(1, bytes.fromhex("00014000bffe0000"))
    rig.switch.receive(1, bytes.fromhex("000140000bad0000"))
    rig.switch.receive(1, b"")
    assert rig.frames(2) == [bytes.fromhex("00013f00c0fe0000"), b""]
    assert rig.frames(3) == [bytes.fromhex("00013f00c0fe0000")]


def test_hit_and_miss_lead_different_ways() -> None:
    b = forwarder()
    extra: dict[str, Any] = {"next_tables": {"__HIT__": "yes", "__MISS__": "no"}}
    b.add_table("ingress", "t", [("exact", ("eth", "type"))], [0], **extra)
    b.do("ingress", "yes", [assign(SRC, const(1))])
    b.do("ingress", "no", [assign(SRC, const(2))])
    b.nodes["ingress"]["tables"][0]["next_tables"] = {"go_act": "t"}
    rig = Rig(b.json())
    rig.switch.insert("t", TableEntry((Exact(5),), 0, "NoAction", ()))
    rig.switch.receive(1, ethernet(2, priority=5))
    rig.switch.receive(1, ethernet(2, priority=6))
    assert [source(frame) for frame in sorted(rig.frames(2))] == [1, 2]


def test_a_sum_over_a_header_that_only_the_sum_reads() -> None:
    b = forwarder()
    b.add_header("pair", {"high": 12, "low": 4})
    b.document["parsers"][0]["parse_states"][0]["parser_ops"].append(extract("pair"))
    b.document["calculations"].append(
        {"name": "h", "id": 0, "algo": "csum16", "input": [field("pair", "high"), field("pair", "low")]}
    )
    calculation = {"type": "calculation", "value": "h"}
    b.document["actions"][1]["primitives"].append(
        call("modify_field_with_hash_based_offset", SRC, const(0), calculation, const(1 << 16))
    )
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(2) + b"\x12\x34")
    assert source(rig.frames(2)[0]) == 0xFFFF - 0x1234


def test_register_cells_stand_in_expressions() -> None:
    """As BMv2 has them in JSON from P4_14: read by constant or computed index, and assigned to."""
    b = forwarder()
    b.document["register_arrays"].append({"name": "cells", "id": 0, "size": 4, "bitwidth": 8})

    def cell(index: Json) -> Json:
        return {"type": "register", "value": ["cells", index]}

    b.document["actions"][1]["primitives"] += [
        assign(cell(const(1)), op("+", cell(const(1)), const(0xFF))),
        assign(cell(op("&", TYPE, const(0xFF))), const(0x77)),
        assign(SRC, op("+", op("<<", cell(const(1)), const(8)), cell(op("&", TYPE, const(0xFF))))),
    ]
    rig = Rig(b.json())
    rig.switch.write_register("cells", 1, 3)
    rig.switch.receive(1, ethernet(2, priority=0x1202))
    rig.switch.receive(1, ethernet(2, priority=0x1209))
    assert [source(frame) for frame in rig.frames(2)] == [0x0277, 0x0100]
    assert rig.switch.read_register("cells") == [0, 1, 0x77, 0]


def test_a_register_that_is_not_there_is_named() -> None:
    b = forwarder([assign(SRC, {"type": "register", "value": ["cells", const(1)]})])
    with pytest.raises(P4ProgramError, match="no register array is called 'cells'"):
        load_program(b.json())
