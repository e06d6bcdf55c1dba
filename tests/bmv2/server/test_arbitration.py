# SPDX-License-Identifier: Apache-2.0
"""Arbitration between several clients of one switch, over real gRPC."""

import grpc
import pytest
from finsy.proto import U128, p4r, rpc_code
from google.protobuf import any_pb2

from bmv2.server import arbitration

ROLES = {rpc_code.OK: "primary", rpc_code.ALREADY_EXISTS: "backup", rpc_code.NOT_FOUND: "no primary"}

# What clients a, b and c do in turn, and what each is told: a claim of an election id, the claim that leaves
# it unset, a message that comes unasked (HEARS), the end of its stream. A new stream of a client that has left
# opens with its next claim. The situations are those of sonic-pins' p4rt_app/tests/arbitration_test.cc and
# tests/forwarding/arbitration_test.cc.
UNSET, HEARS, LEAVES = "claims nothing", "hears", "leaves"
SCENARIOS = {
    "a first claim wins": [("a", 1, "primary")],
    "the id 0 that is set wins": [("a", 0, "primary")],
    "an unset id never wins": [("a", UNSET, "no primary"), ("b", UNSET, "no primary")],
    "a lower id is a backup's, and the primary hears nothing": [("a", 2, "primary"), ("b", 1, "backup")],
    "a higher id takes over": [("a", 2, "primary"), ("b", 3, "primary"), ("a", HEARS, "backup")],
    "a takeover after a failed one": [
        *[("b", 2, "primary"), ("a", 1, "backup"), ("c", 3, "primary")],
        *[("b", HEARS, "backup"), ("a", HEARS, "backup")],
    ],
    "a primary that leaves leaves none": [
        *[("a", 2, "primary"), ("b", 1, "backup"), ("a", LEAVES, ""), ("b", HEARS, "no primary")],
    ],
    "a backup that leaves is missed by nobody": [("a", 2, "primary"), ("b", 1, "backup"), ("b", LEAVES, "")],
    "a primary raises its id, and all hear it": [
        *[("a", 2, "primary"), ("b", 1, "backup"), ("a", 3, "primary"), ("b", HEARS, "backup")],
    ],
    "a backup raises its id below the primary's, and the primary hears nothing": [
        *[("a", 3, "primary"), ("b", 1, "backup"), ("b", 2, "backup")],
    ],
    "a backup raises its id above the primary's": [
        *[("a", 2, "primary"), ("b", 1, "backup"), ("b", 3, "primary"), ("a", HEARS, "backup")],
    ],
    "a primary lowers its id": [
        *[("a", 2, "primary"), ("b", 0, "backup"), ("a", 1, "no primary"), ("b", HEARS, "no primary")],
    ],
    "a primary gives its id up": [
        *[("a", 2, "primary"), ("b", 1, "backup"), ("a", UNSET, "no primary"), ("b", HEARS, "no primary")],
    ],
    "a primary that gave its id up takes it again": [
        *[("a", 2, "primary"), ("b", 1, "backup"), ("a", UNSET, "no primary"), ("b", HEARS, "no primary")],
        *[("a", 2, "primary"), ("b", HEARS, "backup")],
    ],
    "a primary comes back with its id": [("a", 2, "primary"), ("a", LEAVES, ""), ("a", 2, "primary")],
    "a primary does not come back with a lower id": [
        *[("a", 2, "primary"), ("a", LEAVES, ""), ("a", 1, "no primary"), ("a", 2, "primary")],
    ],
    "a backup takes the id of a primary that left": [
        *[("a", 2, "primary"), ("b", UNSET, "backup"), ("a", LEAVES, ""), ("b", HEARS, "no primary")],
        ("b", 2, "primary"),
    ],
    "a backup's id does not win when the primary has left": [
        *[("b", 2, "primary"), ("a", 1, "backup"), ("b", LEAVES, ""), ("a", HEARS, "no primary")],
        *[("c", 1, "used"), ("c", 2, "primary"), ("a", HEARS, "backup")],
    ],
    "a primary claims again what it has": [("a", 2, "primary"), ("a", 2, "primary"), ("a", 2, "primary")],
    "an id is one client's": [("a", 2, "primary"), ("b", 2, "used"), ("b", 1, "backup"), ("c", 1, "used")],
    "many take over from each other": [
        *[("a", 5, "primary"), ("b", 2, "backup"), ("c", 5, "used"), ("a", LEAVES, "")],
        *[("b", HEARS, "no primary"), ("c", 4, "no primary"), ("b", 6, "primary"), ("c", HEARS, "backup")],
        *[("a", 5, "backup"), ("c", 7, "primary"), ("b", HEARS, "backup"), ("a", HEARS, "backup")],
        *[("c", UNSET, "no primary"), ("b", HEARS, "no primary"), ("a", HEARS, "no primary")],
        *[("b", 8, "primary"), ("a", HEARS, "backup"), ("c", HEARS, "backup")],
    ],
}


