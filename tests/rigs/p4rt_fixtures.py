# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the P4Runtime tests: served switches, clients, the project's program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import grpc
import pytest
from finsy.proto import p4i, p4r, rpc_status
from google.protobuf import text_format
from p4rt_bench import Bench, every_entity_config
from p4rt_rig import ROOT, Client, Rig, served_switch


@pytest.fixture(scope="session")
def p4info() -> p4i.P4Info:
    return text_format.Parse((ROOT / "p4/build/polyrhythm.v1model.p4info.txtpb").read_text(), p4i.P4Info())


@pytest.fixture(scope="session")
def config(p4info: p4i.P4Info) -> p4r.ForwardingPipelineConfig:
    return p4r.ForwardingPipelineConfig(
        p4info=p4info,
        p4_device_config=(ROOT / "p4/build/polyrhythm.v1model.json").read_bytes(),
        cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=77),
    )


@pytest.fixture
def start_rig() -> Iterator[Callable[..., Rig]]:
    """Start a served switch with ports 1 and 2; `rpc_delay_s` and the like go to `serve`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(served_switch(**options))


@pytest.fixture
def rig(start_rig: Callable[..., Rig]) -> Rig:
    return start_rig()


@pytest.fixture
def connect(rig: Rig) -> Iterator[Callable[..., Client]]:
    """Open one more raw client of the rig."""
    clients: list[Client] = []

    def open_one(address: str | None = None, device_id: int = 1) -> Client:
        clients.append(Client(address or rig.server.address, device_id))
        return clients[-1]

    yield open_one
    for client in clients:
        client.close()


@pytest.fixture
def controller(connect: Callable[..., Client], config: p4r.ForwardingPipelineConfig) -> Client:
    """A client that is the primary and has pushed the project's program."""
    client = connect()
    client.arbitrate(1000)
    client.set_config(config)
    return client


@pytest.fixture
def batch_errors() -> Callable[[grpc.RpcError], list[tuple[str, str]]]:
    """Take (code name, message) of each update out of a failed Write."""

    def details(error: grpc.RpcError) -> list[tuple[str, str]]:
        assert error.code() is grpc.StatusCode.UNKNOWN
        metadata = dict(error.trailing_metadata())
        status = rpc_status.Status.FromString(metadata["grpc-status-details-bin"])
        names = {code.value[0]: code.name for code in grpc.StatusCode}
        found = []
        for detail in status.details:
            message = p4r.Error()
            assert detail.Unpack(message)
            found.append((names[message.canonical_code], message.message))
        return found

    return details


@pytest.fixture(scope="session")
def entities_config() -> p4r.ForwardingPipelineConfig:
    """The program that has one of each entity."""
    return every_entity_config()


@pytest.fixture
def bench(
    rig: Rig,
    connect: Callable[..., Client],
    entities_config: p4r.ForwardingPipelineConfig,
    batch_errors: Callable[[grpc.RpcError], list[tuple[str, str]]],
) -> Bench:
    """A primary client of a switch with four ports that runs that program."""
    return Bench(rig, connect(), entities_config, batch_errors)
