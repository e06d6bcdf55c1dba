# SPDX-License-Identifier: Apache-2.0
"""Modifications without an action, the program's own entries and default entries, over real gRPC."""

import json

import pytest
from finsy.proto import p4r
from p4rt_bench import Bench, aged, config_of, member, selected, send_to

METER = "meter_config { cir: 1 cburst: 1 pir: 2 pburst: 2 }"


def with_entries(config, *numbers, const):
    """Give table `aged` of the program initial entries, as p4c does for `entries` and `const entries`."""
    program = json.loads(config.p4_device_config)
    table = next(t for p in program["pipelines"] for t in p["tables"] if t["name"].endswith(".aged"))
    action = next(a for a in program["actions"] if a["name"].endswith(".metered"))
    table["entries"] = [
        {
            "match_key": [{"match_type": "exact", "key": hex(number)}],
            "action_entry": {"action_id": action["id"], "action_data": ["0x2"]},
            "priority": priority,
        }
        for priority, number in enumerate(numbers, 1)
    ]
    table["max_size"] = len(numbers)
    changed = p4r.ForwardingPipelineConfig()
    changed.CopyFrom(config)
    changed.p4_device_config = json.dumps(program).encode()
    info = next(t for t in changed.p4info.tables if t.preamble.name.endswith(".aged"))
    info.is_const_table, info.has_initial_entries = const, True
    return changed


def key(number, rest=""):
    match = f'match {{ field_id: 1 exact {{ value: "\\x{number:02x}" }} }}'
    return f"table_entry {{ table_id: $aged {match} {rest} }}"


def entries(bench, rest=""):
    return [entity.table_entry for entity in bench.read(f"table_entry {{ table_id: $aged {rest} }}")]


def test_a_modification_without_an_action_keeps_it(bench):
    assert bench.write("INSERT", key(1)) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", aged(1, 3, f"{METER} metadata: 'a'")) == "OK"
    assert (
        bench.write("MODIFY", key(1, "metadata: 'b' counter_data { packet_count: 7 byte_count: 9 }")) == "OK"
    )
    (entry,) = entries(bench, "counter_data { } meter_config { }")
    assert entry.action.action.params[0].value == b"\x03"
    assert (entry.metadata, entry.counter_data.packet_count) == (b"b", 7)
    # What is unset takes its default, but for the action and the counter.
    assert not entry.HasField("meter_config")
    assert bench.ports(3, 1) == [3]


def test_a_modification_without_an_action_keeps_an_action_set(bench):
    chosen = (
        f"action_profile_action_set {{ action_profile_actions {{ action {{ {send_to(2)} }} weight: 1 }} }}"
    )
    assert bench.write("INSERT", selected(1, chosen)) == "OK"
    plain = 'table_entry { table_id: $selected match { field_id: 1 exact { value: "\\x01" } } metadata: "m" }'
    assert bench.write("MODIFY", plain) == "OK"
    assert bench.ports(1, 1) == [2]
    (entity,) = bench.read("table_entry { table_id: $selected }")
    assert len(entity.table_entry.action.action_profile_action_set.action_profile_actions) == 1
    assert bench.write("DELETE", plain) == "OK"
    # The profile is free again for members.
    assert bench.write("INSERT", member(1, 2)) == "OK"


@pytest.fixture
def start(rig, connect, entities_config, batch_errors):
    def run(*numbers, const):
        return Bench(rig, connect(), with_entries(entities_config, *numbers, const=const), batch_errors)

    return run


def test_of_a_constant_table_only_direct_resources_can_be_modified(start):
    bench = start(5, 6, const=True)
    assert [entry.is_const for entry in entries(bench)] == [True, True]
    assert bench.write("INSERT", aged(7)) == "PERMISSION_DENIED"
    assert bench.write("DELETE", key(5)) == "PERMISSION_DENIED"
    assert bench.write("MODIFY", aged(5, 2)) == "PERMISSION_DENIED"
    assert bench.write("MODIFY", key(5, "metadata: 'x'")) == "PERMISSION_DENIED"
    assert bench.write("MODIFY", key(8, "counter_data { packet_count: 1 }")) == "NOT_FOUND"
    assert bench.write("MODIFY", key(5, f"{METER} counter_data {{ packet_count: 40 }}")) == "OK"
    read = {
        entry.match[0].exact.value: entry for entry in entries(bench, "counter_data { } meter_config { }")
    }
    assert read[b"\x05"].counter_data.packet_count == 40
    assert read[b"\x05"].meter_config.pir == 2
    assert not read[b"\x06"].HasField("meter_config")
    # The first packet of 3 finds tokens for green, then for yellow, then none.
    assert [frame[3] for _ in range(3) for _, frame in bench.send(3, 5)] == [0, 1, 2]


