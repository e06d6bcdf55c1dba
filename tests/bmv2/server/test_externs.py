# SPDX-License-Identifier: Apache-2.0
"""Meters, direct resources, ages, registers, value sets and digests, as a client and packets see them."""

from finsy.proto import p4r, rpc_code
from google.protobuf import text_format
from p4rt_bench import aged, digest, meter, selected

from bmv2.server import reads, watchers

SECOND_NS = 1_000_000_000


def learned(message):
    return [
        tuple(int.from_bytes(part.bitstring, "big") for part in data.struct.members)
        for data in message.digest.data
    ]


def test_meters_colour_packets(bench):
    tight = "config { cir: 1 cburst: 1 pir: 1 pburst: 2 }"
    for kind in ("INSERT", "DELETE"):
        assert bench.write(kind, meter(1, tight)) == "INVALID_ARGUMENT"
    assert bench.write("MODIFY", meter(4, tight)) == "OUT_OF_RANGE"
    assert bench.write("MODIFY", meter(-1, tight)) == "INVALID_ARGUMENT"
    assert bench.write("MODIFY", meter(1, "config { cir: 2 pir: 1 }")) == "INVALID_ARGUMENT"
    assert bench.write("MODIFY", meter(1, "config { eburst: 1 }")) == "INVALID_ARGUMENT"
    tries = []
    for _ in range(4):
        assert bench.write("MODIFY", meter(1, tight)) == "OK"
        tries.append([frame[3] for _ in range(3) for _, frame in bench.send(4, 1)])
    # On the host's clock the token of a second may come between two packets, but hardly in every try.
    assert [0, 1, 2] in tries
    assert [frame[3] for _ in range(3) for _, frame in bench.send(4, 2)] == [0, 0, 0]
    assert bench.read(meter(1, "")) == [bench.entity(meter(1, tight))]
    assert len(bench.read("meter_entry { }")) == 4
    assert bench.write("MODIFY", "meter_entry { meter_id: $index_meters }") == "OK"
    assert [frame[3] for _ in range(3) for _, frame in bench.send(4, 1)] == [0, 0, 0]


def test_a_reconcile_keeps_what_was_written_to_all_meters_and_to_some(bench, entities_config):
    tight = "config { cir: 1 cburst: 1 pir: 1 pburst: 2 }"
    wide = "config { cir: 5 cburst: 5 pir: 5 pburst: 5 }"
    assert bench.write("MODIFY", f"meter_entry {{ meter_id: $index_meters {tight} }}") == "OK"
    assert bench.write("MODIFY", meter(2, wide)) == "OK"
    assert bench.write("MODIFY", meter(3, "")) == "OK"
    wanted = [bench.entity(meter(index, rates)) for index, rates in enumerate((tight, tight, wide, ""))]
    assert bench.read("meter_entry { }") == wanted
    newer = p4r.ForwardingPipelineConfig()
    newer.CopyFrom(entities_config)
    newer.p4info.pkg_info.version = "newer"
    bench.client.set_config(newer, "RECONCILE_AND_COMMIT")
    assert bench.read("meter_entry { }") == wanted
    for index, colours in ((0, [0, 1, 2]), (3, [0, 0, 0])):
        assert [frame[3] for _ in colours for _, frame in bench.send(4, index)] == colours


def test_a_read_of_more_than_can_be_answered_is_refused(bench, monkeypatch):
    monkeypatch.setattr(reads, "MAX_ANSWERS", 3)
    assert bench.read("meter_entry { }") == "RESOURCE_EXHAUSTED"
    assert len(bench.read(meter(1, ""))) == 1


