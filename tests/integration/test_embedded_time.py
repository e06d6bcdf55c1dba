# SPDX-License-Identifier: Apache-2.0
"""The embedded fabric's rule of time: what lands, and when, does not depend on the transport's speed."""

import json
import threading
import time
import urllib.request
from functools import partial

import grpc
import pytest
from control_rig import PATIENCE_S, RATE_BPS, eventually, job, join_message, wire_up

from bmv2 import EmbeddedSwitch
from bmv2.server import serve
from controller.wire import agent_pb2 as wire
from controller.wire import agent_pb2_grpc as wire_grpc
from polyrhythm.fabric.boundary import FabricBoundary
from polyrhythm.fabric.clock_stream import ClockStream
from polyrhythm.fabric.heap import EventHeap
from topo.generate import leaf_spine
from topo.jsonio import topology_to_json

MS = 1_000_000
TOPOLOGY = leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


class ScriptedAgent:
    """An agent that says what the script says, and records what lands and when."""

    def __init__(self, rig, host, address):
        self.rig, self.host = rig, host
        self.sequence = 0
        self.outbox = []
        self.news = threading.Condition()
        self.channel = grpc.insecure_channel(address)
        self.call = wire_grpc.AgentHubStub(self.channel).Session(self.outgoing())
        threading.Thread(target=self.read, daemon=True).start()

    def say(self, message):
        """On the heap's thread: leave now."""
        self.sequence += 1
        message.sequence = self.sequence
        self.rig.boundary.depart(self.host, f"agent:{self.host}", partial(self.put, message))

    def put(self, message):
        with self.news:
            self.outbox.append(message)
            self.news.notify()

    def outgoing(self):
        while True:
            with self.news:
                self.news.wait_for(lambda: self.outbox)
                message = self.outbox.pop(0)
            if message is None:
                return
            yield message

    def read(self):
        try:
            for message in self.call:
                message.sequence = 0
                self.rig.boundary.deliver(self.host, partial(self.rig.note, self.host, str(message)))
                self.rig.boundary.arrived(f"agent:{self.host}")
        except grpc.RpcError:
            return

    def close(self):
        self.put(None)
        self.call.cancel()
        self.channel.close()


class Rig:
    """Switches and scripted agents on one heap."""

    def __init__(self):
        self.heap = EventHeap()
        self.boundary = FabricBoundary(self.heap, MS)
        self.switches = {s.name: EmbeddedSwitch(s.name, self.heap) for s in TOPOLOGY.switches}
        wire_up(TOPOLOGY, self.switches, lambda node, frame: self.note(node, f"frame {frame.hex()}"))
        self.servers = {
            s.name: serve(self.switches[s.name], self.boundary, device_id=s.device_id)
            for s in TOPOLOGY.switches
        }
        self.log = []

    def note(self, node, what):
        self.log.append((self.heap.now, node, what))

    def description(self):
        return {
            "name": "test",
            "clock": "embedded",
            "control_delay_ns": MS,
            "topology": topology_to_json(TOPOLOGY),
            "switches": {
                s.name: {"address": self.servers[s.name].address, "device_id": s.device_id}
                for s in TOPOLOGY.switches
            },
            "ecn": {"kmin": 5, "kmax": 50, "pmax": 0.1},
        }

    def live(self, address):
        """Play the script to its end; what landed, and when."""
        clock = ClockStream(address, self.boundary)
        agents = {h.name: ScriptedAgent(self, h.name, address) for h in TOPOLOGY.hosts}
        at = self.heap.call_at
        for h in TOPOLOGY.hosts:
            hello = wire.Hello(host=h.name, ip=h.ip, pinning="emulated", protocol=1)
            agents[h.name].say(wire.AgentMessage(hello=hello))
        for start, member in ((10 * MS, job("a", "h1", "h3")), (10 * MS, job("b", "h2", "h4"))):
            for rank, host in enumerate(member.hosts):
                flow = f"{member.name}/{host}>{member.hosts[1 - rank]}"
                at(start, agents[host].say, join_message(member, rank))
                at(start, agents[host].say, wire.AgentMessage(flow_request=wire.FlowRequest(flow=flow)))
                at(
                    200 * MS + rank,
                    agents[host].say,
                    wire.AgentMessage(probe_request=wire.ProbeRequest(flow=flow)),
                )
        at(100 * MS, self.switches["leaf1"].set_port_up, 3, False)
        at(150 * MS, self.switches["leaf1"].set_port_up, 3, True)
        at(300 * MS, agents["h1"].say, wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=0)))
        at(300 * MS, agents["h3"].say, wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=1)))
        self.boundary.stop()
        while self.heap.run():
            self.boundary.stop()
            if self.heap.now >= 400 * MS:
                break
        self.boundary.stop(last=True)
        for agent in agents.values():
            agent.close()
        clock.close()
        for server in self.servers.values():
            threading.Thread(target=server.stop, daemon=True).start()
        return self.log


def watch(web, seen):
    """A reader of the event stream, as the page is one: it makes the controller poll counters."""
    deadline = time.monotonic() + PATIENCE_S
    with urllib.request.urlopen(f"{web}/api/v1/stream", timeout=PATIENCE_S) as stream:
        try:
            for line in stream:
                if line.startswith(b"data:"):
                    seen.append(json.loads(line[5:]))
                if time.monotonic() > deadline:
                    return
        except OSError:
            return


@pytest.mark.slow
def test_transport_and_watchers_change_nothing(start_controller):
    logs = []
    for arguments, watched in (((), False), (("--rpc-delay-ms=20",), False), (("--poll",), True)):
        rig = Rig()
        controller = start_controller(rig.description(), *arguments)
        seen = []
        if watched:
            threading.Thread(target=watch, args=(controller.web, seen), daemon=True).start()
        logs.append(rig.live(controller.agents))
        assert controller.api("fabric")["time_ns"] == rig.heap.now
        assert controller.says("job a has left")
        assert controller.says("switch leaf1: port 3 (to spine1) is down")
        if watched:
            # A quick machine may be through before the reader has its first event.
            eventually(partial(len, seen))
    told = [what for _, _, what in logs[0]]
    assert sum("welcome" in what for what in told) == 4
    assert sum("flow {" in what for what in told) >= 4
    assert sum("verified: true" in what for what in told) == 4
    assert not any(what.startswith("frame") for what in told)
    assert logs[1] == logs[0]
    assert logs[2] == logs[0]
