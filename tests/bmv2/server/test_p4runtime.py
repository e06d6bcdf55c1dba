# SPDX-License-Identifier: Apache-2.0
"""Writing and reading entities of the project's own program, over real gRPC."""

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

UNKNOWN_ID = 0x0FFFFFFF


class Names:
    """Ids of the program by name, and updates built with them."""

    def __init__(self, info):
        self.tables = {table.preamble.name: table for table in info.tables}
        self.actions = {action.preamble.name: action for action in info.actions}
        self.counters = {counter.preamble.name: counter for counter in info.counters}

    def action(self, name, *values):
        message = p4r.TableAction()
        message.action.action_id = self.actions[name].preamble.id
        for param, value in zip(self.actions[name].params, values, strict=True):
            message.action.params.add(param_id=param.id, value=value)
        return message

    def next_hop(self, key, port=b"\x01"):
        entry = p4r.TableEntry(table_id=self.tables["next_hop"].preamble.id)
        entry.match.add(field_id=1).exact.value = key
        entry.action.CopyFrom(self.action("forward", port, b"\x02", b"\x03"))
        return entry

    def route(self, value, prefix, hop=b"\x01"):
        entry = p4r.TableEntry(table_id=self.tables["routing"].preamble.id)
        if prefix:
            lpm = entry.match.add(field_id=1).lpm
            lpm.value, lpm.prefix_len = value, prefix
        entry.action.CopyFrom(self.action("set_next_hop", hop))
        return entry

    def marking(self, low, high, priority):
        entry = p4r.TableEntry(table_id=self.tables["ecn"].preamble.id, priority=priority)
        entry.match.add(field_id=1).exact.value = b"\x00"
        depth = entry.match.add(field_id=2).range
        depth.low, depth.high = low, high
        entry.action.CopyFrom(self.action("set_mark_probability", b"\xff\xff"))
        return entry

    def default(self, table, action=None):
        entry = p4r.TableEntry(table_id=self.tables[table].preamble.id, is_default_action=True)
        if action is not None:
            entry.action.CopyFrom(action)
        return entry

    def counter(self, name, index=None, packets=0, size=0):
        entry = p4r.CounterEntry(counter_id=self.counters[name].preamble.id)
        if index is not None:
            entry.index.index = index
        if packets or size:
            entry.data.packet_count, entry.data.byte_count = packets, size
        return p4r.Entity(counter_entry=entry)


def update(kind, entry):
    entity = p4r.Entity(table_entry=entry) if isinstance(entry, p4r.TableEntry) else entry
    return p4r.Update(type=p4r.Update.Type.Value(kind), entity=entity)


def group(group_id, *replicas):
    message = p4r.MulticastGroupEntry(multicast_group_id=group_id)
    for port, instance in replicas:
        message.replicas.add(egress_port=port, instance=instance)
    engine = p4r.PacketReplicationEngineEntry(multicast_group_entry=message)
    return p4r.Entity(packet_replication_engine_entry=engine)


@pytest.fixture(scope="session")
def names(p4info):
    return Names(p4info)


@pytest.fixture
def outcome(controller, batch_errors):
    """The code name of a single update, "OK" if it went well."""

    def code(one):
        try:
            controller.write(one)
        except grpc.RpcError as error:
            return batch_errors(error)[0][0]
        return "OK"

    return code


def table_entries(client, **wanted):
    return [entity.table_entry for entity in client.read(p4r.Entity(table_entry=p4r.TableEntry(**wanted)))]


def test_an_entry_lives_from_insert_over_modify_to_delete(controller, names, outcome):
    entry, changed = names.next_hop(b"\x05"), names.next_hop(b"\x05", port=b"\x02")
    assert outcome(update("MODIFY", entry)) == "NOT_FOUND"
    assert outcome(update("DELETE", entry)) == "NOT_FOUND"
    assert outcome(update("INSERT", entry)) == "OK"
    assert outcome(update("INSERT", changed)) == "ALREADY_EXISTS"
    assert table_entries(controller) == [entry]
    assert outcome(update("MODIFY", changed)) == "OK"
    assert table_entries(controller) == [changed]
    assert outcome(update("DELETE", changed)) == "OK"
    assert table_entries(controller) == []
    assert outcome(update("UNSPECIFIED", entry)) == "INVALID_ARGUMENT"