def test_direct_resources_come_with_entries_and_alone(bench):
    tight = "cir: 1 cburst: 1 pir: 1 pburst: 1"
    assert (
        bench.write("INSERT", aged(1, rest=f"meter_config {{ {tight} }} counter_data {{ packet_count: 40 }}"))
        == "OK"
    )
    assert [frame[3] for _ in range(2) for _, frame in bench.send(3, 1)] == [0, 2]
    key = bench.entity(aged(1)).table_entry
    key.ClearField("action")
    asked = p4r.TableEntry(
        table_id=key.table_id, meter_config=p4r.MeterConfig(), counter_data=p4r.CounterData()
    )
    (answer,) = bench.client.read(p4r.Entity(table_entry=asked))
    assert answer.table_entry.meter_config == text_format.Parse(tight, p4r.MeterConfig())
    assert answer.table_entry.counter_data.packet_count == 42
    alone = p4r.DirectMeterEntry(table_entry=key)
    (answer,) = bench.client.read(p4r.Entity(direct_meter_entry=alone))
    assert answer.direct_meter_entry.config.cburst == 1
    bench.client.write(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(direct_meter_entry=alone)))
    assert [frame[3] for _ in range(2) for _, frame in bench.send(3, 1)] == [0, 0]
    assert bench.write("MODIFY", aged(1)) == "OK"
    (answer,) = bench.client.read(p4r.Entity(table_entry=asked))
    assert not answer.table_entry.HasField("meter_config")
    assert answer.table_entry.counter_data.packet_count == 44
    # A counter without data is left as it is. Unlike an entry, a direct resource that is not there is NOT_FOUND.

    def of(kind, number):
        key = f'table_id: $aged match {{ field_id: 1 exact {{ value: "\\x{number:02x}" }} }}'
        return f"{kind} {{ {key} }}" if kind == "table_entry" else f"{kind} {{ table_entry {{ {key} }} }}"

    assert bench.write("MODIFY", of("direct_counter_entry", 1)) == "OK"
    (answer,) = bench.read(of("direct_counter_entry", 1))
    assert answer.direct_counter_entry.data.packet_count == 44
    assert bench.read(of("direct_counter_entry", 2)) == "NOT_FOUND"
    assert bench.read(of("direct_meter_entry", 2)) == "NOT_FOUND"
    assert bench.read(of("table_entry", 2)) == []


def test_an_idle_entry_is_told_again_and_again_until_it_is_hit_or_goes(bench):
    timeout = 200_000_000
    assert bench.write(
        "INSERT", selected(1, "").replace("} action {  } }", f"}} idle_timeout_ns: {timeout} }}")
    ) == ("INVALID_ARGUMENT")
    rest = f'idle_timeout_ns: {timeout} metadata: "mine" controller_metadata: 5'
    assert bench.write("INSERT", aged(1, rest=rest)) == "OK"
    for _ in range(2):
        notification = bench.client.next().idle_timeout_notification
        (told,) = notification.table_entry
        assert told.match == bench.entity(aged(1)).table_entry.match
        assert (told.idle_timeout_ns, told.metadata, told.controller_metadata) == (timeout, b"mine", 5)
        assert notification.timestamp > 0
    bench.send(3, 1)
    asked = p4r.TableEntry(table_id=bench.ids["aged"], time_since_last_hit=p4r.TableEntry.IdleTimeout())
    (answer,) = bench.client.read(p4r.Entity(table_entry=asked))
    assert answer.table_entry.time_since_last_hit.elapsed_ns >= 0
    assert answer.table_entry.HasField("time_since_last_hit")
    assert bench.write("DELETE", aged(1)) == "OK"
    never = f"table_entry {{ table_id: $aged is_default_action: true idle_timeout_ns: {timeout} }}"
    assert bench.write("MODIFY", never) == "INVALID_ARGUMENT"


def test_registers_are_read_and_written(bench):
    def register(index, data=""):
        return f"register_entry {{ register_id: $seen index {{ index: {index} }} {data} }}"

    assert bench.write("INSERT", register(1, 'data { bitstring: "\\x05" }')) == "INVALID_ARGUMENT"
    assert bench.write("MODIFY", register(4, 'data { bitstring: "\\x05" }')) == "OUT_OF_RANGE"
    assert (
        bench.write("MODIFY", register(1, 'data { bitstring: "\\x01\\x00\\x00\\x00\\x00" }'))
        == "OUT_OF_RANGE"
    )
    assert bench.write("MODIFY", register(1, "data { bool: true }")) == "INVALID_ARGUMENT"
    assert bench.write("MODIFY", register(1, 'data { bitstring: "\\x05" }')) == "OK"
    bench.send(4, 1)
    bench.send(4, 3)
    values = [
        cell.register_entry.data.bitstring for cell in bench.read("register_entry { register_id: $seen }")
    ]
    assert values == [b"\x00", b"\x06", b"\x00", b"\x01"]


def test_value_sets_steer_the_parser(bench):
    def value_set(*values):
        members = "".join(
            f'members {{ match {{ field_id: 1 exact {{ value: "\\x{v:02x}" }} }} }}' for v in values
        )
        return f"value_set_entry {{ value_set_id: $bounced {members} }}"

    assert bench.ports(9, 0, port=3) == []
    for kind in ("INSERT", "DELETE"):
        assert bench.write(kind, value_set(9)) == "INVALID_ARGUMENT"
    assert bench.write("MODIFY", value_set(9, 9)) == "ALREADY_EXISTS"
    assert bench.write("MODIFY", value_set(1, 2, 3, 4, 5)) == "RESOURCE_EXHAUSTED"
    assert bench.write("MODIFY", value_set(9, 10)) == "OK"
    assert bench.ports(9, 0, port=3) == [3]
    assert bench.read("value_set_entry { }") == [bench.entity(value_set(9, 10))]
    assert bench.write("MODIFY", value_set()) == "OK"
    assert bench.ports(9, 0, port=3) == []