def test_entries_that_are_not_constant_are_a_start(start, entities_config):
    bench = start(5, 6, const=False)
    assert [entry.is_const for entry in entries(bench)] == [False, False]
    assert bench.ports(3, 5) == [2]
    assert bench.write("INSERT", aged(5)) == "ALREADY_EXISTS"
    assert bench.write("MODIFY", aged(5, 3)) == "OK"
    assert bench.write("DELETE", key(6)) == "OK"
    # P4Info has room for 16 entries, p4c's JSON says 2.
    for number in range(20, 35):
        assert bench.write("INSERT", aged(number, 4)) == "OK"
    assert bench.write("INSERT", aged(40, 4)) == "RESOURCE_EXHAUSTED"
    assert (bench.ports(3, 5), bench.ports(3, 6), bench.ports(3, 34)) == ([3], [], [4])
    before = entries(bench)
    # A reconciliation keeps what clients made of them.
    newer = with_entries(entities_config, 6, 9, const=False)
    newer.p4info.pkg_info.version = "2"
    bench.client.set_config(newer, "RECONCILE_AND_COMMIT")
    assert entries(bench) == before
    assert (bench.ports(3, 5), bench.ports(3, 6)) == ([3], [])


def test_optional_fields_of_initial_entries_are_read_as_optional():
    # p4c writes them as ternary ones.
    from bmv2.entries import Lpm, Optional, Ternary
    from bmv2.server.matches import MatchField, MatchKind, canonical_key

    fields = tuple(
        MatchField(number, kind.value, 8, kind)
        for number, kind in enumerate(
            (MatchKind.OPTIONAL, MatchKind.OPTIONAL, MatchKind.TERNARY, MatchKind.LPM), 1
        )
    )
    program = (Ternary(3, 255), Ternary(0, 0), Ternary(0xFF, 0xF0), Lpm(0xFF, 4))
    assert canonical_key(fields, program) == (Optional(3), Optional(None), Ternary(0xF0, 0xF0), Lpm(0xF0, 4))


def test_entries_beyond_the_mask_of_a_key_are_entries_and_match_nothing(connect, rig, batch_errors):
    """p4c writes `number & 0x0f : exact` as a key with a mask, of which P4Info says nothing."""
    config = config_of("every_entity")
    program = json.loads(config.p4_device_config)
    table = next(t for p in program["pipelines"] for t in p["tables"] if t["name"].endswith(".aged"))
    table["key"][0]["mask"] = "0x0f"
    config.p4_device_config = json.dumps(program).encode()
    bench = Bench(rig, connect(), config, batch_errors)
    assert [bench.write("INSERT", aged(number, port)) for number, port in ((1, 2), (0x11, 3))] == ["OK", "OK"]
    assert (bench.ports(3, 1), bench.ports(3, 0x11)) == ([2], [2])
    assert len(entries(bench)) == 2
    assert bench.write("DELETE", key(1)) == "OK"
    assert (bench.ports(3, 1), bench.ports(3, 0x11)) == ([], [])


def test_is_const_is_the_programs_alone(bench):
    for kind in ("INSERT", "MODIFY", "DELETE"):
        assert bench.write(kind, aged(1, 2, "is_const: true")) == "INVALID_ARGUMENT"


def test_actions_out_of_their_scope_are_denied(bench):
    discard = key(1, "action { action { action_id: $discard } }")
    assert bench.write("INSERT", discard) == "PERMISSION_DENIED"
    assert bench.write("INSERT", key(1, "action { action { action_id: 12345 } }")) == "INVALID_ARGUMENT"


def test_a_default_entry_keeps_its_metadata_until_it_is_reset(controller, config):
    table = next(table for table in config.p4info.tables if table.preamble.name == "switch_identity")
    entry = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
    wanted = p4r.TableEntry(metadata=b"why", controller_metadata=9)
    wanted.MergeFrom(entry)
    wanted.action.action.action_id = table.action_refs[0].id
    wanted.action.action.params.add(param_id=1, value=b"\x07")

    def modified(message):
        controller.write(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(table_entry=message)))
        (read,) = controller.read(p4r.Entity(table_entry=entry))
        return read.table_entry

    assert modified(wanted) == wanted
    assert modified(entry).metadata == b""


def test_two_actions_of_one_name_are_told_apart_by_their_tables(connect):
    """p4c writes an action once more for each direct call, under its name and without its parameters."""
    config = config_of("every_entity")
    program = json.loads(config.p4_device_config)
    action = next(a for a in program["actions"] if a["name"].endswith(".send"))
    bound = json.loads(json.dumps(action).replace('"runtime_data"', '"hexstr"'))
    bound |= {"id": 1 + max(a["id"] for a in program["actions"]), "runtime_data": [], "primitives": []}
    program["actions"].append(bound)
    config.p4_device_config = json.dumps(program).encode()
    client = connect()
    client.arbitrate(1)
    client.set_config(config)
    info = next(a for a in config.p4info.actions if a.preamble.name.endswith(".send"))
    info.params[0].bitwidth += 1
    with pytest.raises(Exception, match="disagree on its parameters"):
        client.set_config(config)
