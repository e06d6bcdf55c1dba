# SPDX-License-Identifier: Apache-2.0
"""Profiles, replication and pipelines of a program with every entity, as a client and packets see them."""

import grpc
import pytest
from finsy.proto import p4i, p4r
from p4rt_bench import Bench, aged, digest, group, member, meter, selected, send_to

from bmv2.loader import load
from bmv2.server.schema import Schema


def test_members_and_groups_carry_traffic_and_guard_their_references(bench):
    assert bench.write("MODIFY", member(1, 2)) == "NOT_FOUND"
    assert [bench.write("INSERT", member(number, port)) for number, port in ((1, 2), (2, 3))] == ["OK", "OK"]
    assert bench.write("INSERT", member(1, 2)) == "ALREADY_EXISTS"
    assert bench.write("INSERT", member(0, 2)) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", group(7, "member_id: 9 weight: 1")) == "NOT_FOUND"
    assert bench.write("INSERT", group(7, "member_id: 1")) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", group(7, *["member_id: 1 weight: 1"] * 2)) == "INVALID_ARGUMENT"
    both = group(7, "member_id: 1 weight: 1", 'member_id: 2 weight: 1 watch_port: "\\x03"')
    assert bench.write("INSERT", both) == "OK"
    assert bench.write("INSERT", selected(1, "action_profile_group_id: 8")) == "NOT_FOUND"
    assert bench.write("INSERT", selected(1, f"action {{ {send_to(2)} }}")) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", selected(1, "action_profile_group_id: 7")) == "OK"
    assert bench.write("INSERT", selected(2, "action_profile_member_id: 1")) == "OK"

    assert {port for colour in range(16) for port in bench.ports(1, 1, 0, colour)} == {2, 3}
    assert bench.ports(1, 2) == [2]
    bench.rig.on_data_plane(lambda: bench.rig.switch.set_port_up(3, False))
    assert {port for colour in range(16) for port in bench.ports(1, 1, 0, colour)} == {2}
    bench.rig.on_data_plane(lambda: bench.rig.switch.set_port_up(3, True))
    assert bench.write("MODIFY", member(1, 4)) == "OK"
    assert bench.ports(1, 2) == [4]

    assert bench.write("DELETE", group(7)) == "FAILED_PRECONDITION"
    assert bench.write("DELETE", member(2, 3)) == "FAILED_PRECONDITION"
    assert bench.write("MODIFY", group(7, size=3)) == "INVALID_ARGUMENT"
    assert bench.write("MODIFY", group(7)) == "OK"
    assert bench.write("DELETE", member(2, 3)) == "OK"
    assert bench.write("MODIFY", selected(1, "action_profile_member_id: 1")) == "OK"
    assert bench.write("DELETE", group(7)) == "OK"
    assert bench.read("action_profile_group { }") == []
    assert bench.read("action_profile_member { }") == [bench.entity(member(1, 4))]
    assert bench.read("action_profile_member { action_profile_id: $choice member_id: 5 }") == "NOT_FOUND"


def test_a_profile_without_a_selector_has_members_only_and_fills_up(bench):
    assert [bench.write("INSERT", member(number, 2, "profile")) for number in range(1, 6)] == [
        *["OK"] * 4,
        "RESOURCE_EXHAUSTED",
    ]
    lonely = "action_profile_group { action_profile_id: $profile group_id: 1 }"
    assert bench.write("INSERT", lonely) == "INVALID_ARGUMENT"
    entry = "table_entry { table_id: $profiled priority: 5 action { action_profile_member_id: 3 } }"
    assert bench.write("INSERT", entry) == "OK"
    assert bench.ports(2, 77) == [2]
    assert bench.read("table_entry { table_id: $profiled }") == [bench.entity(entry)]


def action_set(*ports):
    items = " ".join(f"action_profile_actions {{ action {{ {send_to(port)} }} weight: 1 }}" for port in ports)
    return f"action_profile_action_set {{ {items} }}"


