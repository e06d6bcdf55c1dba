# SPDX-License-Identifier: Apache-2.0
"""A standby: what it answers agents and callers of the REST API, and how it begins to lead."""

from __future__ import annotations

import asyncio
import itertools
import queue
from typing import Any

import grpc
import httpx
import pytest
from aetcd import rpc
from control_rig import PATIENCE_S, on_loop
from etcd_rig import Cluster, needs_etcd

from controller.northbound.api import create_app
from controller.northbound.web import serve
from controller.process.election import Election, Leader, Term
from controller.process.standby import stand_by
from controller.process.state_options import SharedState
from controller.store.etcd.state_store import EtcdStore
from controller.store.interface import Batch, Change, Kind, StoredPlan
from controller.wire import agent_pb2 as wire
from controller.wire import agent_pb2_grpc as wire_grpc

pytestmark = needs_etcd
_PREFIXES = itertools.count()


async def refusal(address: str) -> tuple[grpc.StatusCode, str]:
    """How a controller refuses an agent."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = wire_grpc.AgentHubStub(channel).Session(iter([wire.AgentMessage(sequence=1)]))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        return caught.value.code(), caught.value.details()


def test_a_standby_refuses_names_the_leader_follows_the_state_and_succeeds(cluster: Cluster) -> None:
    address = cluster.address(f"standby{next(_PREFIXES)}")
    terms: queue.SimpleQueue[Term] = queue.SimpleQueue()
    first = Election(address, Leader("c1", "c1:9560", "http://c1:8080"), on_won=terms.put, on_lost=print)
    first.start()
    term = terms.get(timeout=PATIENCE_S)

    async def scenario() -> None:
        ready: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()

        async def serve_web(board: Any, standby: Any) -> Any:
            server = await serve(create_app(board, None, standby), port=0)
            return server.url.rstrip("/"), server.close

        work = asyncio.create_task(
            stand_by(
                SharedState(address, "c2"),
                None,
                lambda hub: hub.start("127.0.0.1", 0),
                serve_web,
                print,
                lambda *addresses: ready.set_result(addresses),
            )
        )
        agents, web = await ready
        async with httpx.AsyncClient(base_url=web, timeout=PATIENCE_S) as client:

            async def place() -> dict[str, Any]:
                return dict((await client.get("readyz")).json()["controller"])

            async with asyncio.timeout(PATIENCE_S):
                while (await place())["leader"] != "c1":
                    await asyncio.sleep(0.02)
            answer = await client.get("readyz")
            assert answer.status_code == 503
            assert answer.json()["controller"]["role"] == "standby"
            assert answer.json()["controller"]["leader_web"] == "http://c1:8080"
            (missing,) = answer.json()["not_ready"]
            assert (missing["part"], missing["name"]) == ("leader", "c1")
            assert (await client.get("healthz")).status_code == 200
            answer = await client.get("api/v1/jobs")
            assert answer.status_code == 503
            assert "standby: c1 leads" in answer.json()["detail"]
            code, why = await refusal(agents)
            assert code == grpc.StatusCode.FAILED_PRECONDITION
            assert "standby: c1 leads (agents c1:9560, REST http://c1:8080)" in why
            change = Batch([Change(Kind.JOB, "a", b"1")], [StoredPlan(7, 0, "p", b"")])
            await asyncio.to_thread(EtcdStore(first.etcd, term.revision).commit, change)
            async with asyncio.timeout(PATIENCE_S):
                while (await place())["plan"] != 7:
                    await asyncio.sleep(0.02)
            assert (await place())["jobs"] == 1
        await asyncio.to_thread(first.close)
        leadership, *addresses = await work
        assert addresses == [agents, web]
        assert leadership.leads()
        assert leadership.ids.first > term.ids.last
        assert leadership.store.load().last_version == 7
        assert leadership.place().role == "leader"
        await leadership.close()
        assert not leadership.leads()

    on_loop(scenario())


def test_a_standby_that_is_ended_leaves_the_leader_alone(cluster: Cluster) -> None:
    """Also one that is cancelled while it stands for election."""
    address = cluster.address(f"standby{next(_PREFIXES)}")

    async def scenario() -> None:
        for _ in range(2):
            ready = asyncio.Event()

            async def serve_web(board: Any, standby: Any) -> Any:
                return "http://127.0.0.1:1", lambda: asyncio.sleep(0)

            work = asyncio.create_task(
                stand_by(
                    SharedState(address, "c2"),
                    None,
                    lambda hub: hub.start("127.0.0.1", 0),
                    serve_web,
                    print,
                    lambda *_: ready.set(),  # noqa: B023 - awaited in the same round
                )
            )
            await ready.wait()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work

    on_loop(scenario())
    terms: queue.SimpleQueue[Term] = queue.SimpleQueue()
    next_one = Election(address, Leader("c3", "", ""), on_won=terms.put, on_lost=print)
    next_one.start()
    assert terms.get(timeout=PATIENCE_S).revision > 0
    found = next_one.etcd.range(rpc.RangeRequest(key=address.key("leader")), 5.0).kvs
    assert len(found) == 1
    next_one.close()
