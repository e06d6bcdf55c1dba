# SPDX-License-Identifier: Apache-2.0
"""Reads whose clients do not take the answers, and batches of reads that are not all legal."""

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc
from p4rt_bench import aged
from p4rt_rig import PATIENCE_S

from bmv2.server import p4runtime, reads, service
from bmv2.server.deliveries import Deliveries
from bmv2.server.errors import RESOURCE_EXHAUSTED, StatusError


class Call:
    def __init__(self):
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def refused(function, *args):
    with pytest.raises(StatusError) as caught:
        function(*args)
    return caught.value.code


def test_a_call_that_stands_still_gives_way_after_its_patience():
    clock = Clock()
    deliveries = Deliveries(2, 100, 10.0, clock)
    old, moving, new, last = (Call() for _ in range(4))
    deliveries.begin(old)
    deliveries.begin(moving)
    assert refused(deliveries.begin, new) == RESOURCE_EXHAUSTED
    clock.now = 9.0
    deliveries.taken(moving, 0)
    clock.now = 11.0
    deliveries.begin(new)
    assert (old.cancelled, moving.cancelled, new.cancelled) == (True, False, False)
    deliveries.end(old)
    assert refused(deliveries.begin, last) == RESOURCE_EXHAUSTED
    deliveries.end(moving)
    deliveries.begin(last)


def test_the_entities_under_way_are_bounded():
    clock = Clock()
    deliveries = Deliveries(10, 100, 10.0, clock)
    one, two, three = (Call() for _ in range(3))
    for call in (one, two, three):
        deliveries.begin(call)
    deliveries.hold(one, 60)
    assert refused(deliveries.hold, two, 60) == RESOURCE_EXHAUSTED
    deliveries.taken(one, 20)
    deliveries.hold(two, 60)
    deliveries.end(two)
    deliveries.hold(three, 60)
    clock.now = 11.0
    four = Call()
    deliveries.begin(four)
    deliveries.hold(four, 100)
    assert one.cancelled
    assert three.cancelled
    assert not four.cancelled
    # What was ended takes and holds no more.
    deliveries.taken(one, 40)
    deliveries.hold(three, 50)
    deliveries.end(four)
    deliveries.hold(four, 1)
    five = Call()
    deliveries.begin(five)
    deliveries.hold(five, 100)


# All counters so many times: far more than an HTTP/2 window, so that the answer waits for its client.
MUCH = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(counter_entry=p4r.CounterEntry())] * 10)


# A window that does not grow, so that little is much.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]


@pytest.mark.slow
def test_reads_that_nobody_takes_give_way(start_rig, connect, config, monkeypatch):
    monkeypatch.setattr(p4runtime, "_READS", 3)
    monkeypatch.setattr(p4runtime, "_READ_PATIENCE_S", 0.0)
    monkeypatch.setattr(service, "_THREADS", 8)
    rig = start_rig()
    primary = connect(rig.server.address)
    primary.arbitrate(1)
    primary.set_config(config)
    wanted = len(list(primary.stub.Read(MUCH, timeout=PATIENCE_S)))
    channels = [grpc.insecure_channel(rig.server.address, options=OWN_CONNECTION) for _ in range(12)]
    try:
        calls = []
        for channel in channels:
            calls.append(p4r_grpc.P4RuntimeStub(channel).Read(MUCH))
            # Its first chunk: the server is at it.
            next(calls[-1])
        primary.write()
        assert len(primary.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=0)))) == 0
        for call in calls[:9]:
            with pytest.raises(grpc.RpcError) as caught:
                list(call)
            assert caught.value.code() is grpc.StatusCode.CANCELLED
        assert len(list(calls[-1])) == wanted - 1
    finally:
        for channel in channels:
            channel.close()


def entity(table):
    return p4r.Entity(table_entry=p4r.TableEntry(table_id=table))


def test_of_a_batch_of_reads_the_legal_ones_are_answered(bench, batch_errors):
    assert bench.write("INSERT", aged(1)) == "OK"
    table = bench.ids["aged"]
    request = p4r.ReadRequest(device_id=1)
    request.entities.extend([entity(table), entity(7), p4r.Entity(), entity(table)])
    answers = bench.client.stub.Read(request, timeout=PATIENCE_S)
    assert [item.table_entry.table_id for item in next(answers).entities] == [table, table]
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    codes = [code for code, _ in batch_errors(caught.value)]
    assert codes == ["OK", "NOT_FOUND", "INVALID_ARGUMENT", "OK"]


def test_a_read_of_one_request_has_its_code(bench):
    request = p4r.ReadRequest(device_id=1, entities=[entity(7)])
    with pytest.raises(grpc.RpcError) as caught:
        list(bench.client.stub.Read(request, timeout=PATIENCE_S))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_read_of_too_many_requests_is_refused(bench, monkeypatch):
    monkeypatch.setattr(reads, "MAX_REQUESTS", 2)
    with pytest.raises(grpc.RpcError) as caught:
        bench.client.read(*[entity(0)] * 3)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
