# SPDX-License-Identifier: Apache-2.0
"""Arbitration between several clients of one switch, over real gRPC."""

import grpc
import pytest
from finsy.proto import U128, p4r, rpc_code
from google.protobuf import any_pb2


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
