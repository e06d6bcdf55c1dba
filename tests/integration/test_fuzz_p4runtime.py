# SPDX-License-Identifier: Apache-2.0
"""Mutated P4Runtime requests over real gRPC: no crash, the codes of the specification, switch and store agree."""

import contextlib
import gc
from random import Random

import grpc
import pytest
from diff_golden import P4INFO, PROGRAM, pipeline_config
from finsy.proto import p4r, rpc_status
from fuzz_requests import Requests
from p4rt_bench import every_entity_config
from p4rt_rig import PATIENCE_S, Client, served_switch

QUICK, LONG = 400, 10_000
ELECTION = 7
CODES = grpc.StatusCode
# INTERNAL is gRPC's own, for bytes that are no message of the type.
LEGAL = {
    *(CODES.INVALID_ARGUMENT, CODES.NOT_FOUND, CODES.PERMISSION_DENIED, CODES.FAILED_PRECONDITION),
    *(CODES.OUT_OF_RANGE, CODES.UNIMPLEMENTED, CODES.UNKNOWN, CODES.INTERNAL),
    # A reconcile with tables too small for what is there.
    CODES.RESOURCE_EXHAUSTED,
}
IN_BATCH = {
    *(code.value[0] for code in LEGAL - {CODES.UNKNOWN, CODES.INTERNAL}),
    *(CODES.OK.value[0], CODES.ALREADY_EXISTS.value[0], CODES.RESOURCE_EXHAUSTED.value[0]),
}


def our_program():
    return pipeline_config(P4INFO.read_text(), PROGRAM.read_text())


def raw_call(channel, method, data):
    """Send bytes as they are; gives the error, or None."""
    path = f"/p4.v1.P4Runtime/{method}"
    try:
        if method == "Read":
            for _ in channel.unary_stream(path)(data, timeout=PATIENCE_S):
                pass
        else:
            channel.unary_unary(path)(data, timeout=PATIENCE_S)
    except grpc.RpcError as error:
        return error
    return None


def check(error, method, data):
    said = f"{method} {data.hex()}: {error.code()} {error.details()}"
    assert error.code() in LEGAL, said
    assert "Exception" not in error.details() or "deserializing" in error.details(), said
    assert error.details(), said
    if error.code() is CODES.UNKNOWN:
        assert method in ("Write", "Read"), said
        metadata = dict(error.trailing_metadata())
        if method == "Write":
            parts = len(p4r.WriteRequest.FromString(data).updates)
        else:
            parts = len(p4r.ReadRequest.FromString(data).entities)
            # The error of a read of one request is its own code.
            assert parts > 1, said
        status = rpc_status.Status.FromString(metadata["grpc-status-details-bin"])
        assert len(status.details) == parts, said
        for detail in status.details:
            one = p4r.Error()
            assert detail.Unpack(one), said
            assert one.canonical_code in IN_BATCH, said
            assert bool(one.message) == (one.canonical_code != 0), said


def assert_store_and_switch_agree(rig, client):
    """What clients read is what the data plane holds, once nothing that was saved waits for its commit."""
    with contextlib.suppress(grpc.RpcError):
        client.set_config(None, "COMMIT")
    told = client.read(p4r.Entity(table_entry=p4r.TableEntry()))
    held = rig.on_data_plane(
        lambda: {
            table.name: len(rig.switch.table(table.name).entries()) for table in rig.switch.program.tables()
        }
    )
    assert len(told) == sum(held.values())
    config = client.stub.GetForwardingPipelineConfig(
        p4r.GetForwardingPipelineConfigRequest(device_id=1)
    ).config
    names = {table.preamble.id: table.preamble.name for table in config.p4info.tables}
    counts = dict.fromkeys(held, 0)
    for entity in told:
        counts[names[entity.table_entry.table_id]] += 1
    assert counts == held


def fuzz(config, count, seed):
    rng = Random(seed)
    with served_switch() as rig:
        client = Client(rig.server.address)
        client.arbitrate(ELECTION)
        client.set_config(config)
        requests = Requests(rng, config.p4info, config.p4_device_config, ELECTION)
        refused = accepted = 0
        objects = 0
        with grpc.insecure_channel(rig.server.address, [("grpc.max_metadata_size", 1 << 20)]) as channel:
            for number in range(count):
                if number == count // 2:
                    gc.collect()
                    objects = len(gc.get_objects())
                method, data = requests.draw()
                error = raw_call(channel, method, data)
                if error is None:
                    accepted += 1
                else:
                    refused += 1
                    check(error, method, data)
                if rng.random() < 0.05:
                    client.send(
                        **{
                            (m := requests.stream_message()).WhichOneof("update"): getattr(
                                m, m.WhichOneof("update")
                            )
                        }
                    )
                if number % 1000 == 999:
                    assert_store_and_switch_agree(rig, client)
        assert accepted > count // 50
        assert refused > count // 4
        assert_store_and_switch_agree(rig, client)
        gc.collect()
        assert len(gc.get_objects()) - objects < 20 * count + 50_000
        # The data plane lives, and its primary still hears from it and can start anew.
        client.set_config(config)
        assert (
            client.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=config.p4info.tables[0].preamble.id)))
            == []
        )
        client.close()


@pytest.mark.parametrize("program", [our_program, every_entity_config])
def test_mutated_requests(program):
    fuzz(program(), QUICK, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "count"), [(our_program, LONG), (every_entity_config, LONG)])
def test_ten_thousand_mutated_requests(program, count):
    fuzz(program(), count, seed=2)
