# SPDX-License-Identifier: Apache-2.0
"""finsy, the client that the controller uses, against our server; and rules of the specification, one by one.

docs/p4runtime-conformance.tsv lists the rules with their tests.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4i, p4r
from p4rt_bench import Bench, aged, group, member, meter, selected, send_to

ROOT = Path(__file__).parents[3]


def test_a_whole_session(rig):
    rig.wires[1] = 2
    done = subprocess.run(
        [
            sys.executable,
            Path(__file__).parents[2] / "rigs" / "finsy_session.py",
            rig.server.address,
            ROOT / "p4/build/polyrhythm.v1model.p4info.txtpb",
            ROOT / "p4/build/polyrhythm.v1model.json",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {
        "primary": True,
        "version": "1.5.0",
        "ports": {"1": [1, True], "2": [2, True]},
        "error": {"0": "ALREADY_EXISTS"},
        "entries": ["next_hop", "routing"],
        "cells": 4096,
        "packet": [2, 2, True],
        "left": 0,
    }


def code_of(call, *args, **kwargs):
    """The name of the status that a call ends with."""
    try:
        call(*args, **kwargs)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def test_an_entity_of_no_kind_cannot_be_read(controller):
    assert code_of(controller.read, p4r.Entity()) == "INVALID_ARGUMENT"


def test_capabilities_of_an_unknown_device(connect):
    stub = connect().stub
    assert code_of(stub.Capabilities, p4r.CapabilitiesRequest(device_id=9)) == "NOT_FOUND"
    assert stub.Capabilities(p4r.CapabilitiesRequest(device_id=1)).p4runtime_api_version == "1.5.0"


def test_pushes_of_unknown_roles_and_devices(connect):
    client = connect()
    client.arbitrate(3)
    push = p4r.SetForwardingPipelineConfigRequest(
        device_id=1, role="nobody", election_id=p4r.Uint128(low=3), action="COMMIT"
    )
    assert code_of(client.stub.SetForwardingPipelineConfig, push) == "NOT_FOUND"
    push.role, push.device_id = "", 9
    assert code_of(client.stub.SetForwardingPipelineConfig, push) == "NOT_FOUND"


def test_a_request_beyond_grpcs_default_size(controller):
    """Of 5 MiB, where gRPC takes 4 unless told otherwise."""
    unspecified = p4r.Update(
        entity=p4r.Entity(table_entry=p4r.TableEntry(table_id=1, metadata=bytes(5 << 20)))
    )
    assert code_of(controller.write, unspecified) == "UNKNOWN"


def test_an_error_about_a_large_value_or_name_reaches_its_client(controller, p4info):
    """gRPC's clients take 8 KiB of an error unless told otherwise."""
    table = next(table for table in p4info.tables if table.preamble.name == "routing")
    entry = p4r.TableEntry(table_id=table.preamble.id)
    entry.match.add(field_id=1).lpm.CopyFrom(p4r.FieldMatch.LPM(value=b"\xff" * (3 << 20), prefix_len=32))
    assert code_of(controller.read, p4r.Entity(table_entry=entry)) == "OUT_OF_RANGE"
    stranger = p4r.WriteRequest(device_id=1, role="r" * (3 << 20), election_id=p4r.Uint128(low=1000))
    assert code_of(controller.stub.Write, stranger) == "NOT_FOUND"


def test_a_member_has_an_action(bench):
    bare = "action_profile_member { action_profile_id: $choice member_id: 1 }"
    assert bench.write("INSERT", bare) == "INVALID_ARGUMENT"
    assert bench.write("DELETE", bare) == "NOT_FOUND"
    assert bench.write("INSERT", member(1, 2)) == "OK"
    assert bench.write("MODIFY", bare) == "INVALID_ARGUMENT"


def test_a_member_that_an_entry_uses_stays(bench):
    assert bench.write("INSERT", member(1, 2)) == "OK"
    assert bench.write("INSERT", selected(1, "action_profile_member_id: 1")) == "OK"
    assert bench.write("DELETE", member(1, 2)) == "FAILED_PRECONDITION"