def claim(client, election_id):
    message = p4r.MasterArbitrationUpdate(device_id=1)
    if election_id != UNSET:
        message.election_id.CopyFrom(U128.encode(election_id))
    client.send(arbitration=message)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_who_is_told_what(scenario, connect):
    """Every message that a client gets is one that its scenario names, in that order.

    Each tells the highest election id ever, unset before there was one.
    """
    clients = {}
    highest = None
    for who, deed, told in SCENARIOS[scenario]:
        if deed == LEAVES:
            clients[who].hang_up()
            # Its stream has ended, so the others have been told.
            assert clients.pop(who).inbox.get() is None
            continue
        if who not in clients:
            clients[who] = connect()
        client = clients[who]
        if deed != HEARS:
            claim(client, deed)
        if told == "used":
            with pytest.raises(grpc.RpcError) as caught:
                client.next()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            del clients[who]
            continue
        if isinstance(deed, int):
            highest = deed if highest is None else max(highest, deed)
        answer = client.next().arbitration
        known = U128.decode(answer.election_id) if answer.HasField("election_id") else None
        assert (who, ROLES[answer.status.code], known) == (who, told, highest)
    for client in clients.values():
        # An empty message is answered in its turn: nothing else was on its way.
        client.send()
        assert client.next().error.canonical_code == rpc_code.UNIMPLEMENTED


def refusal(call, *arguments, **named):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **named)
    return caught.value.code()


def test_a_primary_that_has_left_cannot_write(connect, config):
    client = connect()
    client.arbitrate(2)
    client.set_config(config)
    client.hang_up()
    assert client.inbox.get() is None
    assert refusal(client.write) is grpc.StatusCode.PERMISSION_DENIED


def test_only_the_primary_pushes_and_writes_and_all_read(connect, config):
    """Also one that is a backup by its own choice, and before its request is looked at further."""
    first, second, third = connect(), connect(), connect()
    first.arbitrate(2)
    first.set_config(config)
    second.arbitrate(1)
    claim(third, UNSET)
    third.next()
    empty = p4r.SetForwardingPipelineConfigRequest(device_id=1)
    denied = grpc.StatusCode.PERMISSION_DENIED
    assert refusal(third.stub.SetForwardingPipelineConfig, empty) is denied
    assert refusal(third.stub.Write, p4r.WriteRequest(device_id=1)) is denied
    assert refusal(second.set_config, config) is denied
    assert refusal(second.write) is denied
    defaults = p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True))
    assert second.read(defaults) == third.read(defaults) == first.read(defaults)
    # The old primary's id is no more good when another has taken over, nor its own when it has stepped down.
    second.arbitrate(3)
    assert refusal(first.write) is denied
    second.write()
    second.arbitrate(4)
    second.arbitrate(1)
    assert refusal(second.write) is denied


def test_an_empty_message_before_the_first_claim_leaves_the_stream_open(connect):
    client = connect()
    client.send()
    assert client.next().error.canonical_code == rpc_code.UNIMPLEMENTED
    assert client.arbitrate(1).status.code == rpc_code.OK


def test_highest_election_id_ever_is_primary_and_all_are_told(rig, connect):
    first, second, third = connect(), connect(), connect()
    assert first.arbitrate(10).status.code == rpc_code.OK
    assert rig.server.connected

    answer = second.arbitrate(5)
    assert answer.status.code == rpc_code.ALREADY_EXISTS
    assert U128.decode(answer.election_id) == 10

    assert third.arbitrate(20).status.code == rpc_code.OK
    for backup in (first, second):
        told = backup.next().arbitration
        assert told.status.code == rpc_code.ALREADY_EXISTS
        assert U128.decode(told.election_id) == 20

    third.hang_up()
    for backup in (first, second):
        told = backup.next().arbitration
        assert told.status.code == rpc_code.NOT_FOUND
        assert U128.decode(told.election_id) == 20
    assert not rig.server.connected

    # 10 is the highest of those present, but not the highest ever: nobody is the primary.
    assert first.arbitrate(10).status.code == rpc_code.NOT_FOUND
    assert first.arbitrate(20).status.code == rpc_code.OK


def test_a_primary_that_lowers_its_id_steps_down(connect):
    client = connect()
    client.arbitrate(10)
    answer = client.arbitrate(9)
    assert answer.status.code == rpc_code.NOT_FOUND
    assert U128.decode(answer.election_id) == 10


def test_a_client_without_an_election_id_is_always_a_backup(rig, connect):
    """Any number of them: an unset id is not the id 0, and is lower than that."""
    for client in (connect(), connect()):
        client.send(arbitration=p4r.MasterArbitrationUpdate(device_id=1))
        told = client.next().arbitration
        assert told.status.code == rpc_code.NOT_FOUND
        assert not told.HasField("election_id")
    assert not rig.server.connected


def test_election_id_zero_that_is_set_may_be_the_primarys(connect, config):
    client = connect()
    told = client.arbitrate(0)
    assert told.status.code == rpc_code.OK
    assert told.HasField("election_id")
    client.set_config(config)
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Write(p4r.WriteRequest(device_id=1))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert connect().arbitrate(1).status.code == rpc_code.OK