def test_action_sets_in_one_shot_are_read_as_written_and_leave_nothing(bench):
    assert bench.write("INSERT", selected(1, action_set(2, 3))) == "OK"
    assert {port for colour in range(16) for port in bench.ports(1, 1, 0, colour)} == {2, 3}
    assert bench.read("table_entry { table_id: $selected }") == [bench.entity(selected(1, action_set(2, 3)))]
    assert bench.read("action_profile_member { }") == []
    padded = selected(2, action_set(4)).replace("\\x04", "\\x00\\x04")
    assert bench.write("INSERT", padded) == "OK"
    assert bench.read("table_entry { table_id: $selected }")[1] == bench.entity(selected(2, action_set(4)))
    assert bench.write("DELETE", selected(2, "")) == "OK"
    assert bench.write("INSERT", member(1, 2)) == "INVALID_ARGUMENT"
    assert bench.write("MODIFY", selected(1, action_set(4))) == "OK"
    assert {port for colour in range(16) for port in bench.ports(1, 1, 0, colour)} == {4}
    no_weight = f"action_profile_action_set {{ action_profile_actions {{ action {{ {send_to(2)} }} }} }}"
    assert bench.write("INSERT", selected(2, no_weight)) == "INVALID_ARGUMENT"
    assert bench.write("DELETE", selected(1, "")) == "OK"
    assert bench.write("INSERT", member(1, 2)) == "OK"
    assert bench.write("INSERT", selected(1, action_set(2))) == "INVALID_ARGUMENT"
    profile = bench.rig.switch.profile("EntityIngress.choice")
    assert sorted(profile.members()) == [1]
    assert profile.groups() == {}


def multicast(number, *replicas):
    listed = " ".join(f"replicas {{ {text} }}" for text in replicas)
    return (
        "packet_replication_engine_entry { multicast_group_entry { "
        f'multicast_group_id: {number} metadata: "x" {listed} }} }}'
    )


def test_a_backup_replica_stands_in_for_a_port_that_is_down(bench):
    backed = 'port: "\\x02" instance: 5 backup_replicas { port: "\\x03" instance: 6 }'
    assert bench.write("INSERT", multicast(1, backed, 'port: "\\x04" instance: 1')) == "OK"
    assert bench.read(multicast(1)) == [bench.entity(multicast(1, backed, 'port: "\\x04" instance: 1'))]
    assert [(port, frame[2]) for port, frame in bench.send(6, 1)] == [(2, 5), (4, 1)]
    bench.rig.on_data_plane(lambda: bench.rig.switch.set_port_up(2, False))
    assert [(port, frame[2]) for port, frame in bench.send(6, 1)] == [(3, 6), (4, 1)]
    bench.rig.on_data_plane(lambda: bench.rig.switch.set_port_up(2, True))
    assert [(port, frame[2]) for port, frame in bench.send(6, 1)] == [(2, 5), (4, 1)]
    assert bench.write("DELETE", multicast(1)) == "OK"
    assert bench.send(6, 1) == []


def test_backup_replicas_are_read_in_their_order(bench):
    backups = "".join(f'backup_replicas {{ port: "\\x{port:02x}" instance: 1 }} ' for port in (4, 1, 3))
    wanted = multicast(1, f'port: "\\x02" instance: 1 {backups}')
    assert bench.write("INSERT", wanted) == "OK"
    assert bench.read(multicast(1)) == [bench.entity(wanted)]


def test_a_profile_that_no_table_uses_is_in_p4info_only(rig, connect, entities_config, batch_errors):
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(entities_config)
    config.p4info.action_profiles.add(size=4, with_selector=True).preamble.CopyFrom(
        p4i.Preamble(id=0x11ABCDEF, name="lonely")
    )
    bench = Bench(rig, connect(), config, batch_errors)
    lonely = "action_profile_group { action_profile_id: $lonely group_id: 1 }"
    for kind in ("INSERT", "MODIFY", "DELETE", "INSERT"):
        assert bench.write(kind, lonely) == "OK"
    assert bench.read("action_profile_group { }") == [bench.entity(lonely)]
    assert bench.write("INSERT", member(1, 2, "lonely")) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", member(1, 2)) == "OK"


def clone(session, rest=""):
    return f"packet_replication_engine_entry {{ clone_session_entry {{ session_id: {session} {rest} }} }}"


def test_clone_sessions(bench):
    assert bench.write("INSERT", clone(0)) == "INVALID_ARGUMENT"
    assert bench.write("INSERT", clone(40000)) == "INVALID_ARGUMENT"
    assert bench.write("MODIFY", clone(7)) == "NOT_FOUND"
    assert bench.write("INSERT", clone(7, "class_of_service: 1")) == "UNIMPLEMENTED"
    wanted = clone(7, 'replicas { port: "\\x02" instance: 3 } packet_length_bytes: 2')
    assert bench.write("INSERT", wanted) == "OK"
    assert [port for port, _ in bench.send(7, 7)] == [2]
    assert bench.read(clone(0)) == [bench.entity(wanted)]
    assert bench.read(clone(9)) == "NOT_FOUND"
    assert bench.write("DELETE", clone(7)) == "OK"
    assert bench.send(7, 7) == []