def test_groups_that_exist_or_do_not(bench):
    assert bench.write("MODIFY", group(1)) == "NOT_FOUND"
    assert bench.write("DELETE", group(1)) == "NOT_FOUND"
    assert bench.write("INSERT", group(1)) == "OK"
    assert bench.write("INSERT", group(1)) == "ALREADY_EXISTS"


def action_set(*actions, rest=""):
    listed = " ".join(f"action_profile_actions {{ {text} }}" for text in actions)
    return selected(1, f"action_profile_action_set {{ {listed} {rest} }}")


@pytest.fixture
def with_choice(rig, connect, entities_config, batch_errors):
    """Run the program with other properties of its selector."""

    def run(**properties):
        config = p4r.ForwardingPipelineConfig()
        config.CopyFrom(entities_config)
        choice = next(item for item in config.p4info.action_profiles if item.preamble.name.endswith("choice"))
        choice.MergeFrom(p4i.ActionProfile(**properties))
        return Bench(rig, connect(), config, batch_errors)

    return run


def test_weights_where_they_are_disallowed(with_choice):
    bench = with_choice(weights_disallowed=True)
    sends = [f"action {{ {send_to(port)} }}" for port in (2, 3)]
    assert bench.write("INSERT", action_set(f"{sends[0]} weight: 1")) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", action_set(*sends)) == "OK"
    assert bench.read("table_entry { table_id: $selected }") == [bench.entity(action_set(*sends))]
    assert {port for colour in range(16) for port in bench.ports(1, 1, 0, colour)} == {2, 3}
    assert bench.write("DELETE", action_set(*sends)) == "OK"
    assert bench.write("INSERT", member(1, 2)) == "OK"
    assert bench.write("INSERT", group(1, "member_id: 1 weight: 1")) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", group(1, "member_id: 1")) == "OK"
    assert bench.read("action_profile_group { }") == [bench.entity(group(1, "member_id: 1"))]


def test_a_watch_port_exists(bench):
    assert bench.write("INSERT", member(1, 2)) == "OK"
    for port in ("\\x05", "\\x00", "\\x01\\x00\\x00"):
        watched = group(1, f"member_id: 1 weight: 1 watch_port: '{port}'")
        assert bench.write("INSERT", watched) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", group(1, "member_id: 1 weight: 1 watch_port: '\\x04'")) == "OK"


def test_max_size_is_within_max_group_size(with_choice):
    bench = with_choice(max_group_size=2)
    assert [bench.write("INSERT", group(1, size=size)) for size in (0, 3, 2)] == [
        *["INVALID_ARGUMENT"] * 2,
        "OK",
    ]
    for number in (1, 2, 3):
        assert bench.write("INSERT", member(number, 2)) == "OK"
    three = [f"member_id: {number} weight: 1" for number in (1, 2, 3)]
    assert bench.write("MODIFY", group(1, *three, size=2)) == "RESOURCE_EXHAUSTED"
    assert bench.write("MODIFY", group(1, *three[:2], size=2)) == "OK"


def test_a_weight_is_at_most_max_member_weight(with_choice):
    bench = with_choice(sum_of_members=p4i.ActionProfile.SumOfMembers(max_member_weight=3))
    sends = f"action {{ {send_to(2)} }}"
    assert bench.write("INSERT", action_set(f"{sends} weight: 4")) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", action_set(f"{sends} weight: 0")) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", action_set(f"{sends} weight: 3")) == "OK"


