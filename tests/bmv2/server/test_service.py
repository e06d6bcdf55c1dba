# SPDX-License-Identifier: Apache-2.0
"""Pushing a pipeline: every action, what is refused, and what can be read back."""

import hashlib
import json

import grpc
import pytest
from control_rig import eventually
from finsy.proto import p4i, p4r

Get = p4r.GetForwardingPipelineConfigRequest


def get(client, kind="ALL"):
    request = Get(device_id=client.device_id, response_type=Get.ResponseType.Value(kind))
    return client.stub.GetForwardingPipelineConfig(request).config


def refusal(call, *args):
    with pytest.raises(grpc.RpcError) as caught:
        call(*args)
    return caught.value


@pytest.fixture
def client(connect):
    client = connect()
    client.arbitrate(10)
    return client


def test_no_pipeline_is_said_in_the_words_that_clients_look_for(client):
    error = refusal(get, client)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "no forwarding pipeline config" in error.details().lower()
    entity = p4r.Entity(table_entry=p4r.TableEntry())
    assert refusal(client.read, entity).code() is grpc.StatusCode.FAILED_PRECONDITION


def test_commit_and_every_way_to_read_it_back(client, config):
    client.set_config(config)
    assert get(client) == config
    assert get(client, "COOKIE_ONLY") == p4r.ForwardingPipelineConfig(cookie=config.cookie)
    with_info = get(client, "P4INFO_AND_COOKIE")
    assert with_info.p4info == config.p4info
    assert not with_info.p4_device_config
    with_device = get(client, "DEVICE_CONFIG_AND_COOKIE")
    assert with_device.p4_device_config == config.p4_device_config
    assert not with_device.HasField("p4info")


def test_a_config_without_a_cookie_is_read_without_one(client, config):
    """A cookie is a message so that "none" and 0 are told apart (chapter 7)."""
    bare = p4r.ForwardingPipelineConfig()
    bare.CopyFrom(config)
    bare.ClearField("cookie")
    client.set_config(bare)
    assert get(client) == bare
    client.set_config(config, "RECONCILE_AND_COMMIT")
    assert get(client) == config
    client.set_config(bare, "RECONCILE_AND_COMMIT")
    assert get(client) == bare


def test_verify_changes_nothing_and_save_waits_for_commit(client, config):
    client.set_config(config, "VERIFY")
    assert refusal(get, client).code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refusal(client.set_config, None, "COMMIT").code() is grpc.StatusCode.NOT_FOUND
    client.set_config(config, "VERIFY_AND_SAVE")
    assert refusal(get, client).code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refusal(client.set_config, config, "COMMIT").code() is grpc.StatusCode.INVALID_ARGUMENT
    client.set_config(None, "COMMIT")
    assert get(client, "COOKIE_ONLY").cookie.cookie == 77
    assert refusal(client.set_config, None, "COMMIT").code() is grpc.StatusCode.NOT_FOUND


def test_only_the_primary_pushes(client, connect, config):
    backup = connect()
    backup.arbitrate(5)
    assert refusal(backup.set_config, config).code() is grpc.StatusCode.PERMISSION_DENIED


def default_of(info, table_name):
    table = next(table for table in info.tables if table.preamble.name == table_name)
    return p4r.Entity(table_entry=p4r.TableEntry(table_id=table.preamble.id, is_default_action=True))


def identity_update(info, value):
    table = next(table for table in info.tables if table.preamble.name == "switch_identity")
    entry = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
    entry.action.action.action_id = table.action_refs[0].id
    entry.action.action.params.add(param_id=1, value=value)
    return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(table_entry=entry))


def test_commit_clears_entities_and_reconcile_keeps_them(client, config):
    wanted = default_of(config.p4info, "switch_identity")
    client.set_config(config)
    untouched = client.read(wanted)
    client.write(identity_update(config.p4info, b"\x07"))
    changed = client.read(wanted)
    assert changed != untouched

    newer = p4r.ForwardingPipelineConfig()
    newer.CopyFrom(config)
    newer.cookie.cookie = 78
    client.set_config(newer, "RECONCILE_AND_COMMIT")
    assert get(client, "COOKIE_ONLY").cookie.cookie == 78
    assert client.read(wanted) == changed

    newer.p4info.pkg_info.version = "another"
    client.set_config(newer, "RECONCILE_AND_COMMIT")
    assert client.read(wanted) == changed

    client.set_config(config)
    assert client.read(wanted) == untouched


def without_info(config):
    config.ClearField("p4info")


def without_device_config(config):
    config.p4_device_config = b""


def not_json(config):
    config.p4_device_config = b"{nonsense"


def twice_the_same_id(config):
    config.p4info.tables[1].preamble.id = config.p4info.tables[0].preamble.id


def twice_the_same_table(config):
    # Both would write to the program's one table.
    config.p4info.tables.add().CopyFrom(config.p4info.tables[0])
    config.p4info.tables[-1].preamble.id = 0x02FFFFFF


def twice_the_same_counter(config):
    config.p4info.counters.add().CopyFrom(config.p4info.counters[0])
    config.p4info.counters[-1].preamble.id = 0x12FFFFFF