def test_padded_and_canonical_values_are_one_entry_read_in_canonical_form(controller, names, outcome):
    assert outcome(update("INSERT", names.next_hop(b"\x00\x05", port=b"\x00\x01"))) == "OK"
    assert outcome(update("INSERT", names.next_hop(b"\x05"))) == "ALREADY_EXISTS"
    assert table_entries(controller) == [names.next_hop(b"\x05")]


def test_a_batch_goes_on_after_errors_and_reports_each_update_in_order(controller, names, batch_errors):
    batch = [
        update("INSERT", names.next_hop(b"\x01")),
        update("INSERT", names.next_hop(b"\x01")),
        update("DELETE", names.next_hop(b"\x02")),
        update("INSERT", names.next_hop(b"\x01\x00\x00")),
        update("INSERT", names.next_hop(b"\x03")),
    ]
    with pytest.raises(grpc.RpcError) as caught:
        controller.write(*batch)
    codes = [code for code, _ in batch_errors(caught.value)]
    assert codes == ["OK", "ALREADY_EXISTS", "NOT_FOUND", "OUT_OF_RANGE", "OK"]
    assert "next_hop_id" in batch_errors(caught.value)[3][1]
    assert table_entries(controller) == [names.next_hop(b"\x01"), names.next_hop(b"\x03")]


def test_only_continue_on_error_is_offered(controller, names):
    for atomicity in (p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC):
        with pytest.raises(grpc.RpcError) as caught:
            controller.write(update("INSERT", names.next_hop(b"\x01")), atomicity=atomicity)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert table_entries(controller) == []


def test_reads_by_key_priority_action_and_metadata(controller, names):
    host, everything = names.route(b"\x0a\x00\x00\x01", 32), names.route(b"", 0)
    host.metadata, host.controller_metadata = b"mine", 7
    low, high = names.marking(b"\x05", b"\x09", 1), names.marking(b"\x05", b"\x09", 2)
    hop = names.next_hop(b"\x01")
    controller.write(*(update("INSERT", entry) for entry in (host, everything, low, high, hop)))

    routing, ecn = host.table_id, low.table_id
    assert table_entries(controller) == [host, everything, hop, low, high]
    assert table_entries(controller, table_id=routing) == [host, everything]
    assert table_entries(controller, table_id=routing, match=host.match) == [host]
    assert table_entries(controller, table_id=routing, metadata=b"mine") == [host]
    assert table_entries(controller, table_id=ecn, match=low.match) == [low, high]
    assert table_entries(controller, table_id=ecn, match=low.match, priority=2) == [high]
    assert table_entries(controller, action=names.action("forward", b"\x01", b"\x01", b"\x01")) == [hop]
    with pytest.raises(grpc.RpcError) as caught:
        table_entries(controller, table_id=UNKNOWN_ID)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "routing" in caught.value.details()


def test_priorities_are_needed_where_ranges_are_and_barred_elsewhere(names, outcome):
    assert outcome(update("INSERT", names.marking(b"\x01", b"\x02", 0))) == "INVALID_ARGUMENT"
    hop = names.next_hop(b"\x01")
    hop.priority = 1
    assert outcome(update("INSERT", hop)) == "INVALID_ARGUMENT"


def test_defaults_are_set_and_go_back_to_the_programs_own(controller, names, outcome):
    def present():
        (entry,) = table_entries(
            controller, table_id=names.tables["switch_identity"].preamble.id, is_default_action=True
        )
        return entry

    own = present()
    mine = names.default("switch_identity", names.action("set_switch_id", b"\x2a"))
    for kind in ("INSERT", "DELETE"):
        assert outcome(update(kind, mine)) == "INVALID_ARGUMENT"
    assert outcome(update("MODIFY", mine)) == "OK"
    assert present() == mine
    assert mine not in table_entries(controller)
    assert outcome(update("MODIFY", names.default("switch_identity"))) == "OK"
    assert present() == own != mine
    matched = names.default("switch_identity")
    matched.priority = 1
    assert outcome(update("MODIFY", matched)) == "INVALID_ARGUMENT"
    constant = names.default("next_hop", names.action("drop"))
    assert outcome(update("MODIFY", constant)) == "PERMISSION_DENIED"
    every = table_entries(controller, is_default_action=True)
    assert {entry.table_id for entry in every} == {table.preamble.id for table in names.tables.values()}


