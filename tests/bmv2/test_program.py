# SPDX-License-Identifier: Apache-2.0
"""Loading programs: what is refused, and with which words."""

import json
from pathlib import Path
from typing import Any

import pytest
from bmv2_programs import ProgramBuilder, assign, call, const, extract, field, forwarder, op, std
from bmv2_rig import Rig, ethernet

from bmv2 import P4ProgramError, load_program

OURS = Path(__file__).parents[2] / "p4" / "build" / "polyrhythm.v1model.json"


def test_our_program_loads_and_is_compiled_once() -> None:
    source = OURS.read_bytes()
    program = load_program(source)
    assert program is load_program(source.decode())
    names = {table.name for table in program.tables()}
    assert {"routing", "ecmp", "next_hop", "queue", "edge", "ecn", "switch_identity"} <= names
    assert program.counters["egress_packets"] == 4096


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        ("[]", "not BMv2 JSON"),
        ("{}", "'__meta__' is missing"),
        ('{"__meta__": {"version": [3, 0]}}', r"version \[3, 0\] is not supported; supported: 2.x"),
        ("[" * 100_000, "nested too deeply"),
        ('{"__meta__": {"version": []}}', "at least 1 items"),
        ('{"__meta__": {"version": [2, 0]}}', "no 'standard_metadata'"),
    ],
)
def test_what_is_not_a_program_is_refused(source: bytes | str, message: str) -> None:
    with pytest.raises(P4ProgramError, match=message):
        load_program(source)


def test_externs_that_v1model_does_not_have_are_named_with_their_place() -> None:
    b = forwarder()
    b.document["extern_instances"] = [{"name": "thing", "type": "wonder"}]
    where = r"program\.extern_instances\[thing\]: an extern object of type 'wonder' cannot be run"
    with pytest.raises(P4ProgramError, match=where):
        load_program(b.json())


def test_an_unsupported_primitive_is_named_with_action_and_source() -> None:
    b = forwarder()
    step = call("teleport", const(1), const(1))
    step["source_info"] = {"filename": "x.p4", "line": 42, "source_fragment": "teleport(...)"}
    b.add_action("beam", [step])
    with pytest.raises(P4ProgramError) as refusal:
        load_program(b.json())
    message = str(refusal.value)
    assert "program.actions[beam].primitives[0] (x.p4:42 `teleport(...)`)" in message
    assert "'teleport' in action 'beam' is not supported" in message
    assert "supported: _jump, _jump_if_zero, add_header, assert, assign" in message