def another_key(config):
    config.p4info.tables[0].match_fields[0].bitwidth += 1


def unknown_table(config):
    config.p4info.tables[0].preamble.name = "elsewhere"


def unknown_action(config):
    config.p4info.tables[0].action_refs[0].id = 12345


def ragged_header(config):
    config.p4info.controller_packet_metadata[0].metadata[0].bitwidth += 1


def unspecified_match(config):
    config.p4info.tables[0].match_fields[0].match_type = p4i.MatchField.UNSPECIFIED


@pytest.mark.parametrize(
    "spoil",
    [
        without_info,
        without_device_config,
        not_json,
        twice_the_same_id,
        twice_the_same_table,
        twice_the_same_counter,
        another_key,
        unknown_table,
        unknown_action,
        ragged_header,
        unspecified_match,
    ],
)
def test_a_pipeline_that_contradicts_itself_is_refused_and_the_old_one_stays(client, config, spoil):
    client.set_config(config)
    broken = p4r.ForwardingPipelineConfig()
    broken.CopyFrom(config)
    broken.cookie.cookie = 99
    spoil(broken)
    error = refusal(client.set_config, broken)
    assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
    assert len(error.details()) > 20
    assert get(client, "COOKIE_ONLY").cookie.cookie == 77


def test_a_table_of_constant_entries_may_be_declared_larger_than_they_are_many(client, config):
    # p4c writes their number into the device config, and the declared size into P4Info.
    program = json.loads(config.p4_device_config)
    table = next(t for p in program["pipelines"] for t in p["tables"] if t["name"] == "queue")
    table["max_size"] = 2
    table["entries"] = [
        {
            "match_key": [{"match_type": "exact", "key": key}],
            "action_entry": {"action_id": table["action_ids"][0], "action_data": ["0x3"]},
            "priority": priority,
        }
        for priority, key in enumerate(("0x1a", "0x1e"), 1)
    ]
    constant = p4r.ForwardingPipelineConfig()
    constant.CopyFrom(config)
    constant.p4_device_config = json.dumps(program).encode()
    info = next(t for t in constant.p4info.tables if t.preamble.name == "queue")
    info.is_const_table = True
    assert info.size == 64
    client.set_config(constant)
    entries = client.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=info.preamble.id)))
    assert [e.table_entry.is_const for e in entries] == [True, True]


def test_a_translated_type_of_the_same_width_keeps_its_numbers(client, config):
    newer = p4r.ForwardingPipelineConfig()
    newer.CopyFrom(config)
    table = next(t for t in newer.p4info.tables if t.preamble.name == "next_hop")
    table.match_fields[0].type_name.name = "hop_t"
    kind = newer.p4info.type_info.new_types["hop_t"].translated_type
    kind.uri, kind.sdn_bitwidth = "example/hop_t", table.match_fields[0].bitwidth
    client.set_config(newer)
    entry = p4r.TableEntry(table_id=table.preamble.id)
    entry.match.add(field_id=1).exact.value = b"\x05"
    forward = next(a for a in config.p4info.actions if a.preamble.name == "forward")
    entry.action.action.action_id = forward.preamble.id
    for param in forward.params:
        entry.action.action.params.add(param_id=param.id, value=b"\x01")
    client.write(p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=entry)))
    assert [e.table_entry for e in client.read(p4r.Entity(table_entry=p4r.TableEntry()))] == [entry]


def test_an_unspecified_action_is_refused(client, config):
    assert refusal(client.set_config, config, "UNSPECIFIED").code() is grpc.StatusCode.INVALID_ARGUMENT


def test_capabilities(client):
    answer = client.stub.Capabilities(p4r.CapabilitiesRequest())
    assert answer.p4runtime_api_version == "1.5.0"


def another_version(program):
    program["__meta__"]["version"] = [9, 0]


def an_unknown_extern(program):
    program["extern_instances"] = [
        {"name": "MyIngress.mine", "id": 0, "type": "mystery", "attribute_values": []}
    ]


def an_unknown_primitive(program):
    action = next(action for action in program["actions"] if action["primitives"])
    action["primitives"][0]["op"] = "teleport"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [(another_version, "9"), (an_unknown_extern, "MyIngress.mine"), (an_unknown_primitive, "teleport")],
)
def test_a_program_that_the_switch_cannot_run_names_the_culprit_and_leaves_the_switch_unharmed(
    rig, client, config, spoil, said
):
    client.set_config(config)
    client.write(identity_update(config.p4info, b"\x07"))
    before = client.read(default_of(config.p4info, "switch_identity"))
    program = json.loads(config.p4_device_config)
    spoil(program)
    broken = p4r.ForwardingPipelineConfig(p4info=config.p4info, p4_device_config=json.dumps(program).encode())
    error = refusal(client.set_config, broken)
    assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
    assert said in error.details()
    assert client.read(default_of(config.p4info, "switch_identity")) == before
    # The data plane takes a pipeline when it is free.
    running = eventually(lambda: rig.switch.program, "the first program runs")
    assert running.digest == hashlib.sha256(config.p4_device_config).digest()
