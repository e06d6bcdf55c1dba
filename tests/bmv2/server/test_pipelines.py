# SPDX-License-Identifier: Apache-2.0
"""Pipelines that are saved before they are committed, and takeovers while one is pushed or written."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from finsy.proto import U128, p4r, rpc_code
from p4rt_bench import aged, config_of

from bmv2.server import p4runtime, pipelines
from bmv2.server.arbitration import Arbiter
from bmv2.server.errors import StatusError

Get = p4r.GetForwardingPipelineConfigRequest
PATIENCE_S = 60


def test_what_is_written_after_a_save_takes_effect_with_the_commit(bench, entities_config):
    assert bench.write("INSERT", aged(1, 2)) == "OK"
    bench.client.set_config(entities_config, "VERIFY_AND_SAVE")
    # Reads and writes are about the saved pipeline, packets meet the old one.
    assert bench.read("table_entry { }") == []
    assert bench.ports(3, 1) == [2]
    assert bench.write("INSERT", aged(1, 3)) == "OK"
    assert bench.write("INSERT", aged(1, 3)) == "ALREADY_EXISTS"
    assert bench.write("INSERT", aged(9, 4, "counter_data { packet_count: 5 }")) == "OK"
    assert bench.write("MODIFY", "register_entry { register_id: $seen data { bitstring: '\\x08' } }") == "OK"
    assert (bench.ports(3, 1), bench.ports(3, 9)) == ([2], [])
    bench.client.set_config(None, "COMMIT")
    assert (bench.ports(3, 1), bench.ports(3, 9)) == ([3], [4])
    (entry,) = [
        entity.table_entry
        for entity in bench.read("table_entry { table_id: $aged counter_data { } }")
        if entity.table_entry.match[0].exact.value == b"\x09"
    ]
    assert entry.counter_data.packet_count == 6
    assert bench.read("register_entry { register_id: $seen index { index: 2 } }")[
        0
    ].register_entry.data.bitstring == (b"\x08")


def test_a_second_save_forgets_the_first_with_its_writes(bench, entities_config):
    bench.client.set_config(entities_config, "VERIFY_AND_SAVE")
    assert bench.write("INSERT", aged(1, 3)) == "OK"
    bench.client.set_config(entities_config, "VERIFY_AND_SAVE")
    assert bench.write("INSERT", aged(2, 3)) == "OK"
    bench.client.set_config(None, "COMMIT")
    assert (bench.ports(3, 1), bench.ports(3, 2)) == ([], [3])


def test_a_first_pipeline_may_be_saved_and_written_before_it_runs(connect, entities_config):
    client = connect()
    client.arbitrate(1)
    client.set_config(entities_config, "VERIFY_AND_SAVE")
    table = next(t for t in entities_config.p4info.tables if t.preamble.name.endswith("aged"))
    entry = p4r.TableEntry(table_id=table.preamble.id)
    entry.match.add(field_id=1).exact.value = b"\x01"
    entry.action.action.action_id = next(
        a.preamble.id for a in entities_config.p4info.actions if a.preamble.name.endswith("metered")
    )
    entry.action.action.params.add(param_id=1, value=b"\x02")
    update = p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=entry))
    client.write(update)
    assert [e.table_entry for e in client.read(p4r.Entity(table_entry=p4r.TableEntry()))] == [entry]
    client.set_config(None, "COMMIT")
    assert [e.table_entry for e in client.read(p4r.Entity(table_entry=p4r.TableEntry()))] == [entry]


def test_writes_that_wait_for_a_commit_are_bounded(bench, entities_config, monkeypatch):
    monkeypatch.setattr(pipelines, "_MAX_PENDING", 2)
    bench.client.set_config(entities_config, "VERIFY_AND_SAVE")
    assert [bench.write("INSERT", aged(number, 3)) for number in (1, 2)] == ["OK", "OK"]
    update = p4r.Update(type=p4r.Update.INSERT, entity=bench.entity(aged(3, 3)))
    with pytest.raises(grpc.RpcError) as caught:
        bench.client.write(update)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    bench.client.set_config(None, "COMMIT")
    assert bench.write("INSERT", aged(3, 3)) == "OK"


@pytest.mark.parametrize("action", ["VERIFY_AND_SAVE", "VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"])
def test_a_push_whose_client_is_deposed_meanwhile_changes_nothing(connect, monkeypatch, action):
    """The old primary's program is still being compiled when the new one takes over and writes."""
    config = config_of("every_entity")
    old, new = connect(), connect()
    old.arbitrate(1)
    compiling, go_on = threading.Event(), threading.Event()

    def slow(*args):
        pipeline = pipelines.build_pipeline(*args)
        if args[0].cookie.cookie == 1:
            compiling.set()
            assert go_on.wait(PATIENCE_S)
        return pipeline

    monkeypatch.setattr(p4runtime, "build_pipeline", slow)
    stale = p4r.ForwardingPipelineConfig(cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=1))
    stale.MergeFrom(config)
    with ThreadPoolExecutor(1) as pool:
        push = pool.submit(old.set_config, stale, action)
        assert compiling.wait(PATIENCE_S)
        assert new.arbitrate(2).status.code == rpc_code.OK
        config.cookie.cookie = 2
        new.set_config(config)
        go_on.set()
        with pytest.raises(grpc.RpcError) as caught:
            push.result(PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    got = new.stub.GetForwardingPipelineConfig(Get(device_id=1, response_type=Get.COOKIE_ONLY))
    assert got.config.cookie.cookie == 2
    with pytest.raises(grpc.RpcError) as caught:
        new.set_config(None, "COMMIT")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


class Told:
    """A stream that keeps the statuses that it is told."""

    def __init__(self):
        self.codes = []

    def send(self, message, *, lossy=False, size=0):
        self.codes.append(message.arbitration.status.code)
        return 0


def claim(election_id):
    return p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(election_id))


def test_a_new_primary_hears_of_it_when_the_old_ones_writes_have_ended():
    """The others hear at once; until the writes have ended nobody may begin one."""
    waiting, go_on = threading.Event(), threading.Event()

    def finish_writes():
        waiting.set()
        assert go_on.wait(PATIENCE_S)

    arbiter = Arbiter(1, finish_writes)
    old, new = Told(), Told()
    go_on.set()
    arbiter.update(old, claim(1))
    arbiter.check_primary("", 1)
    go_on.clear()
    waiting.clear()
    with ThreadPoolExecutor(1) as pool:
        takeover = pool.submit(arbiter.update, new, claim(2))
        assert waiting.wait(PATIENCE_S)
        assert old.codes == [rpc_code.OK, rpc_code.ALREADY_EXISTS]
        assert new.codes == []
        for election_id in (1, 2):
            with pytest.raises(StatusError) as caught:
                arbiter.check_primary("", election_id)
            assert caught.value.code == rpc_code.PERMISSION_DENIED
        go_on.set()
        takeover.result(PATIENCE_S)
    assert new.codes == [rpc_code.OK]
    arbiter.check_primary("", 2)


def test_a_stream_that_has_ended_is_elected_no_more():
    """Its last message may come after it."""
    arbiter, gone = Arbiter(1), Told()
    arbiter.leave(gone)
    arbiter.update(gone, claim(9))
    assert arbiter.primary() is None
    other = Told()
    arbiter.update(other, claim(1))
    assert other.codes == [rpc_code.OK]
