# SPDX-License-Identifier: Apache-2.0
"""Packet I/O between a client and the ports of a switch, and what the border counts of it."""

import pytest
from finsy.proto import p4r, rpc_code
from google.protobuf import any_pb2

# A link probe: goes out of the port it is told to, and to the CPU where it comes in.
PROBE = b"\xff" * 6 + b"\x02\x00\x00\x00\x00\x01" + b"\x88\xb5" + b"are you there?" + b"\0" * 32


def packet_out(port, payload=PROBE, pad=b"\x00"):
    packet = p4r.PacketOut(payload=payload)
    for field, value in ((1, bytes([port])), (2, b"\x00"), (3, pad)):
        packet.metadata.add(metadata_id=field, value=value)
    return packet


def arrive(rig, port, frame):
    rig.on_data_plane(lambda: rig.switch.receive(port, frame))


def metadata(packet):
    return {item.metadata_id: int.from_bytes(item.value, "big") for item in packet.metadata}


def test_a_packet_out_leaves_by_its_port_and_is_counted(rig, controller):
    controller.send(packet=packet_out(2))
    assert rig.next_frame() == (2, PROBE)
    controller.send(packet=packet_out(1, PROBE + b"more"))
    assert rig.next_frame() == (1, PROBE + b"more")
    assert rig.loop.arrivals(2) == {"packet_out:leaf1": 2}


def test_a_packet_in_carries_its_port_and_reason_and_is_counted(rig, controller):
    arrive(rig, 2, PROBE)
    packet = controller.next().packet
    assert packet.payload == PROBE
    assert metadata(packet)[1] == 2
    assert metadata(packet)[2] == 2
    assert rig.loop.departures == {"packet_in:leaf1": 1}


def test_packet_ins_go_to_the_primary_alone_and_are_lost_without_one(rig, controller, connect):
    backup = connect()
    backup.arbitrate(5)
    arrive(rig, 1, PROBE)
    assert controller.next().WhichOneof("update") == "packet"

    controller.hang_up()
    assert backup.next().arbitration.status.code == rpc_code.NOT_FOUND
    arrive(rig, 1, PROBE)
    assert rig.server.dropped_packet_ins == 1
    assert rig.loop.departures == {"packet_in:leaf1": 1}
    assert backup.inbox.empty()


@pytest.mark.parametrize(
    ("spoil", "code", "said"),
    [
        (lambda packet: packet.metadata.pop(), rpc_code.INVALID_ARGUMENT, "missing"),
        (lambda packet: packet.metadata.add(metadata_id=1, value=b"\1"), rpc_code.INVALID_ARGUMENT, "twice"),
        (
            lambda packet: packet.metadata.add(metadata_id=9, value=b"\1"),
            rpc_code.INVALID_ARGUMENT,
            "unknown",
        ),
        (lambda packet: packet.metadata[0].ClearField("value"), rpc_code.INVALID_ARGUMENT, "empty"),
        (lambda packet: setattr(packet.metadata[1], "value", b"\2"), rpc_code.OUT_OF_RANGE, "1 bits"),
    ],
)
def test_a_bad_packet_out_is_answered_on_the_stream_and_still_counted(rig, controller, spoil, code, said):
    packet = packet_out(2)
    spoil(packet)
    controller.send(packet=packet)
    error = controller.next().error
    assert error.canonical_code == code
    assert said in error.message
    assert error.packet_out.packet_out == packet
    controller.send(packet=packet_out(2))
    assert rig.next_frame() == (2, PROBE)
    assert rig.loop.arrivals(2) == {"packet_out:leaf1": 2}


def test_a_backup_sends_no_packets_and_none_are_counted(rig, controller, connect):
    backup = connect()
    backup.arbitrate(5)
    backup.send(packet=packet_out(2))
    assert backup.next().error.canonical_code == rpc_code.PERMISSION_DENIED
    assert rig.loop.arrivals(0) == {}
    assert rig.sent.empty()


def test_unsupported_stream_messages_are_answered(controller):
    controller.send(digest_ack=p4r.DigestListAck(digest_id=1))
    assert controller.next().error.canonical_code == rpc_code.INVALID_ARGUMENT
    other = any_pb2.Any(type_url="example/Thing")
    controller.send(other=other)
    error = controller.next().error
    assert (error.canonical_code, error.other.other) == (rpc_code.UNIMPLEMENTED, other)


def test_an_error_about_a_large_message_does_not_end_the_stream_of_its_client(controller):
    # gRPC's clients take messages of 4 MiB.
    controller.send(other=any_pb2.Any(type_url="t" * (5 << 20), value=bytes(1)))
    error = controller.next().error
    assert error.WhichOneof("details") == "other"
    assert len(error.message) < 1000
    controller.send(packet=p4r.PacketOut(payload=bytes(5 << 20)))
    error = controller.next().error
    assert (error.canonical_code, error.WhichOneof("details")) == (rpc_code.INVALID_ARGUMENT, "packet_out")
    packet = packet_out(2)
    packet.metadata[0].value = b"\xff" * (3 << 20)
    controller.send(packet=packet)
    error = controller.next().error
    assert (error.canonical_code, error.message) == (
        rpc_code.OUT_OF_RANGE,
        "packet-out: metadata egress_port: a number of 25165824 bits does not fit into 9 bits",
    )
    assert controller.arbitrate(1000).status.code == rpc_code.OK


def test_an_empty_message_is_answered_and_the_stream_goes_on(connect):
    client = connect()
    client.send()
    assert client.next().error.canonical_code == rpc_code.UNIMPLEMENTED
    assert client.arbitrate(1).status.code == rpc_code.OK


def test_a_delay_of_every_message_changes_neither_content_nor_order(start_rig, connect, config):
    slow = start_rig(rpc_delay_s=0.02)
    client = connect(slow.server.address)
    assert client.arbitrate(1000).status.code == rpc_code.OK
    client.set_config(config)
    payloads = [PROBE + bytes([number]) for number in range(20)]
    for payload in payloads:
        client.send(packet=packet_out(1, payload))
    assert [slow.next_frame() for _ in payloads] == [(1, payload) for payload in payloads]
    for payload in payloads:
        arrive(slow, 2, payload)
    assert [client.next().packet.payload for _ in payloads] == payloads
    assert slow.loop.arrivals(20) == {"packet_out:leaf1": 20}
    assert slow.loop.departures == {"packet_in:leaf1": 20}