def test_weights_that_no_switch_can_hold(bench):
    assert bench.write("INSERT", member(1, 2)) == "OK"
    assert bench.write("INSERT", member(2, 2)) == "OK"
    huge = ["member_id: 1 weight: 2147483647", "member_id: 2 weight: 1"]
    assert bench.write("INSERT", group(1, *huge)) == "RESOURCE_EXHAUSTED"
    assert bench.write("INSERT", group(1, size=1 << 30)) == "RESOURCE_EXHAUSTED"
    half = [f"member_id: {number} weight: 32768" for number in (1, 2)]
    assert bench.write("INSERT", group(1, *half)) == "OK"
    assert bench.write("MODIFY", group(1, half[0], "member_id: 2 weight: 32769")) == "RESOURCE_EXHAUSTED"
    for written in (f"DELETE {group(1)}", f"DELETE {member(1, 2)}", f"DELETE {member(2, 2)}"):
        assert bench.write(*written.split(" ", 1)) == "OK"
    sends = f"action {{ {send_to(2)} }} weight: 65537"
    assert bench.write("INSERT", action_set(sends)) == "RESOURCE_EXHAUSTED"


def test_the_selectors_own_mode_and_size_are_taken(bench):
    sends = f"action {{ {send_to(2)} }} weight: 1"
    for rest in ("action_selection_mode: RANDOM", "size_semantics: SUM_OF_MEMBERS"):
        assert bench.write("INSERT", action_set(sends, rest=rest)) == "UNIMPLEMENTED"
    own = action_set(sends, rest="action_selection_mode: HASH size_semantics: SUM_OF_WEIGHTS")
    assert bench.write("INSERT", own) == "OK"
    assert bench.read("table_entry { table_id: $selected }") == [bench.entity(own)]


def test_direct_resources_take_modify_only(bench):
    assert bench.write("INSERT", aged(1)) == "OK"
    key = 'table_entry { table_id: $aged match { field_id: 1 exact { value: "\\x01" } } }'
    for entity in (f"direct_counter_entry {{ {key} }}", f"direct_meter_entry {{ {key} }}"):
        codes = [bench.write(kind, entity) for kind in ("INSERT", "DELETE", "MODIFY")]
        assert codes == ["INVALID_ARGUMENT", "INVALID_ARGUMENT", "OK"]


def test_indices_of_counters(controller, p4info):
    counter = p4info.counters[0]
    for index, said in ((-1, "INVALID_ARGUMENT"), (counter.size, "OUT_OF_RANGE"), (0, "OK")):
        entry = p4r.CounterEntry(counter_id=counter.preamble.id, index=p4r.Index(index=index))
        assert code_of(controller.read, p4r.Entity(counter_entry=entry)) == said


def test_indices_of_registers(bench):
    def cell(index, data="bitstring: '\\x01'"):
        return f"register_entry {{ register_id: $seen index {{ index: {index} }} data {{ {data} }} }}"

    said = [bench.write("MODIFY", cell(index)) for index in (-1, 4, 0)]
    assert said == ["INVALID_ARGUMENT", "OUT_OF_RANGE", "OK"]
    assert bench.write("MODIFY", cell(0, "bool: true")) == "INVALID_ARGUMENT"


def test_colour_counters_are_not_supported(bench):
    assert bench.read("meter_entry { counter_data { } }") == "UNIMPLEMENTED"
    assert (
        bench.write("MODIFY", "meter_entry { meter_id: $index_meters counter_data { } }") == "UNIMPLEMENTED"
    )


@pytest.mark.parametrize(
    ("kind", "config", "said"),
    [
        ("SINGLE_RATE_THREE_COLOR", "cir: 1 cburst: 1 pir: 2 pburst: 1", "INVALID_ARGUMENT"),
        ("SINGLE_RATE_THREE_COLOR", "cir: 1 cburst: 1 pir: 1 pburst: 2", "INVALID_ARGUMENT"),
        ("SINGLE_RATE_TWO_COLOR", "cir: 1 cburst: 1 pir: 1 pburst: 2", "INVALID_ARGUMENT"),
        ("SINGLE_RATE_TWO_COLOR", "cir: 1 cburst: 1 pir: 2 pburst: 1", "INVALID_ARGUMENT"),
        ("SINGLE_RATE_TWO_COLOR", "cir: 1 cburst: 1 pir: 1 pburst: 1 eburst: 1", "INVALID_ARGUMENT"),
        ("SINGLE_RATE_TWO_COLOR", "cir: 1 cburst: 1 pir: 1 pburst: 1", "OK"),
        ("TWO_RATE_THREE_COLOR", "cir: 1 cburst: 1 pir: 2 pburst: 1", "OK"),
    ],
)
def test_meter_configurations_by_type(rig, connect, entities_config, batch_errors, kind, config, said):
    pipeline = p4r.ForwardingPipelineConfig()
    pipeline.CopyFrom(entities_config)
    pipeline.p4info.meters[0].spec.type = p4i.MeterSpec.Type.Value(kind)
    bench = Bench(rig, connect(), pipeline, batch_errors)
    assert bench.write("MODIFY", meter(1, f"config {{ {config} }}")) == said