def test_an_action_of_another_table_or_of_the_default_entry_is_refused(names, outcome):
    foreign = names.next_hop(b"\x01")
    foreign.action.CopyFrom(names.action("set_switch_id", b"\x01"))
    assert outcome(update("INSERT", foreign)) == "INVALID_ARGUMENT"
    default_only = names.next_hop(b"\x01")
    default_only.action.CopyFrom(names.action("drop"))
    assert outcome(update("INSERT", default_only)) == "PERMISSION_DENIED"


def test_a_deletion_looks_at_the_key_alone(controller, names, outcome):
    assert outcome(update("INSERT", names.next_hop(b"\x05"))) == "OK"
    nonsense = names.next_hop(b"\x05")
    nonsense.action.action.action_id = UNKNOWN_ID
    nonsense.idle_timeout_ns, nonsense.metadata = -1, b"x"
    nonsense.meter_config.cir = -1
    assert outcome(update("DELETE", nonsense)) == "OK"
    assert table_entries(controller) == []


def test_a_table_without_a_key_takes_no_entries(names, outcome):
    entry = p4r.TableEntry(table_id=names.tables["switch_identity"].preamble.id)
    entry.action.CopyFrom(names.action("set_switch_id", b"\x01"))
    assert outcome(update("INSERT", entry)) == "INVALID_ARGUMENT"


def test_a_default_entry_does_not_age(names, outcome):
    entry = names.default("switch_identity", names.action("set_switch_id", b"\x01"))
    entry.idle_timeout_ns = 5
    assert outcome(update("MODIFY", entry)) == "INVALID_ARGUMENT"
    entry.idle_timeout_ns = 0
    entry.time_since_last_hit.SetInParent()
    assert outcome(update("MODIFY", entry)) == "INVALID_ARGUMENT"


def test_a_full_table_says_so(controller, names, batch_errors):
    size = names.tables["next_hop"].size
    entries = [names.next_hop(value.to_bytes(2, "big").lstrip(b"\0") or b"\0") for value in range(size + 1)]
    with pytest.raises(grpc.RpcError) as caught:
        controller.write(
            *(update("INSERT", entry) for entry in entries[size - 1 :]), update("DELETE", entries[0])
        )
    assert [code for code, _ in batch_errors(caught.value)] == ["OK", "OK", "NOT_FOUND"]
    rest = [update("INSERT", entry) for entry in entries[: size - 1]]
    controller.write(*rest[:-200])
    with pytest.raises(grpc.RpcError) as caught:
        controller.write(*rest[-200:])
    codes = [code for code, _ in batch_errors(caught.value)]
    assert codes == ["OK"] * 199 + ["RESOURCE_EXHAUSTED"]
    assert len(table_entries(controller, table_id=entries[0].table_id)) == size


@pytest.mark.parametrize(("failing", "detailed"), [(1, 400), (400, 300), (1000, 0)])
def test_a_failed_batch_of_any_length_reaches_a_client_with_grpcs_own_limits(
    controller, connect, rig, names, batch_errors, failing, detailed
):
    """A p4.Error for each update as long as they fit; then a text that names those that failed."""
    total = detailed or 1000
    batch = [
        update("DELETE", names.next_hop(bytes([9, index % 256]))) for index in range(min(failing, total))
    ]
    batch += [update("MODIFY", names.counter("egress_packets", 0))] * (total - len(batch))
    request = p4r.WriteRequest(
        device_id=1, updates=batch, election_id=p4r.Uint128(low=controller.election_id)
    )
    with grpc.insecure_channel(rig.server.address) as plain, pytest.raises(grpc.RpcError) as caught:
        p4r_grpc.P4RuntimeStub(plain).Write(request, timeout=300)
    failed = min(failing, total)
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert caught.value.details().startswith(f"{failed} of {total} updates failed")
    if detailed:
        codes = [code for code, _ in batch_errors(caught.value)]
        assert codes == ["NOT_FOUND"] * failed + ["OK"] * (total - failed)
    else:
        assert f"0-{failed - 1} NOT_FOUND" in caught.value.details()
        assert "shorter batches" in caught.value.details()
    assert len(caught.value.details()) < 2000