def test_a_role_that_no_client_ever_had_is_not_found(connect, config):
    client = connect()
    client.arbitrate(10)
    client.set_config(config)
    request = p4r.WriteRequest(device_id=1, election_id=p4r.Uint128(low=10), role="telemetry")
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Write(request)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    connect().arbitrate(3, role="telemetry")
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Write(request)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_an_election_id_in_use_is_refused_and_the_stream_closed(connect):
    connect().arbitrate(10)
    with pytest.raises(grpc.RpcError) as caught:
        connect().arbitrate(10)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Election ID 10 is already used" in caught.value.details()


def test_a_later_election_id_in_use_is_refused_too(connect):
    first, second = connect(), connect()
    first.arbitrate(10)
    second.arbitrate(9)
    with pytest.raises(grpc.RpcError) as caught:
        second.arbitrate(10)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    # Its own id is none of another's.
    assert first.arbitrate(10).status.code == rpc_code.OK


def test_a_restart_forgets_the_highest_election_id(connect, start_rig):
    assert connect().arbitrate(10).status.code == rpc_code.OK
    assert connect(start_rig().server.address).arbitrate(1).status.code == rpc_code.OK


def test_roles_elect_apart_and_a_stream_keeps_its_role(connect):
    plain, special = connect(), connect()
    assert plain.arbitrate(10).status.code == rpc_code.OK
    assert special.arbitrate(10, role="telemetry").status.code == rpc_code.OK
    with pytest.raises(grpc.RpcError) as caught:
        special.arbitrate(11)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_another_device_id_is_not_found(connect):
    with pytest.raises(grpc.RpcError) as caught:
        connect(device_id=2).arbitrate(10)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "device 1" in caught.value.details()


def test_the_first_message_must_be_arbitration(connect):
    client = connect()
    client.send(packet=p4r.PacketOut(payload=b"x"))
    with pytest.raises(grpc.RpcError) as caught:
        client.next()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_write_checks_device_then_primary_then_pipeline(connect, config):
    client = connect()
    client.arbitrate(10)

    def code(device_id: int, election_id: int) -> grpc.StatusCode:
        request = p4r.WriteRequest(device_id=device_id, election_id=U128.encode(election_id))
        with pytest.raises(grpc.RpcError) as caught:
            client.stub.Write(request)
        return caught.value.code()

    assert code(2, 9) is grpc.StatusCode.NOT_FOUND
    assert code(1, 9) is grpc.StatusCode.PERMISSION_DENIED
    assert code(1, 0) is grpc.StatusCode.PERMISSION_DENIED
    assert code(1, 10) is grpc.StatusCode.FAILED_PRECONDITION

    client.set_config(config)
    client.write()

    backup = connect()
    backup.arbitrate(5)
    with pytest.raises(grpc.RpcError) as caught:
        backup.write()
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert len(backup.read(p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True)))) > 0


def test_a_role_definition_is_refused_for_no_scheme_is_agreed(connect):
    client = connect()
    role = p4r.Role(name="telemetry", config=any_pb2.Any(type_url="example/Scheme"))
    client.send(
        arbitration=p4r.MasterArbitrationUpdate(device_id=1, election_id=p4r.Uint128(low=5), role=role)
    )
    with pytest.raises(grpc.RpcError) as caught:
        client.next()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "role.config" in caught.value.details()


def test_a_stream_cannot_change_its_device(connect):
    client = connect()
    client.arbitrate(5)
    client.send(arbitration=p4r.MasterArbitrationUpdate(device_id=9, election_id=p4r.Uint128(low=6)))
    with pytest.raises(grpc.RpcError) as caught:
        client.next()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_a_hundred_clients_at_once(rig, connect):
    clients = [connect() for _ in range(100)]
    for election_id, client in enumerate(clients, start=1):
        assert client.arbitrate(election_id).status.code == rpc_code.OK
    clients[-1].hang_up()
    # Every other one has heard of each primary after it, and last that there is none.
    told = [clients[0].next().arbitration for _ in range(100)]
    assert [U128.decode(update.election_id) for update in told] == [*range(2, 101), 100]
    assert told[-1].status.code == rpc_code.NOT_FOUND


def test_roles_without_end_are_refused(connect, monkeypatch):
    monkeypatch.setattr(arbitration, "_MAX_ROLES", 2)
    assert connect().arbitrate(1, role="a").status.code == rpc_code.OK
    assert connect().arbitrate(1, role="b").status.code == rpc_code.OK
    codes = []
    for name in ("c", "n" * 257):
        with pytest.raises(grpc.RpcError) as caught:
            connect().arbitrate(1, role=name)
        codes.append(caught.value.code())
    assert codes == [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT]
    # Those that are known, and the default role, are served.
    assert connect().arbitrate(2, role="a").status.code == rpc_code.OK
    assert connect().arbitrate(1).status.code == rpc_code.OK
