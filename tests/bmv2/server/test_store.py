# SPDX-License-Identifier: Apache-2.0
"""The entity store on a program with what the project's own has not: constant tables, direct counters."""

import pytest
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from bmv2.entries import Exact, TableEntry
from bmv2.ir import Action, DefaultEntry, FieldRef, Ir, KeyField, Pipeline, Table
from bmv2.server.dataplane import DataPlane
from bmv2.server.errors import INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, UNIMPLEMENTED, StatusError
from bmv2.server.reads import read
from bmv2.server.schema import Schema
from bmv2.server.store import EntityStore

INFO = """
tables { preamble { id: 1 name: "fixed" } match_fields { id: 1 name: "k" bitwidth: 8 match_type: EXACT }
  action_refs { id: 10 } size: 4 is_const_table: true }
tables { preamble { id: 2 name: "counted" } match_fields { id: 1 name: "k" bitwidth: 8 match_type: EXACT }
  action_refs { id: 10 } size: 2 direct_resource_ids: 20 }
actions { preamble { id: 10 name: "go" } params { id: 1 name: "a" bitwidth: 8 } }
direct_counters { preamble { id: 20 name: "hits" } spec { unit: PACKETS } direct_table_id: 2 }
"""


def ir_table(name, initial_entries=None):
    key = (KeyField("k", "exact", FieldRef("h", "k"), 8, None),)
    go = Action(0, "go", (("a", 8),), ())
    default = DefaultEntry("go", (3,), False, False)
    return Table(name, "exact", key, 4, True, {"go": go}, {}, None, None, default, initial_entries)


IR = Ir(
    headers={},
    errors={},
    enums={},
    first_state=None,
    states={},
    deparser=(),
    counters={},
    direct_counters={"hits": "counted"},
    registers={},
    calculations={},
    checksums=(),
    actions=(Action(0, "go", (("a", 8),), ()),),
    ingress=Pipeline(
        "ingress",
        None,
        {
            "fixed": ir_table("fixed", (TableEntry((Exact(1),), 0, "go", (2,)),)),
            "counted": ir_table("counted"),
        },
    ),
    egress=Pipeline("egress", None, {}),
    aliases={},
    stacks={},
    unions={},
    siblings={},
    meters={},
    value_sets={},
    digests={},
    field_lists={},
    profiles={},
    deparser_steps=(),
)


class Switch:
    """Takes down what it is told to do."""

    def __init__(self):
        self.done = []

    def __getattr__(self, name):
        return lambda *arguments: self.done.append((name, *arguments))


class Counts:
    """A data plane where entry k has seen k packets of 10 bytes."""

    def indirect(self, name, size):
        return [(0, 0)] * size

    def direct(self, table, entries):
        return [(entry.match[0].value, 10 * entry.match[0].value) for entry in entries]


@pytest.fixture
def store():
    return EntityStore(Schema.parse(text_format.Parse(INFO, p4i.P4Info()), IR), IR)


def entry(table_id, key, param=b"\x07"):
    message = p4r.TableEntry(table_id=table_id)
    message.match.add(field_id=1).exact.value = key
    message.action.action.action_id = 10
    message.action.action.params.add(param_id=1, value=param)
    return message


def write(store, kind, message):
    entity = p4r.Entity(table_entry=message)
    switch = Switch()
    effect = store.apply(p4r.Update(type=p4r.Update.Type.Value(kind), entity=entity))
    effect(DataPlane(switch, lambda kind, message: None))
    return switch.done


def test_effects_name_the_programs_objects(store):
    value = TableEntry((Exact(5),), 0, "go", (7,))
    assert write(store, "INSERT", entry(2, b"\x05")) == [("insert", "counted", value)]
    newer = TableEntry((Exact(5),), 0, "go", (8,))
    assert write(store, "MODIFY", entry(2, b"\x05", b"\x08")) == [("modify", "counted", newer)]
    assert write(store, "DELETE", entry(2, b"\x05")) == [("delete", "counted", newer)]
    default = p4r.TableEntry(table_id=2, is_default_action=True, action=entry(2, b"\x01").action)
    assert write(store, "MODIFY", default) == [("set_default", "counted", "go", (7,))]
    default.ClearField("action")
    assert write(store, "MODIFY", default) == [("set_default", "counted", None, ())]