def test_counters_are_read_by_wildcard_and_index_and_written_by_index(controller, names, outcome):
    size = names.counters["egress_packets"].size
    assert outcome(update("MODIFY", names.counter("egress_packets", 9, packets=3, size=300))) == "OK"
    assert outcome(update("MODIFY", names.counter("egress_packets", size, packets=1))) == "OUT_OF_RANGE"
    # Data that are unset leave the counter as it is; no index writes them all.
    untouched = names.counter("egress_packets", 9)
    assert outcome(update("MODIFY", untouched)) == "OK"
    for kind in ("INSERT", "DELETE"):
        assert outcome(update(kind, names.counter("egress_packets", 9, packets=1))) == "INVALID_ARGUMENT"
    unknown = p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=UNKNOWN_ID))
    assert outcome(update("MODIFY", unknown)) == "NOT_FOUND"

    cells = [entity.counter_entry for entity in controller.read(names.counter("egress_packets"))]
    assert [cell.index.index for cell in cells] == list(range(size))
    assert {cell.index.index: cell.data for cell in cells if cell.data.packet_count} == {
        9: p4r.CounterData(packet_count=3, byte_count=300)
    }
    (one,) = controller.read(names.counter("egress_packets", 9))
    assert one.counter_entry == cells[9]
    everything = controller.read(p4r.Entity(counter_entry=p4r.CounterEntry()))
    assert len(everything) == sum(counter.size for counter in names.counters.values())
    assert outcome(update("MODIFY", names.counter("egress_packets", packets=4))) == "OK"
    cells = [entity.counter_entry.data for entity in controller.read(names.counter("egress_packets"))]
    assert cells == [p4r.CounterData(packet_count=4)] * size


def test_multicast_groups(controller, outcome):
    assert outcome(update("MODIFY", group(7, (1, 1)))) == "NOT_FOUND"
    assert outcome(update("INSERT", group(7, (1, 1), (2, 1)))) == "OK"
    assert outcome(update("INSERT", group(7, (1, 1)))) == "ALREADY_EXISTS"
    assert outcome(update("INSERT", group(8, (1, 1), (1, 1)))) == "INVALID_ARGUMENT"
    assert outcome(update("INSERT", group(8, (0, 1)))) == "INVALID_ARGUMENT"
    assert outcome(update("INSERT", group(0, (1, 1)))) == "INVALID_ARGUMENT"
    assert outcome(update("INSERT", group(1 << 16, (1, 1)))) == "INVALID_ARGUMENT"
    assert controller.read(group(0)) == [group(7, (1, 1), (2, 1))]
    assert outcome(update("MODIFY", group(7, (2, 5)))) == "OK"
    assert controller.read(group(7)) == [group(7, (2, 5))]
    assert outcome(update("DELETE", group(7))) == "OK"
    assert controller.read(group(0)) == []
    with pytest.raises(grpc.RpcError) as caught:
        controller.read(group(7))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_kinds_that_the_switch_has_not(controller, outcome):
    clone = p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry())
    assert controller.read(p4r.Entity(packet_replication_engine_entry=clone)) == []
    assert controller.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember())) == []
    assert outcome(update("MODIFY", p4r.Entity(register_entry=p4r.RegisterEntry()))) == "NOT_FOUND"
    with pytest.raises(grpc.RpcError) as caught:
        controller.read(p4r.Entity(extern_entry=p4r.ExternEntry()))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert outcome(update("MODIFY", p4r.Entity(extern_entry=p4r.ExternEntry()))) == "UNIMPLEMENTED"
    assert outcome(update("INSERT", p4r.Entity())) == "INVALID_ARGUMENT"


def test_reads_of_another_device_are_not_found(controller):
    request = p4r.ReadRequest(device_id=9)
    with pytest.raises(grpc.RpcError) as caught:
        list(controller.stub.Read(request))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