def test_a_reconcile_keeps_entities_of_every_kind(bench, entities_config):
    bench.write("INSERT", member(1, 2))
    bench.write("INSERT", group(7, "member_id: 1 weight: 2"))
    bench.write("INSERT", selected(1, "action_profile_group_id: 7"))
    bench.write("INSERT", aged(1, rest="meter_config { cir: 1 cburst: 1 pir: 1 pburst: 1 }"))
    bench.write("MODIFY", meter(1, "config { cir: 1 cburst: 1 pir: 1 pburst: 1 }"))
    bench.write(
        "MODIFY",
        'value_set_entry { value_set_id: $bounced members { match { field_id: 1 exact { value: "\\x09" } } } }',
    )
    bench.write("INSERT", digest("max_list_size: 1"))
    bench.write("INSERT", multicast(1, 'port: "\\x02" instance: 5'))
    bench.write("INSERT", clone(7, 'replicas { port: "\\x02" instance: 3 }'))
    kinds = ["table_entry { meter_config { } }", "action_profile_member { }", "action_profile_group { }"]
    kinds += ["meter_entry { }", "value_set_entry { }", "digest_entry { }", clone(0), multicast(0)]
    before = [bench.read(kind) for kind in kinds]
    assert all(before)
    newer = p4r.ForwardingPipelineConfig()
    newer.CopyFrom(entities_config)
    newer.p4info.pkg_info.version = "another"
    bench.client.set_config(newer, "RECONCILE_AND_COMMIT")
    assert [bench.read(kind) for kind in kinds] == before
    assert bench.ports(1, 1) == [2]
    assert bench.ports(9, 0, port=3) == [3]
    assert [frame[3] for _ in range(2) for _, frame in bench.send(4, 1)] == [0, 2]


def test_p4info_and_program_must_agree_on_every_kind(bench, entities_config):
    spoilt = []
    for field, change in (
        ("meters", lambda item: setattr(item, "size", 9)),
        ("registers", lambda item: setattr(item, "size", 9)),
        ("value_sets", lambda item: setattr(item.preamble, "name", "elsewhere")),
        ("digests", lambda item: setattr(item.preamble, "name", "elsewhere")),
        ("action_profiles", lambda item: setattr(item.preamble, "name", "elsewhere")),
        ("direct_meters", lambda item: setattr(item, "direct_table_id", 5)),
        ("action_profiles", lambda item: setattr(item, "with_selector", False)),
        ("action_profiles", lambda item: setattr(item, "size", 1 << 20)),
        ("tables", lambda item: setattr(item, "size", 1 << 20)),
        ("tables", lambda item: setattr(item.match_fields[0], "match_type", p4i.MatchField.LPM)),
        ("actions", lambda item: setattr(item.preamble, "name", "elsewhere")),
    ):
        config = p4r.ForwardingPipelineConfig()
        config.CopyFrom(entities_config)
        change(getattr(config.p4info, field)[0])
        spoilt.append(config)
    for config in spoilt:
        with pytest.raises(grpc.RpcError) as caught:
            bench.client.set_config(config)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(Schema.parse(entities_config.p4info, load(entities_config.p4_device_config)).profiles) == 2


def ranked(number, mask, priority, chosen):
    match = f'match {{ field_id: 1 ternary {{ value: "\\x{number:02x}" mask: "\\x{mask:02x}" }} }}'
    action = f"action {{ action_profile_member_id: {chosen} }}"
    return f"table_entry {{ table_id: $profiled {match} priority: {priority} {action} }}"


@pytest.mark.parametrize("higher_first", [True, False])
def test_packets_meet_the_entry_with_the_higher_number(bench, higher_first):
    for number, port in ((1, 2), (2, 3)):
        assert bench.write("INSERT", member(number, port, "profile")) == "OK"
    wide, narrow = ranked(0x40, 0xF0, 9, 1), ranked(0x41, 0xFF, 8, 2)
    for entry in (wide, narrow) if higher_first else (narrow, wide):
        assert bench.write("INSERT", entry) == "OK"
    assert bench.ports(2, 0x41) == [2]
    assert bench.write("DELETE", wide) == "OK"
    assert bench.ports(2, 0x41) == [3]
    assert bench.write("INSERT", ranked(0x40, 0xF0, 7, 1)) == "OK"
    assert [bench.ports(2, number) for number in (0x41, 0x42)] == [[3], [2]]