def broken(change: str) -> ProgramBuilder:
    b = forwarder()
    port = std("egress_spec")
    match change:
        case "field":
            b.add_action("a", [assign(port, field("eth", "colour"))])
        case "header":
            b.add_action("a", [assign(port, field("ipv9", "dst"))])
        case "operator":
            b.add_action("a", [assign(port, op("**", const(1), const(2)))])
        case "kinds":
            b.add_action("a", [assign(port, op("+", const(1), op("==", const(1), const(1))))])
        case "truth":
            b.add_action("a", [assign(port, op("==", const(1), const(1)))])
        case "arity":
            b.add_action("a", [call("assign", port)])
        case "jump":
            b.add_action("a", [call("_jump", const(9))])
        case "param":
            b.add_action("a", [assign(port, {"type": "runtime_data", "value": 2})], one=9)
        case "digits":
            b.add_action("a", [assign(port, {"type": "hexstr", "value": "0xfg"})])
        case "constant":
            b.add_action("a", [assign(port, {"type": "hexstr", "value": "0x" + "f" * 5000})])
        case "counter":
            b.add_action("a", [call("count", {"type": "counter_array", "value": "c"}, const(0))])
        case "match":
            b.add_table("ingress", "t", [("fuzzy", ("eth", "dst"))], [0])
        case "two_lpm":
            b.add_table("ingress", "t", [("lpm", ("eth", "dst")), ("lpm", ("eth", "src"))], [0])
        case "profile":
            b.add_table("ingress", "t", [], [0], type="indirect", action_profile="p")
        case "next":
            b.add_table("ingress", "t", [], [0], next_tables={})
        case "default":
            b.add_table("ingress", "t", [], [0], default=(0, [7]))
        case "cycle":
            b.add_table("ingress", "t", [], [0], next_node="u")
            b.add_table("ingress", "u", [], [0], next_node="t")
            b.first["ingress"] = "t"
        case "node":
            b.add_table("ingress", "t", [], [0], next_node="nowhere")
            b.first["ingress"] = "t"
        case "state":
            b.add_state("other", [], default="nowhere")
        case "bytes":
            b.add_header("odd", {"a": 7})
        case "width":
            b.add_header("odd", {"a": 0})
        case "wide":
            b.add_header("odd", {"a": 8, "b": 1 << 40})
        case "register":
            b.document["register_arrays"] = [{"name": "r", "id": 0, "size": 1, "bitwidth": 1 << 40}]
        case "cells":
            b.document["register_arrays"] = [{"name": "r", "id": 0, "size": 1 << 40, "bitwidth": 8}]
        case "long":
            b.document["header_types"][-1]["fields"].append(["options", "*"])
            b.document["header_types"][-1]["max_length"] = 1 << 40
        case "cast":
            b.add_action("a", [assign(port, op("two_comp_mod", const(1), const(1 << 40)))])
        case "look":
            wide = {"type": "lookahead", "value": [0, 1 << 40]}
            b.add_state("s", [], [wide], [], None)
        case "deep":
            value = const(1)
            for _ in range(300):
                value = op("+", value, field("eth", "type"))
            b.add_action("a", [assign(port, value)])
            b.do("ingress", "deep", [assign(port, value)])
            b.first["ingress"] = "deep"
        case "varbit":
            b.document["header_types"][-1]["fields"].append(["options", "*"])
        case "algorithm":
            b.document["calculations"].append({"name": "c", "id": 0, "algo": "sha1", "input": []})
        case "input":
            part: dict[str, Any] = {"type": "weather", "value": None}
            b.document["calculations"].append({"name": "c", "id": 0, "algo": "csum16", "input": [part]})
        case "stack":
            b.document["header_stacks"] = [{"name": "s", "id": 0, "header_type": "eth_t", "header_ids": [77]}]
        case "list":
            b.add_action("a", [call("resubmit", const(9))])
        case "index":
            b.document["header_stacks"] = [{"name": "s", "id": 0, "header_type": "eth_t", "header_ids": [0]}]
            b.add_action("a", [call("push", {"type": "header_stack", "value": "s"}, field("eth", "type"))])
        case "set":
            b.document["parse_vsets"] = [{"name": "v", "id": 0, "compressed_bitwidth": 7, "max_size": 4}]
            b.add_state("s", [], [field("eth", "type")], [])
            way = {"type": "parse_vset", "value": "v", "mask": None, "next_state": None}
            b.document["parsers"][0]["parse_states"][-1]["transitions"].append(way)
        case "meter":
            b.document["meter_arrays"] = [
                {"name": "m", "id": 0, "type": "wishes", "rate_count": 2, "size": 1}
            ]
        case "selector":
            b.nodes["ingress"]["tables"][0] |= {"type": "indirect_ws", "action_profile": "p"}
            b.profiles["ingress"].append({"name": "p", "id": 0, "max_size": 4})
    return b


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("field", "header 'eth' has no field 'colour'"),
        ("header", "no header is called 'ipv9'"),
        ("operator", r"operator '\*\*' is not supported; supported: \+"),
        ("kinds", r"operator '\+' mixes integers and truth values"),
        ("truth", "expected an integer, got a truth value"),
        ("arity", "primitive 'assign' takes 2 arguments, got 1"),
        ("jump", "must jump to one of the steps 0 to 1"),
        ("param", "the action has 1 parameters"),
        ("digits", "expected hexadecimal digits, got '0xfg'"),
        ("constant", "a constant has at most 14000 bits, not 20000"),
        ("counter", "no counter array is called 'c'"),
        ("match", "match kind 'fuzzy' is not supported; supported: exact"),
        ("two_lpm", "one LPM field only"),
        ("profile", "no action profile is called 'p'"),
        ("next", "no next node for action 'NoAction'"),
        ("default", "action 'NoAction' takes 0 parameters, got 1"),
        ("cycle", "'t' comes back to itself"),
        ("node", "no table or conditional is called 'nowhere'"),
        ("state", "state 'other' goes to an unknown state 'nowhere'"),
        ("bytes", "a header must fill whole bytes, 'odd_t' has 7 bits"),
        ("width", "a field has at least 1 bit, not 0"),
        ("wide", r"header_types\[odd_t\]\.fields\[1\]: field 'b' has 1099511627776 bits, at most 65536 are"),
        ("register", r"register_arrays\[r\]\.bitwidth: a width is 0 to 65536 bits, not 1099511627776"),
        ("cells", r"register_arrays\[r\]\.size: an array has 0 to 16777216 cells, not 1099511627776"),
        ("long", r"field 'options' has \d{13} bits, at most 65536 are"),
        ("cast", "operator 'two_comp_mod' needs a constant width of 1 to 65536"),
        ("look", "a width is 0 to 65536 bits, not 1099511627776"),
        ("deep", "nested too deeply to be compiled"),
        ("varbit", "'max_length' is missing"),
        ("algorithm", "hash 'sha1' is not supported; supported: cksum16, crc16"),
        ("input", "input of type 'weather' is not supported; supported: field, header, hexstr, payload"),
        ("stack", "nothing has the id 77"),
        ("list", "'resubmit' names a field list that the program does not have"),
        ("index", "'push' needs a constant number of elements"),
        ("set", "value set 'v' has 7 bits, the key 16"),
        ("meter", "a meter counts packets or bytes, not 'wishes'"),
        ("selector", "action profile 'p' has no selector"),
    ],
)
def test_broken_programs_are_refused_where_they_break(change: str, message: str) -> None:
    with pytest.raises(P4ProgramError, match=message):
        load_program(broken(change).json())