def test_a_constant_table_shows_its_entries_and_takes_none(store):
    for kind in ("INSERT", "MODIFY", "DELETE"):
        with pytest.raises(StatusError) as caught:
            write(store, kind, entry(1, b"\x01"))
        assert caught.value.code == PERMISSION_DENIED
    (answer,) = read(store, p4r.Entity(table_entry=p4r.TableEntry(table_id=1)), Counts())
    expected = entry(1, b"\x01", b"\x02")
    expected.is_const = True
    assert answer.table_entry == expected


def test_direct_counters_are_read_alone_and_with_their_entries(store):
    write(store, "INSERT", entry(2, b"\x05"))
    write(store, "INSERT", entry(2, b"\x06"))
    wanted = p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=2))
    answers = [
        item.direct_counter_entry for item in read(store, p4r.Entity(direct_counter_entry=wanted), Counts())
    ]
    # Its unit is packets: bytes are not told.
    assert [answer.data for answer in answers] == [p4r.CounterData(packet_count=count) for count in (5, 6)]
    assert answers[0].table_entry.match == entry(2, b"\x05").match
    asked = p4r.TableEntry(table_id=2, counter_data=p4r.CounterData())
    (first, _) = read(store, p4r.Entity(table_entry=asked), Counts())
    assert first.table_entry.counter_data.packet_count == 5
    wanted.table_entry.table_id = 1
    with pytest.raises(StatusError) as caught:
        list(read(store, p4r.Entity(direct_counter_entry=wanted), Counts()))
    assert caught.value.code == NOT_FOUND


def test_a_direct_counter_is_set_on_an_entry_that_exists(store):
    write(store, "INSERT", entry(2, b"\x05"))

    def set_count(kind, key, table_id=2):
        message = p4r.DirectCounterEntry(
            table_entry=entry(table_id, key), data=p4r.CounterData(packet_count=9)
        )
        switch = Switch()
        update = p4r.Update(type=p4r.Update.Type.Value(kind), entity=p4r.Entity(direct_counter_entry=message))
        store.apply(update)(DataPlane(switch, lambda kind, message: None))
        return switch.done

    value = TableEntry((Exact(5),), 0, "go", (7,))
    assert set_count("MODIFY", b"\x05") == [("write_direct_counter", "counted", value, 9, 0)]
    for kind, key, table_id in (("MODIFY", b"\x06", 2), ("INSERT", b"\x05", 2), ("MODIFY", b"\x01", 1)):
        with pytest.raises(StatusError):
            set_count(kind, key, table_id)


def test_what_an_entry_cannot_carry_is_refused(store):
    timed, metered, negative, colours, aged = (entry(2, b"\x01") for _ in range(5))
    timed.idle_timeout_ns = 1
    metered.meter_config.cir = 1
    negative.counter_data.packet_count = -1
    aged.time_since_last_hit.elapsed_ns = 1
    for message in (timed, metered, negative, aged):
        with pytest.raises(StatusError) as caught:
            write(store, "INSERT", message)
        assert caught.value.code == INVALID_ARGUMENT
    colours.meter_counter_data.green.packet_count = 1
    with pytest.raises(StatusError) as caught:
        write(store, "INSERT", colours)
    assert caught.value.code == UNIMPLEMENTED
    assert store.tables.entries(store.tables.table(2)) == []


def test_an_entry_may_bring_its_count(store):
    preset = entry(2, b"\x01")
    preset.counter_data.packet_count = 4
    assert write(store, "INSERT", preset)[1:] == [
        ("write_direct_counter", "counted", TableEntry((Exact(1),), 0, "go", (7,)), 4, 0)
    ]


def test_replay_gives_a_fresh_store_the_same_entities(store):
    write(store, "INSERT", entry(2, b"\x05"))
    default = p4r.TableEntry(table_id=2, is_default_action=True, action=entry(2, b"\x01").action)
    write(store, "MODIFY", default)
    fresh = EntityStore(store.schema, IR)
    switch = Switch()
    for effect in fresh.replay(store):
        effect(DataPlane(switch, lambda kind, message: None))
    assert [call[0] for call in switch.done] == ["insert", "set_default"]
    everything = p4r.Entity(table_entry=p4r.TableEntry())
    assert list(read(fresh, everything, Counts())) == list(read(store, everything, Counts()))
    assert fresh.tables.encode_default(fresh.tables.table(2)) == default