def multicast(*replicas, rest=""):
    listed = " ".join(f"replicas {{ {text} }}" for text in replicas)
    entry = f"multicast_group_entry {{ multicast_group_id: 1 {listed} {rest} }}"
    return f"packet_replication_engine_entry {{ {entry} }}"


def test_replicas_of_a_group(bench):
    one, backup = 'port: "\\x02" instance: 1', 'backup_replicas { port: "\\x03" instance: 1 }'
    assert bench.write("INSERT", multicast('port: "\\x02" instance: 65536')) == "INVALID_ARGUMENT"
    same = f'{one} backup_replicas {{ port: "\\x02" instance: 2 }}'
    assert bench.write("INSERT", multicast(same)) == "INVALID_ARGUMENT"
    clash = multicast(f"{one} {backup}", 'port: "\\x03" instance: 1')
    assert bench.write("INSERT", clash) == "INVALID_ARGUMENT"
    wanted = multicast(f"{one} {backup}", 'port: "\\x03" instance: 2', rest="metadata: 'mine'")
    assert bench.write("INSERT", wanted) == "OK"
    assert bench.read(multicast()) == [bench.entity(wanted)]


def test_replicas_of_a_session(bench):
    def session(replica):
        entry = f"clone_session_entry {{ session_id: 1 replicas {{ {replica} }} }}"
        return f"packet_replication_engine_entry {{ {entry} }}"

    assert bench.write("INSERT", session('port: "\\x02" instance: 65536')) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", session('port: "\\x00" instance: 1')) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", session('port: "\\x02" instance: 1')) == "OK"


def test_batches_of_two_clients_do_not_mix(controller, connect, p4info):
    """Two primaries, of two roles, write the same ten entries; every read finds those of one batch, or none."""
    other = connect()
    other.arbitrate(5, role="second")
    table = next(table for table in p4info.tables if table.preamble.name == "next_hop")
    forward = next(action for action in p4info.actions if action.preamble.name == "forward")

    def batch(kind, mark):
        updates = []
        for number in range(1, 11):
            entry = p4r.TableEntry(table_id=table.preamble.id, metadata=mark)
            entry.match.add(field_id=1).exact.value = bytes([number])
            entry.action.action.action_id = forward.preamble.id
            for param in forward.params:
                entry.action.action.params.add(param_id=param.id, value=b"\x01")
            updates.append(p4r.Update(type=kind, entity=p4r.Entity(table_entry=entry)))
        return updates

    controller.write(*batch(p4r.Update.INSERT, b"first"))

    def write(client, mark, **role):
        for _ in range(40):
            client.write(*batch(p4r.Update.MODIFY, mark), **role)

    wildcard = p4r.Entity(table_entry=p4r.TableEntry(table_id=table.preamble.id))
    with ThreadPoolExecutor(4) as pool:
        writers = [
            pool.submit(write, controller, b"first"),
            pool.submit(write, other, b"other", role="second"),
        ]
        readers = [pool.submit(lambda: [controller.read(wildcard) for _ in range(40)]) for _ in range(2)]
        for writer in writers:
            writer.result()
        reads = [read for reader in readers for read in reader.result()]
    assert {len(read) for read in reads} == {10}
    assert all(len({entity.table_entry.metadata for entity in read}) == 1 for read in reads)
