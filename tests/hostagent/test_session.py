# SPDX-License-Identifier: Apache-2.0
"""The agent's session against a real gRPC server."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest
from host_bench import MS, PROFILE, RATE, Bench, EventHeap

from controller.wire import agent_pb2 as pb
from controller.wire import agent_pb2_grpc as pb_grpc
from hostagent.agent import Agent
from hostagent.host import EmulatedHost
from hostagent.job import JobSpec, PhaseSpec
from hostagent.session import ControllerSession

WAIT_S = 120


class Hub(pb_grpc.AgentHubServicer):
    """Welcomes each agent, answers each flow request, and keeps what it hears."""

    def __init__(self) -> None:
        self.heard: queue.Queue[pb.AgentMessage] = queue.Queue()
        self.ended = threading.Event()

    def Session(
        self, request_iterator: Iterator[pb.AgentMessage], context: grpc.ServicerContext
    ) -> Iterator[pb.ControllerMessage]:
        try:
            for message in request_iterator:
                self.heard.put(message)
                kind = message.WhichOneof("body")
                if kind == "hello":
                    yield pb.ControllerMessage(sequence=1, welcome=pb.Welcome(policy="greedy", equal_dscp=9))
                elif kind == "flow_request":
                    flow = message.flow_request.flow
                    yield pb.ControllerMessage(
                        sequence=2, flow=pb.FlowAssignment(flow=flow, source_port=0xC777, dscp=33)
                    )
        except grpc.RpcError:
            return
        finally:
            self.ended.set()


def serve(hub: Hub, port: int = 0) -> tuple[grpc.Server, int]:
    server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    pb_grpc.add_AgentHubServicer_to_server(hub, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, bound


class Owner:
    """Hands the session's callbacks over to the data plane's thread: here, the test's."""

    def __init__(self, *ports: int, delay_s: float = 0.0) -> None:
        self.events: queue.Queue[tuple[str, pb.ControllerMessage | None]] = queue.Queue()
        self.session = ControllerSession(
            [f"127.0.0.1:{port}" for port in ports],
            lambda message: self.events.put(("message", message)),
            lambda: self.events.put(("lost", None)),
            lambda: self.events.put(("up", None)),
            rpc_delay_s=delay_s,
        )
        self.session.start()

    def next(self) -> tuple[str, pb.ControllerMessage | None]:
        return self.events.get(timeout=WAIT_S)


@pytest.mark.parametrize("delay_s", [0.0, 0.02])
def test_an_agent_is_welcomed_and_pinned_over_grpc(delay_s: float) -> None:
    hub = Hub()
    server, port = serve(hub)
    owner = Owner(port, delay_s=delay_s)
    heap = EventHeap()
    host = EmulatedHost(
        "h0", Bench.ip(0), Bench.mac(0), Bench.mac(9), RATE,
        clock=heap, transmit=lambda f: None, send=owner.session.send,
        addresses={"h0": Bench.ip(0), "h1": Bench.ip(1)}, dcqcn=PROFILE,
    )  # fmt: skip
    try:
        assert owner.next()[0] == "up"
        host.agent.session_up()
        kind, welcome = owner.next()
        assert kind == "message"
        assert welcome is not None
        host.agent.on_message(welcome)
        assert host.agent.settings.policy == "greedy"
        spec = JobSpec("a", "m", 2, ("h0", "h1"), (("h0", "h1"),), (PhaseSpec(MS, 3000, 0, MS),), 1.0)
        host.add_worker(spec, 0, 15 * MS, 1)
        heap.run(1)
        kind, answer = owner.next()
        assert answer is not None
        host.agent.on_message(answer)
        heap.run(16 * MS)
        assert host.agent.pins["a/h0>h1"].source_port == 0xC777
        assert host.nic.counters().packets == 3
        heard = [hub.heard.get(timeout=WAIT_S) for _ in range(3)]
        assert [m.WhichOneof("body") for m in heard] == ["hello", "job_join", "flow_request"]
        assert (heard[0].hello.host, heard[0].hello.pinning, heard[0].hello.protocol) == ("h0", "emulated", 1)
        owner.session.stop()
        assert hub.ended.wait(WAIT_S)
        assert owner.next()[0] == "lost"
        assert owner.session.send(pb.AgentMessage()) is False
    finally:
        owner.session.stop()
        server.stop(None).wait(WAIT_S)


def test_a_session_comes_back_when_the_controller_does() -> None:
    hub = Hub()
    server, port = serve(hub)
    owner = Owner(port)
    heap = EventHeap()
    nic = Bench(1).nics[0]
    agent = Agent("h0", Bench.ip(0), nic, heap, owner.session.send, addresses={})
    try:
        assert owner.next()[0] == "up"
        agent.session_up()
        assert owner.next()[0] == "message"
        server.stop(None).wait(WAIT_S)
        assert owner.next()[0] == "lost"
        agent.session_lost()
        server, _ = serve(hub, port)
        assert owner.next()[0] == "up"
        agent.session_up()
        kind, message = owner.next()
        assert kind == "message"
        assert message is not None
        assert message.welcome.policy == "greedy"
        assert [hub.heard.get(timeout=WAIT_S).sequence for _ in range(2)] == [1, 2]
    finally:
        owner.session.stop()
        server.stop(None).wait(WAIT_S)


def test_a_session_without_a_controller_stops_cleanly() -> None:
    server, port = serve(Hub())
    server.stop(None).wait(WAIT_S)
    owner = Owner(port)
    assert owner.session.send(pb.AgentMessage()) is False
    owner.session.stop()
    assert owner.events.empty()


class Standby(Hub):
    """Refuses each agent, as a controller that does not lead."""

    def Session(
        self, request_iterator: Iterator[pb.AgentMessage], context: grpc.ServicerContext
    ) -> Iterator[pb.ControllerMessage]:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "standby: c2 leads")
        yield


def test_an_agent_finds_the_controller_that_leads_and_its_successor() -> None:
    """The first address is dead, the second one stands by; then the second one leads."""
    dead, nowhere = serve(Hub())
    dead.stop(None).wait(WAIT_S)
    standby, second = serve(Standby())
    leader, third = serve(Hub())
    owner = Owner(nowhere, second, third)

    def welcomed() -> None:
        while True:
            kind, message = owner.next()
            if kind == "up":
                owner.session.send(pb.AgentMessage(hello=pb.Hello(host="h0", protocol=1)))
            elif kind == "message":
                assert message is not None
                assert message.HasField("welcome")
                return

    try:
        welcomed()
        leader.stop(None).wait(WAIT_S)
        standby.stop(None).wait(WAIT_S)
        standby, _ = serve(Hub(), second)
        welcomed()
    finally:
        owner.session.stop()
        standby.stop(None).wait(WAIT_S)
