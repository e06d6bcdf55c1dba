# SPDX-License-Identifier: Apache-2.0
"""The embedded fabric put together: switches with their servers, hosts with their agents, cables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from bmv2 import EmbeddedSwitch, PortTable
from bmv2.server import SwitchServer, serve
from controller.wire import agent_pb2
from hostagent.host import EmulatedHost, Skew
from hostagent.session import ControllerSession
from polyrhythm.fabric.boundary import FabricBoundary
from polyrhythm.fabric.failures import FailoverWatch, Failure
from polyrhythm.fabric.heap import EventHeap
from polyrhythm.fabric.parent_messages import description
from polyrhythm.scenario import Scenario
from topo.graph import UNKNOWN_HASH, HashSpec

log = logging.getLogger(__name__)

# What the fabric's messages take to the controller and back, in fabric time, whatever the hosts take.
CONTROL_DELAY_NS = 1_000_000

COUNTER_POLL_MS = 100

# What a switch's own software takes from the loss of light to its port table.
PORT_DOWN_DELAY_NS = 100_000

MEET_TIMEOUT_S = 20.0


class EmbeddedFabric:
    """All nodes of a scenario on one heap. Cables take no time: a frame arrives with its last bit."""

    def __init__(
        self, scenario: Scenario, seed: int, rpc_delay_s: float = 0.0, failures: Sequence[Failure] = ()
    ) -> None:
        self.scenario = scenario
        self.heap = EventHeap()
        self.boundary = FabricBoundary(self.heap, CONTROL_DELAY_NS)
        self._rpc_delay_s = rpc_delay_s
        topology = scenario.topology
        port_table = PortTable("port_state", "set_port_down", PORT_DOWN_DELAY_NS)
        self.switches = {
            s.name: EmbeddedSwitch(s.name, self.heap, seed=seed, port_table=port_table)
            for s in topology.switches
        }
        self.failovers = FailoverWatch(self.heap, self.switches, tuple(failures))
        for failure in failures:
            self.heap.call_at(failure.at_ns, self._fail, failure)
        self.hosts = {h.name: self._host(h.name, seed) for h in topology.hosts}
        for switch in topology.switches:
            watched = switch.name in self.failovers.watched
            for port, peer in topology.ports[switch.name].items():
                transmit = self._arrival(peer.node, peer.port)
                self.switches[switch.name].add_port(
                    port,
                    rate_bps=peer.rate_bps,
                    transmit=self.failovers.tap(switch.name, port, transmit) if watched else transmit,
                    queue_packets=scenario.buffer_packets,
                )
        self.servers: dict[str, SwitchServer] = {
            s.name: serve(
                self.switches[s.name], self.boundary, device_id=s.device_id, rpc_delay_s=rpc_delay_s
            )
            for s in topology.switches
        }
        self._sessions: dict[str, ControllerSession] = {}
        self._met: set[str] = set()

    def describe(self, profile: str = "") -> dict[str, Any]:
        """What the controller has to know: the graph, where the switches are served, the marking ramp.
        `profile` says whether jobs are measured or declared, where the scenario is not to say so."""
        scenario = self.scenario
        topology = scenario.topology
        if not scenario.hash_known:
            topology = replace(topology, hash=HashSpec(UNKNOWN_HASH))
        addresses = {name: server.address for name, server in self.servers.items()}
        return {
            **description(scenario, topology, addresses),
            "clock": "embedded",
            "control_delay_ns": CONTROL_DELAY_NS,
            "poll_ms": COUNTER_POLL_MS,
            "profile": profile or scenario.profile,
            "profile_window_ms": scenario.profile_window_ms,
            "realign_pct": scenario.realign_pct,
        }

    def connect_agents(self, address: str) -> None:
        """Open each agent's session; what the controller says lands as the rule of time has it."""
        for name in self.hosts:
            self._sessions[name] = ControllerSession(
                address,
                partial(self._from_controller, name),
                partial(self._session_lost, name),
                partial(self._session_up, name),
                rpc_delay_s=self._rpc_delay_s,
            )
        for session in self._sessions.values():
            session.start()
        if not self.boundary.wait_for(lambda: len(self._met) == len(self.hosts), MEET_TIMEOUT_S):
            log.warning("only %d of %d agents reached the controller", len(self._met), len(self.hosts))

    def _fail(self, failure: Failure) -> None:
        """Begin a failure: a switch dies and its server ends, or a cable is cut; the ports at it go down."""
        self.failovers.began(failure)
        if failure.switch is not None:
            self.boundary.note(f"{failure.switch} was powered off")
            self.servers[failure.switch].stop()
        else:
            self.boundary.note(f"{failure.what} was cut")
        for switch, port in failure.ends:
            self.switches[switch].set_port_up(port, False)
        if failure.until_ns is not None:
            self.heap.call_at(failure.until_ns, self._mend, failure)

    def _mend(self, failure: Failure) -> None:
        self.boundary.note(f"{failure.what} was whole again")
        for switch, port in failure.ends:
            self.switches[switch].set_port_up(port, True)

    def close(self) -> None:
        """End every session and server."""
        self.boundary.close()
        for session in self._sessions.values():
            session.stop()
        for server in self.servers.values():
            server.stop()

    def _host(self, name: str, seed: int) -> EmulatedHost:
        topology = self.scenario.topology
        host = topology.host[name]
        return EmulatedHost(
            name=name,
            ip=host.ip,
            mac=host.mac,
            gateway_mac=topology.switch[host.leaf].mac,
            rate_bps=host.rate_bps,
            clock=self.heap,
            transmit=partial(self._enter, host.leaf, host.leaf_port),
            send=partial(self._to_controller, name),
            mtu=self.scenario.packet_bytes,
            seed=seed,
            addresses={h.name: h.ip for h in topology.hosts},
            skew=self._skew(name, seed),
            chooses_ports=name in self.scenario.port_choosers,
            keeps_dscp=name in self.scenario.dscp_keepers,
        )

    def _skew(self, name: str, seed: int) -> Skew | None:
        """How far off the host's clock is: drawn within what the scenario allows."""
        offset, drift = self.scenario.clock_offset_ns, self.scenario.clock_drift_ppm
        if not offset and not drift:
            return None
        draw = Random(f"{seed}/clock/{name}")
        return Skew(draw.randint(-offset, offset), draw.uniform(-drift, drift))

    def _enter(self, switch: str, port: int, frame: bytes) -> None:
        self.switches[switch].receive(port, frame)

    def _arrival(self, node: str, port: int) -> Callable[[bytes], None]:
        if node in self.hosts:
            return self.hosts[node].receive
        return partial(self.switches[node].receive, port)

    def _to_controller(self, host: str, message: agent_pb2.AgentMessage) -> None:
        self.boundary.depart(host, f"agent:{host}", partial(self._sessions[host].send, message))

    def _from_controller(self, host: str, message: agent_pb2.ControllerMessage) -> None:
        self.boundary.deliver(host, partial(self._hear, host, message))
        self.boundary.arrived(f"agent:{host}")

    def _hear(self, host: str, message: agent_pb2.ControllerMessage) -> None:
        if message.WhichOneof("body") == "flow":
            self.failovers.reassigned()
        self.hosts[host].on_message(message)

    def _session_lost(self, host: str) -> None:
        self.boundary.deliver(host, self.hosts[host].session_lost)

    def _session_up(self, host: str) -> None:
        self.boundary.deliver(host, self.hosts[host].session_up)
        self._met.add(host)
