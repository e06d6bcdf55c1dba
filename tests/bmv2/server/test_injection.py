# SPDX-License-Identifier: Apache-2.0
"""BMv2's data-plane service: frames in and out over gRPC, one client, ports up and down."""

import queue
import threading
from functools import partial

import grpc
import pytest
from finsy.proto import p4r
from p4rt_rig import PATIENCE_S, CountingLoop

from bmv2.program import load_program
from bmv2.server import InjectionService, serve_injection
from bmv2.server.dataplane import DataPlane
from bmv2.server.injection import OPER_DOWN, OPER_UP, SERVICE, messages
from bmv2.server.schema import Schema
from bmv2.server.store import EntityStore
from bmv2.switch import EmbeddedSwitch

DEVICE = 7
FRAME = bytes.fromhex("020000000001020000000002") + b"\x08\x00"


class FrameClient:
    """A client of the service."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self._requests = queue.SimpleQueue()
        self.answers = self.channel.stream_stream(
            f"/{SERVICE}/PacketStream",
            request_serializer=messages.PacketStreamRequest.SerializeToString,
            response_deserializer=messages.PacketStreamResponse.FromString,
        )(iter(self._requests.get, None), timeout=PATIENCE_S)
        self._set_status = self.channel.unary_unary(
            f"/{SERVICE}/SetPortOperStatus",
            request_serializer=messages.SetPortOperStatusRequest.SerializeToString,
            response_deserializer=messages.SetPortOperStatusResponse.FromString,
        )

    def send(self, port, packet, *, device=DEVICE, ident=0):
        self._requests.put(messages.PacketStreamRequest(id=ident, device_id=device, port=port, packet=packet))

    def end(self):
        self._requests.put(None)

    def set_status(self, port, status, device=DEVICE):
        request = messages.SetPortOperStatusRequest(device_id=device, port=port, oper_status=status)
        self._set_status(request, timeout=PATIENCE_S)

    def rest(self):
        """Say no more, and give all that is still to come as (port, id, frame)."""
        self.end()
        return [(answer.port, answer.id, answer.packet) for answer in self.answers]


def routed(ttl=64):
    packet = bytearray(bytes.fromhex("4500001400000000400100000a0000010a000002"))
    packet[8] = ttl
    total = sum(int.from_bytes(packet[at : at + 2], "big") for at in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    packet[10:12] = (0xFFFF - total).to_bytes(2, "big")
    return FRAME + bytes(packet)


def program_route(switch, config):
    """All of 10.0.0.0/8 leaves by port 2."""
    schema = Schema.parse(config.p4info, switch.program.ir)
    plane = DataPlane(switch, lambda kind, message: None)
    store = EntityStore(schema, switch.program.ir)
    tables = {table.name: table for table in schema.tables.values()}
    actions = {action.name: action for action in schema.actions.values()}
    route = p4r.TableEntry(table_id=tables["routing"].id)
    lpm = route.match.add(field_id=1).lpm
    lpm.value, lpm.prefix_len = b"\x0a\x00\x00\x00", 8
    hop = p4r.TableEntry(table_id=tables["next_hop"].id)
    hop.match.add(field_id=1).exact.value = b"\x01"
    for entry, name, values in ((route, "set_next_hop", (1,)), (hop, "forward", (2, 3, 4))):
        entry.action.action.action_id = actions[name].id
        for param, value in zip(actions[name].params, values, strict=True):
            entry.action.action.params.add(param_id=param.id, value=bytes([value]))
        update = p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=entry))
        store.apply(update)(plane)


@pytest.fixture
def injected(config):
    """The address of a served switch that routes everything to port 2, and the switch."""
    loop = CountingLoop()
    switch = EmbeddedSwitch("leaf1", loop)
    switch.load(load_program(config.p4_device_config))
    program_route(switch, config)
    service = InjectionService(switch, loop, DEVICE)
    for port in (1, 2):
        switch.add_port(port, rate_bps=None, transmit=partial(service.transmit, port))
    server = serve_injection(service, address="127.0.0.1:0")
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    yield server.address, switch
    server.stop()
    loop.stop()
    thread.join(PATIENCE_S)
    loop.close()


def test_frames_come_and_go_with_the_id_of_their_cause(injected):
    client = FrameClient(injected[0])
    for ident in (0, 5, 9):
        client.send(1, routed(), ident=ident)
    client.send(1, routed(), device=DEVICE + 1, ident=11)
    client.send(1, b"", ident=12)
    client.send(400, routed(), ident=13)
    client.send(1 << 20, routed(), ident=14)
    out = client.rest()
    assert [(port, ident) for port, ident, _ in out] == [(2, 0), (2, 5), (2, 9)]
    assert {frame[22] for _, _, frame in out} == {63}


def test_one_client_at_a_time(injected):
    first = FrameClient(injected[0])
    first.send(1, routed())
    assert next(first.answers).port == 2
    with pytest.raises(grpc.RpcError) as caught:
        next(FrameClient(injected[0]).answers)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert first.rest() == []
    assert FrameClient(injected[0]).rest() == []


def test_a_port_that_is_down_takes_and_gives_nothing(injected):
    address, switch = injected
    for port in (1, 2):
        client = FrameClient(address)
        client.set_status(port, OPER_DOWN)
        assert not switch.port_up(port)
        client.send(1, routed(), ident=1)
        assert client.rest() == []
        client = FrameClient(address)
        client.set_status(port, OPER_UP)
        client.send(1, routed(), ident=2)
        assert [ident for _, ident, _ in client.rest()] == [2]


@pytest.mark.parametrize(
    ("port", "status", "device", "said"),
    [(1, OPER_UP, 1, "device 1"), (1, 0, DEVICE, "oper status 0"), (99, OPER_UP, DEVICE, "port 99")],
)
def test_a_status_that_makes_no_sense_is_refused(injected, port, status, device, said):
    with pytest.raises(grpc.RpcError) as caught:
        FrameClient(injected[0]).set_status(port, status, device)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert said in caught.value.details()