def test_missing_core_errors_get_numbers_after_the_programs_own() -> None:
    b = forwarder()
    b.document["errors"] = [["PacketTooShort", 4], ["Mine", 9]]
    errors = load_program(b.json()).ir.errors
    assert errors["PacketTooShort"] == 4
    assert sorted(errors.values()) == [4, 9, 10, 11, 12, 13, 14, 15]


def test_a_constant_table_has_its_entries_in_order_of_priority() -> None:
    b = forwarder()
    send = b.add_action("send", [assign(std("egress_spec"), {"type": "runtime_data", "value": 0})], port=9)
    entries = [
        {
            "match_key": [{"match_type": "ternary", "key": key, "mask": "0xffff"}],
            "action_entry": {"action_id": send, "action_data": [hex(port)]},
            "priority": priority,
        }
        for key, port, priority in (("0x0800", 2, 1), ("0x86dd", 3, 2))
    ]
    b.add_table("ingress", "t", [("ternary", ("eth", "type"))], [0, send], entries=entries)
    table = next(t for t in load_program(b.json()).tables() if t.name == "t")
    assert [(e.priority, e.params) for e in table.initial_entries or ()] == [(2, (2,)), (1, (3,))]


def test_long_ladders_of_conditions_and_states_are_no_obstacle() -> None:
    b = ProgramBuilder()
    b.add_header("eth", {"dst": 48, "src": 48, "type": 16})
    b.add_header("item", {"v": 8})
    b.add_state("start", [extract("eth")], default="s0")
    for i in range(150):
        default = f"s{i + 1}" if i < 149 else None
        b.add_state(f"s{i}", [extract("item")], [field("item", "v")], [("0x00", None, None)], default)
        b.branch("ingress", f"n{i}", op("==", field("eth", "type"), const(i)), f"hit{i}", f"n{i + 1}")
        b.do("ingress", f"hit{i}", [assign(std("egress_spec"), const(i))])
    b.do("ingress", "n150", [])
    b.first["ingress"] = "n0"
    b.document["deparsers"][0]["order"] = ["eth"]
    rig = Rig(b.json())
    rig.switch.receive(1, ethernet(0, priority=3) + b"\x01" * 140 + b"\x00rest")
    assert rig.sent == [(0, 3, ethernet(0, priority=3) + b"rest")]


def test_the_source_needs_no_order_of_keys() -> None:
    document = json.loads(forwarder().json())
    shuffled = dict(reversed(document.items()))
    assert len(list(load_program(json.dumps(shuffled)).tables())) == 1
