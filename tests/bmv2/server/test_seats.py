# SPDX-License-Identifier: Apache-2.0
"""Clients that do not read, and more streams than the server holds: the primary is served."""

import queue
import socket
import threading

import grpc
import pytest
from finsy.proto import gnmi_grpc, p4r, p4r_grpc, rpc_code
from p4rt_rig import PATIENCE_S

from bmv2.server import outbox, service
from bmv2.server.errors import RESOURCE_EXHAUSTED, StatusError
from bmv2.server.seats import Seats

PAYLOAD = bytes(1000)
# An HTTP/2 window and what gRPC has under way, in messages of a kilobyte.
_UNDER_WAY = 2000


class Silent:
    """A stream that says nothing and reads nothing."""

    def __init__(self, address, first=()):
        self._channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._over = threading.Event()
        self.call = p4r_grpc.P4RuntimeStub(self._channel).StreamChannel(self._say(first))

    def _say(self, first):
        yield from first
        self._over.wait(PATIENCE_S)

    def close(self):
        self._over.set()
        self._channel.close()


@pytest.fixture
def silent(rig):
    opened = []

    def open_some(count, first=()):
        opened.extend(Silent(rig.server.address, first) for _ in range(count))
        return opened[-count:]

    yield open_some
    for stream in opened:
        stream.close()


def test_packet_ins_for_a_client_that_does_not_read_are_bounded(rig, connect, config, silent, monkeypatch):
    monkeypatch.setattr(outbox.Outbox.__init__, "__defaults__", (100, 1 << 20))
    claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=p4r.Uint128(low=5))
    (deaf,) = silent(1, [p4r.StreamMessageRequest(arbitration=claim)])
    assert next(deaf.call).arbitration.status.code == rpc_code.OK
    request = p4r.SetForwardingPipelineConfigRequest(
        device_id=1, election_id=claim.election_id, action="VERIFY_AND_COMMIT", config=config
    )
    with grpc.insecure_channel(rig.server.address) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        stub.SetForwardingPipelineConfig(request, timeout=PATIENCE_S)
        service_of = rig.switch.packet_in

        def burst():
            for number in range(_UNDER_WAY + 1000):
                service_of(number.to_bytes(2, "big") + PAYLOAD)

        rig.on_data_plane(burst)
        assert rig.server.unread_messages > 500
        # Others are served meanwhile, and the client that reads at last gets the newest.
        stub.Write(p4r.WriteRequest(device_id=1, election_id=claim.election_id), timeout=PATIENCE_S)
    lost = rig.server.unread_messages
    last = None
    for _ in range(_UNDER_WAY + 1000 - lost):
        last = next(deaf.call).packet
    assert last.payload.endswith(PAYLOAD[:100])


def test_more_silent_streams_than_seats(start_rig, connect, config, monkeypatch):
    count = 40
    monkeypatch.setattr(service, "_P4RUNTIME_STREAMS", 8)
    monkeypatch.setattr(service, "_GNMI_STREAMS", 2)
    monkeypatch.setattr(service, "_THREADS", 12)
    rig = start_rig()
    primary = connect(rig.server.address)
    assert primary.arbitrate(5).status.code == rpc_code.OK
    streams = [Silent(rig.server.address) for _ in range(count)]
    over: queue.SimpleQueue[Silent] = queue.SimpleQueue()
    for stream in streams:
        stream.call.add_done_callback(lambda _, stream=stream: over.put(stream))
    try:
        # They come in any order. One seat is the primary's.
        ended = [over.get(timeout=PATIENCE_S) for _ in range(count - 7)]
        assert {stream.call.code() for stream in ended} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        # Unary calls and the primary's stream go on, and a new client finds a place.
        primary.set_config(config)
        primary.write()
        later = connect(rig.server.address)
        assert later.arbitrate(6).status.code == rpc_code.OK
        assert primary.next().arbitration.status.code == rpc_code.ALREADY_EXISTS
        later.write()
        with grpc.insecure_channel(rig.server.address) as channel:
            calls = [gnmi_grpc.gNMIStub(channel).Subscribe(iter(())) for _ in range(5)]
            later.write()
            for call in calls:
                call.cancel()
    finally:
        for stream in streams:
            stream.close()


def test_a_connection_that_says_nothing_is_closed(start_rig, connect, config, monkeypatch):
    changed = tuple((key, 300 if "handshake" in key else value) for key, value in service._OPTIONS)
    assert changed != service._OPTIONS
    monkeypatch.setattr(service, "_OPTIONS", changed)
    rig = start_rig()
    host, _, port = rig.server.address.rpartition(":")
    silent = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(50)]
    # A controller that comes meanwhile is served.
    primary = connect(rig.server.address)
    assert primary.arbitrate(5).status.code == rpc_code.OK
    primary.set_config(config)
    for connection in silent:
        with connection:
            # What HTTP/2 says first, and then the end.
            while connection.recv(4096):
                pass
    primary.write()


def test_streams_that_have_spoken_keep_their_seats():
    class Stream:
        evicted = None

        def evict(self, error):
            self.evicted = error.code

    seats, first, second, third = Seats(2), Stream(), Stream(), Stream()
    seats.take(first)
    seats.take(second)
    seats.spoke(first)
    seats.take(third)
    assert (first.evicted, second.evicted) == (None, RESOURCE_EXHAUSTED)
    seats.spoke(third)
    with pytest.raises(StatusError, match="2 are open"):
        seats.take(Stream())
    seats.leave(first)
    seats.take(Stream())


def test_packet_outs_that_the_data_plane_has_not_taken_are_bounded(rig, controller, monkeypatch):
    from bmv2.server import p4runtime

    monkeypatch.setattr(p4runtime, "_MAX_PACKET_OUTS", 3)
    held, go_on = threading.Event(), threading.Event()

    def hold():
        held.set()
        assert go_on.wait(PATIENCE_S)

    rig.loop.deliver("leaf1", hold)
    assert held.wait(PATIENCE_S)
    packet = p4r.PacketOut(payload=PAYLOAD)
    for metadata, value in ((1, b"\1"), (2, b"\0"), (3, b"\0")):
        packet.metadata.add(metadata_id=metadata, value=value)
    for _ in range(4):
        controller.send(packet=packet)
    try:
        error = controller.next().error
        assert error.canonical_code == rpc_code.RESOURCE_EXHAUSTED
    finally:
        go_on.set()
    assert [rig.next_frame()[0] for _ in range(3)] == [1, 1, 1]
    controller.send(packet=packet)
    assert rig.next_frame()[0] == 1