def test_digests_come_in_lists_and_not_again_before_they_are_acknowledged(bench):
    bench.send(5, 1)
    assert bench.write("MODIFY", digest()) == "NOT_FOUND"
    assert bench.write("INSERT", digest("max_list_size: -1")) == "INVALID_ARGUMENT"
    tuning = f"max_list_size: 2 max_timeout_ns: {60 * SECOND_NS} ack_timeout_ns: {60 * SECOND_NS}"
    assert bench.write("INSERT", digest(tuning)) == "OK"
    assert bench.write("INSERT", digest(tuning)) == "ALREADY_EXISTS"
    assert bench.read("digest_entry { }") == [bench.entity(digest(tuning))]
    for number in (1, 1, 2, 1, 3, 4):
        bench.send(5, number, port=3)
    first, second = bench.client.next(), bench.client.next()
    assert learned(first) == [(1, 3), (2, 3)]
    assert learned(second) == [(3, 3), (4, 3)]
    assert first.digest.list_id != second.digest.list_id
    ack = p4r.DigestListAck(digest_id=first.digest.digest_id, list_id=first.digest.list_id)
    bench.client.send(digest_ack=ack)
    # The stream keeps order: once this is answered, the acknowledgement has been delivered.
    bench.client.send(digest_ack=p4r.DigestListAck(digest_id=1))
    error = bench.client.next().error
    assert error.canonical_code == rpc_code.INVALID_ARGUMENT
    assert error.digest_list_ack.digest_list_ack.digest_id == 1
    for number in (3, 1, 2):
        bench.send(5, number, port=3)
    assert learned(bench.client.next()) == [(1, 3), (2, 3)]
    # What is older than the time for acknowledgement comes again, though its list was not acknowledged.
    assert bench.write("MODIFY", digest("max_list_size: 1 ack_timeout_ns: 1")) == "OK"
    bench.send(5, 3, port=3)
    assert learned(bench.client.next()) == [(3, 3)]
    assert bench.write("DELETE", digest()) == "OK"
    assert bench.read("digest_entry { digest_id: $learned_t }") == "NOT_FOUND"


def test_digests_of_a_client_without_limits_are_bounded(bench, monkeypatch):
    """No maximum and endless time-outs: lists go all the same, and the oldest messages may come again."""
    monkeypatch.setattr(watchers, "_MAX_LIST", 3)
    monkeypatch.setattr(watchers, "_MAX_UNACKNOWLEDGED", 4)
    endless = (1 << 63) - 1
    assert bench.write("INSERT", digest(f"max_timeout_ns: {endless} ack_timeout_ns: {endless}")) == "OK"
    for number in (1, 2, 3, 4, 5, 6, 6, 1, 3, 4, 2):
        bench.send(5, number, port=3)
    lists = [learned(bench.client.next()) for _ in range(2)]
    assert lists == [[(1, 3), (2, 3), (3, 3)], [(4, 3), (5, 3), (6, 3)]]
    # 1 and 2 are forgotten, 3 and 4 are not yet: the next list lacks one message.
    bench.send(5, 7, port=3)
    assert learned(bench.client.next()) == [(1, 3), (2, 3), (7, 3)]


def test_a_digest_that_is_tuned_down_sends_what_it_has(bench):
    tuning = f"max_list_size: %d max_timeout_ns: {60 * SECOND_NS}"
    assert bench.write("INSERT", digest(tuning % 9)) == "OK"
    for number in (1, 2, 3):
        bench.send(5, number)
    assert bench.write("MODIFY", digest(tuning % 2)) == "OK"
    bench.send(5, 4)
    assert learned(bench.client.next()) == [(1, 1), (2, 1), (3, 1), (4, 1)]


def test_without_a_time_for_acknowledgement_nothing_is_kept_back(bench):
    assert bench.write("INSERT", digest("max_list_size: 1")) == "OK"
    for _ in range(3):
        bench.send(5, 1)
        assert learned(bench.client.next()) == [(1, 1)]


def test_a_short_digest_list_goes_after_its_time(bench):
    assert bench.write("INSERT", digest("max_list_size: 100 max_timeout_ns: 50000000")) == "OK"
    bench.send(5, 1)
    bench.send(5, 2)
    assert learned(bench.client.next()) == [(1, 1), (2, 1)]
