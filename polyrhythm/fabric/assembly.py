# SPDX-License-Identifier: Apache-2.0
"""Build the embedded fabric: switches with their servers, hosts with their agents, and cables."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from bmv2 import EmbeddedSwitch, PortTable
from bmv2.server import SwitchServer, serve
from controller.model import TRAFFIC_CLASSES
from controller.wire import agent_pb2
from hostagent.host import EmulatedHost, Skew
from hostagent.nic.dcqcn import DcqcnProfile
from hostagent.nic.roce import mac_bytes, overhead_bytes
from hostagent.rails import Rails
from hostagent.session import ControllerSession
from polyrhythm.fabric.boundary import SILENCE_S, CableOrder, FabricBoundary
from polyrhythm.fabric.failover_watch import FailoverWatch
from polyrhythm.fabric.heap import EventHeap
from polyrhythm.fabric.parent_messages import description
from polyrhythm.fabric.pfc_cables import PfcCables, PfcProfile
from polyrhythm.scenario import Scenario
from polyrhythm.scenario.failures import End, Failure
from topo.graph import UNKNOWN_HASH, HashSpec

log = logging.getLogger(__name__)

# Fabric time from a message of the fabric to the effect of the controller's answer. Chosen: the order of a
# round trip in a data centre with a little computation. Host time does not enter.
CONTROL_DELAY_NS = 1_000_000

# How often the controller reads counters, in fabric time. Chosen: several times per iteration.
COUNTER_POLL_MS = 100

# From the loss of light to the change of the switch's port table. Chosen: the order of a switch's link-scan
# interrupt.
PORT_DOWN_DELAY_NS = 100_000


class EmbeddedFabric:
    """All nodes of a scenario on one event heap. Cables have no delay, unless the scenario has priority flow
    control: a frame arrives with its last bit.

    `rpc_delay_s` delays every RPC by host time. `failures` happen at their fabric times. `waiting` and
    `silence_s` are as of `FabricBoundary`.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        rpc_delay_s: float = 0.0,
        failures: Sequence[Failure] = (),
        *,
        waiting: Callable[[float], None] | None = None,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.scenario = scenario
        self.heap = EventHeap()
        self.boundary = FabricBoundary(self.heap, CONTROL_DELAY_NS, waiting=waiting, silence_s=silence_s)
        self._rpc_delay_s = rpc_delay_s
        topology = scenario.topology
        self._pfc = _pfc_cables(self.heap, scenario)
        self.switches = {s.name: self._switch(s.name, seed) for s in topology.switches}
        self.failovers = FailoverWatch(self.heap, self.switches, tuple(failures))
        for failure in failures:
            self.heap.call_at(failure.at_ns, self._fail, failure)
        # NICs that no job uses, such as that of a host that floods the fabric, are no reference.
        rates = {topology.host[name].rate_bps for w in scenario.workloads for name in w.job.hosts}
        self._fastest_bps, self._slowest_bps = max(rates), min(rates)
        # From the NIC of each host to its leaf.
        self._cables: dict[str, Callable[[bytes], None]] = {}
        self.hosts = {h.name: self._host(h.name, seed) for h in topology.hosts}
        # By the first NIC of each machine: the agents of all its NICs share a session.
        self._rails = {
            nics[0].name: Rails(self.hosts[nic.name].agent for nic in nics)
            for nics in topology.machines.values()
        }
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
        self.servers = {s.name: self._serve(s.name) for s in topology.switches}
        # How many failures hold a port down, and the cables that an operator has cut, by one of their ports.
        self._causes: Counter[End] = Counter()
        self._cut: dict[End, Failure] = {}
        self.boundary.on_order = self._order
        self._sessions: dict[str, ControllerSession] = {}
        self._connected: set[str] = set()
        self.ordered = False
        """Whether an operator has cut a cable. Such a run cannot be repeated."""

    def describe(self, profile: str = "") -> dict[str, Any]:
        """The description that the controller reads: the graph, the servers of the switches, the ECN ramp.

        `profile` is "measured" or "declared"; "" takes the scenario's choice.
        """
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
        """Open the session of each machine's agent with the controller at `address`.

        Messages of the controller take effect as the rule of time says (`polyrhythm.fabric.boundary`).

        Raises:
            ControllerLostError: the controller is gone, or has been silent for too long.
        """
        for name in self._rails:
            self._sessions[name] = ControllerSession(
                (address,),
                partial(self._from_controller, name),
                partial(self._session_lost, name),
                partial(self._session_up, name),
                rpc_delay_s=self._rpc_delay_s,
            )
        for session in self._sessions.values():
            session.start()
        self.boundary.wait_for(lambda: len(self._connected) == len(self._rails))

    def _serve(self, name: str, address: str = "127.0.0.1:0") -> SwitchServer:
        """Serve a switch."""
        server = serve(
            self.switches[name],
            self.boundary,
            device_id=self.scenario.topology.switch[name].device_id,
            address=address,
            rpc_delay_s=self._rpc_delay_s,
        )
        self._session_changes(name)
        return server

    def _session_changes(self, name: str) -> None:
        """Let the controller's next step wait until it knows of the begin or the end of its session with a
        switch. This is no message: the controller counts both on this channel.
        """
        self.boundary.depart(name, f"session:{name}", lambda: None)

    def _fail(self, failure: Failure) -> None:
        """Begin a failure: power a switch off and end its server, or cut cables. The ports at both ends go
        down.
        """
        self.failovers.began(failure)
        if failure.switch is not None:
            self.boundary.note(f"{failure.switch} was powered off")
            self.servers[failure.switch].stop()
            self._session_changes(failure.switch)
        else:
            self.boundary.note(f"{failure.what} was cut")
        for end in failure.ends:
            self._causes[end] += 1
            self._set_port_up(*end, False)
        if failure.until_ns is not None:
            self.heap.call_at(failure.until_ns, self._repair, failure)

    def _repair(self, failure: Failure) -> None:
        """End a failure. A switch begins without a pipeline, as after any power cycle."""
        if failure.switch is None:
            self.boundary.note(f"{failure.what} was repaired")
            self._bring_up(failure)
        else:
            self.boundary.note(f"{failure.switch} was powered on")
            self.servers[failure.switch] = self._serve(failure.switch, self.servers[failure.switch].address)
            # Its ports stay down until the controller has written its tables.
            self.heap.call_at(self.heap.now + 2 * CONTROL_DELAY_NS, self._bring_up, failure)

    def _bring_up(self, failure: Failure) -> None:
        for end in failure.ends:
            self._causes[end] -= 1
            if not self._causes[end]:
                self._set_port_up(*end, True)

    def _order(self, order: CableOrder) -> None:
        """Cut a cable between two switches for an operator, or mend it, if it is not so already."""
        end = order.switch, order.port
        peer = self.scenario.topology.ports.get(order.switch, {}).get(order.port)
        if peer is None or peer.node not in self.switches:
            log.warning("the controller asked to cut %s:%d, where no cable to a switch is", *end)
        elif order.cut and end not in self._cut:
            ends = end, (peer.node, peer.port)
            self._cut[end] = Failure(f"{order.switch}:{order.port}", self.heap.now, None, ends)
            self.ordered = True
            self._fail(self._cut[end])
        elif not order.cut and end in self._cut:
            self._repair(self._cut.pop(end))

    def _set_port_up(self, switch: str, port: int, up: bool) -> None:
        self.switches[switch].set_port_up(port, up)
        if self._pfc is not None:
            self._pfc.port_changed(switch, port, up)
            peer = self.scenario.topology.ports[switch][port].node
            if peer in self.hosts and not up:
                self._pfc.nic_down(peer)

    def pfc_report(self) -> dict[str, Any] | None:
        """What priority flow control has done so far, as JSON values; None: the scenario has none."""
        return None if self._pfc is None else self._pfc.report()

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
        nics = topology.machines[host.machine]
        frame_bytes = self.scenario.packet_bytes + overhead_bytes(host.ip)
        self._cables[name] = self._arrival(host.leaf, host.leaf_port)
        return EmulatedHost(
            name=name,
            ip=host.ip,
            mac=host.mac,
            gateway_mac=topology.switch[host.leaf].mac,
            rate_bps=host.rate_bps,
            clock=self.heap,
            transmit=self._cables[name],
            send=partial(self._to_controller, nics[0].name),
            dcqcn=DcqcnProfile.scaled(
                self._fastest_bps, frame_bytes, self._slowest_bps, self.scenario.buffer_packets
            ),
            mtu=self.scenario.packet_bytes,
            seed=seed,
            addresses={h.name: h.ip for h in topology.hosts},
            skew=self._skew(nics[0].name, seed),
            chooses_ports=name in self.scenario.port_choosers,
            keeps_dscp=name in self.scenario.dscp_keepers,
            any_order=name in self.scenario.any_order,
            shares_session=len(nics) > 1,
        )

    def _skew(self, name: str, seed: int) -> Skew | None:
        """The error of the host's clock, drawn from the range that the scenario gives; None for an exact
        clock.
        """
        offset, drift = self.scenario.clock_offset_ns, self.scenario.clock_drift_ppm
        if not offset and not drift:
            return None
        draw = Random(f"{seed}/clock/{name}")
        return Skew(draw.randint(-offset, offset), draw.uniform(-drift, drift))

    def enter(self, host: str, frame: bytes) -> None:
        """A frame arrives at the leaf by the cable of a host, and not by its NIC."""
        self._cables[host](frame)

    def _arrival(self, node: str, port: int) -> Callable[[bytes], None]:
        """The end of a cable at a node: takes the frames whose last bit has left the other end."""
        topology, pfc = self.scenario.topology, self._pfc
        if node in topology.host:
            receive = self.hosts[node].receive
            if pfc is None:
                return receive
            return pfc.to_nic(node, topology.host[node].rate_bps, self.hosts[node].nic.hold, receive)
        if pfc is None:
            return partial(self.switches[node].receive, port)
        return pfc.to_switch(node, port, topology.ports[node][port].rate_bps)

    def _switch(self, name: str, seed: int) -> EmbeddedSwitch:
        topology = self.scenario.topology
        port_table = PortTable("port_state", "set_port_down", PORT_DOWN_DELAY_NS)
        if self._pfc is None:
            return EmbeddedSwitch(name, self.heap, seed=seed, port_table=port_table)
        rates = {port: peer.rate_bps for port, peer in topology.ports[name].items()}
        mac = mac_bytes(topology.switch[name].mac)
        return self._pfc.switch(name, mac, rates, seed=seed, port_table=port_table)

    def _to_controller(self, host: str, message: agent_pb2.AgentMessage) -> None:
        self.boundary.depart(host, f"agent:{host}", partial(self._sessions[host].send, message))

    def _from_controller(self, host: str, message: agent_pb2.ControllerMessage) -> None:
        self.boundary.deliver(host, partial(self._apply_message, host, message))
        self.boundary.arrived(f"agent:{host}")

    def _apply_message(self, host: str, message: agent_pb2.ControllerMessage) -> None:
        if message.WhichOneof("body") == "flow":
            self.failovers.reassigned()
        self._rails[host].on_message(message)

    def _session_lost(self, host: str) -> None:
        self.boundary.deliver(host, self._rails[host].session_lost)

    def _session_up(self, host: str) -> None:
        self.boundary.deliver(host, self._rails[host].session_up)
        self._connected.add(host)


def _pfc_cables(heap: EventHeap, scenario: Scenario) -> PfcCables | None:
    """The cables of a scenario with priority flow control; None: it has none."""
    pfc, frame = scenario.pfc, scenario.frame_bytes
    if pfc is None:
        return None
    return PfcCables(
        heap,
        PfcProfile(
            priorities=frozenset(pfc.priorities),
            xoff_bytes=pfc.xoff * frame,
            xon_bytes=pfc.xon * frame,
            headroom_bytes=None if pfc.headroom is None else pfc.headroom * frame,
            frame_bytes=frame,
            quanta=pfc.quanta,
            cable_ns=pfc.cable_ns,
        ),
        TRAFFIC_CLASSES.queues,
    )
