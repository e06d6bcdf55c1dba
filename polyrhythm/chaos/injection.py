# SPDX-License-Identifier: Apache-2.0
"""Carries out the faults of `polyrhythm chaos`. Each function returns when its fault is over."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import grpc
from finsy.proto import p4r, p4r_grpc

from polyrhythm.chaos.faults import Fault
from polyrhythm.chaos.processes import ChaosCluster, Child
from polyrhythm.chaos.proxy import Proxy

_CALL_S = 2.0
# Chosen: some hundred at once are more than any deployment's clients, and pass in a second.
_FLOOD_CONNECTIONS = 200
_FLOOD_REQUESTS = 300
_GARBAGE_BYTES = 3000
# Chosen: how often a switch that loses power breaks no connection.
_NO_FAREWELL = 0.5


def inject(cluster: ChaosCluster, fault: Fault, wait: Callable[[float], None]) -> None:
    """Carry out a fault. `wait(seconds)` lets time pass."""
    _ACTIONS[fault.kind](cluster, fault, wait)


Wait = Callable[[float], None]


def _host(cluster: ChaosCluster, fault: Fault) -> str:
    return cluster.topology.hosts[fault.target % len(cluster.topology.hosts)].name


def _switch(cluster: ChaosCluster, fault: Fault) -> str:
    return cluster.topology.switches[fault.target % len(cluster.topology.switches)].name


def _link(cluster: ChaosCluster, fault: Fault) -> tuple[str, str]:
    link = cluster.topology.links[fault.target % len(cluster.topology.links)]
    return link.a, link.b


def _proxy(cluster: ChaosCluster, fault: Fault) -> Proxy:
    every = [*cluster.to_switch.values(), *cluster.to_controller.values()]
    return every[fault.target % len(every)]


def _controller_kill(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    cluster.controller.end(signal.SIGKILL)
    wait(fault.duration_s / 4)
    cluster.start_controller()


def _controller_restart(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    cluster.controller.end(signal.SIGTERM)
    wait(fault.duration_s / 4)
    cluster.start_controller()


@contextlib.contextmanager
def _stopped(child: Child) -> Iterator[None]:
    child.send(signal.SIGSTOP)
    try:
        yield
    finally:
        child.send(signal.SIGCONT)


def _controller_stop(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    with _stopped(cluster.controller):
        wait(fault.duration_s)


def _planner_kill(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    for _ in range(1 + fault.target % 4):
        for pid in _children(cluster.controller.pid):
            # A worker may end by itself between the list and the signal.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if b"worker_calls" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        # A link that goes down makes the controller use the planner.
        a, b = _link(cluster, fault)
        cluster.command(do="link", link=(a, b), up=False)
        wait(fault.duration_s / 4)
        cluster.command(do="link", link=(a, b), up=True)


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _agent_kill(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    _restart_agent(cluster.agents[_host(cluster, fault)], signal.SIGKILL, fault.duration_s / 2, wait)


def _agent_restart(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    _restart_agent(cluster.agents[_host(cluster, fault)], signal.SIGTERM, fault.duration_s / 2, wait)


def _restart_agent(agent: Child, number: int, pause_s: float, wait: Wait) -> None:
    agent.end(number)
    wait(pause_s)
    agent.start()
    agent.line()


def _agent_stop(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    with _stopped(cluster.agents[_host(cluster, fault)]):
        wait(fault.duration_s)


def _agent_silence(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    _silence(cluster.to_controller[_host(cluster, fault)], fault, wait)


def _switch_silence(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    _silence(cluster.to_switch[_switch(cluster, fault)], fault, wait)


def _silence(proxy: Proxy, fault: Fault, wait: Wait) -> None:
    proxy.silence(True)
    wait(fault.duration_s)
    proxy.silence(False)


def _switch_dead(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    name = _switch(cluster, fault)
    cluster.command(do="stop", switch=name)
    if fault.rng().random() < _NO_FAREWELL:
        cluster.to_switch[name].abandon()
    else:
        cluster.to_switch[name].cut()
    wait(fault.duration_s)
    cluster.command(do="start", switch=name)


def _switch_empty(cluster: ChaosCluster, fault: Fault, _: Wait) -> None:
    name = _switch(cluster, fault)
    cluster.command(do="stop", switch=name)
    cluster.to_switch[name].cut()
    cluster.command(do="start", switch=name)


def _switch_reset(cluster: ChaosCluster, fault: Fault, _: Wait) -> None:
    cluster.to_switch[_switch(cluster, fault)].cut()


def _link_down(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    link = _link(cluster, fault)
    cluster.command(do="link", link=link, up=False)
    wait(fault.duration_s)
    cluster.command(do="link", link=link, up=True)


def _link_flap(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    link, rng = _link(cluster, fault), fault.rng()
    for _ in range(rng.randint(2, 8)):
        cluster.command(do="link", link=link, up=False)
        wait(rng.uniform(0.0, 0.3))
        cluster.command(do="link", link=link, up=True)
        wait(rng.uniform(0.0, 0.3))


def _half_open(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    cluster.to_controller[_host(cluster, fault)].lose_near_ends()
    wait(fault.duration_s)


def _slow_writes(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    proxy = _proxy(cluster, fault)
    proxy.slow = True
    wait(fault.duration_s)
    proxy.slow = False


def _partial_write(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    proxy = _proxy(cluster, fault)
    proxy.cut(after_bytes=fault.rng().randint(1, 2000))
    # The connection breaks when so many bytes have passed; a flapping link makes some.
    _link_flap(cluster, fault, wait)
    proxy.cut()


def _stolen_mastership(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    name = _switch(cluster, fault)
    device = cluster.topology.switch[name].device_id
    election = p4r.Uint128(high=fault.number + 1, low=fault.number)
    bid = p4r.MasterArbitrationUpdate(device_id=device, election_id=election)
    over: list[bool] = []

    def requests() -> Iterator[p4r.StreamMessageRequest]:
        yield p4r.StreamMessageRequest(arbitration=bid)
        while not over:
            time.sleep(0.02)

    with grpc.insecure_channel(cluster.to_switch[name].target) as channel, contextlib.suppress(grpc.RpcError):
        stub = p4r_grpc.P4RuntimeStub(channel)
        stream = stub.StreamChannel(requests())
        next(stream)
        request = p4r.ReadRequest(device_id=device)
        request.entities.add(table_entry=p4r.TableEntry())
        entities = [e for reply in stub.Read(request, timeout=_CALL_S) for e in reply.entities]
        # Entries of the egress queues: packets flow without them, but the switch is not as it should be.
        chosen = fault.rng().sample(entities, min(3, len(entities)))
        updates = [p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in chosen]
        stub.Write(p4r.WriteRequest(device_id=device, election_id=election, updates=updates), timeout=_CALL_S)
        wait(min(fault.duration_s, 1.0))
        over.append(True)
        stream.cancel()


def _full_disk(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    pid = cluster.controller.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    # A flapping link makes plans, which the controller wants to store.
    _link_flap(cluster, fault, wait)
    wait(fault.duration_s)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def _locked_state(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    with contextlib.closing(sqlite3.connect(cluster.state, timeout=_CALL_S)) as database:
        with contextlib.suppress(sqlite3.OperationalError):
            database.execute("BEGIN EXCLUSIVE")
        _link_flap(cluster, fault, wait)
        wait(fault.duration_s)
        database.rollback()


def _clock_jump(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    rng = fault.rng()
    cluster.wall_clock.write_text(str(rng.choice((-1, 1)) * rng.choice((1.0, 60.0, 3600.0, 86400.0))))
    _link_flap(cluster, fault, wait)


def _garbage(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    rng = fault.rng()
    web = cluster.web.rpartition("/")[2]
    addresses = [cluster.agents_address, web, *(proxy.target for proxy in cluster.to_switch.values())]
    for address in addresses:
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), _CALL_S) as raw:
            raw.sendall(_noise(rng, http=address == web))
    for host in cluster.agents:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(_CALL_S)
            raw.connect(str(cluster.agent_socket(host)))
            raw.sendall(_noise(rng, http=False) + b"\n")
    wait(0.2)


def _noise(rng: Random, *, http: bool) -> bytes:
    noise = rng.randbytes(rng.randint(1, _GARBAGE_BYTES))
    heads = (b"", b"GET /", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") if not http else (b"", b"GET / HTTP/1.1\r\n")
    return rng.choice(heads) + noise


def _flood(cluster: ChaosCluster, fault: Fault, wait: Wait) -> None:
    opened: list[socket.socket] = []
    web = cluster.web.rpartition("/")[2]
    for address in (cluster.agents_address, web):
        host, _, port = address.rpartition(":")
        for _ in range(_FLOOD_CONNECTIONS):
            with contextlib.suppress(OSError):
                opened.append(socket.create_connection((host, int(port)), _CALL_S))
    line = json.dumps({"op": "flow", "flow": "flood/x", "bytes": 1 << 30}).encode() + b"\n"
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(_CALL_S)
        raw.connect(str(cluster.agent_socket(_host(cluster, fault))))
        for _ in range(_FLOOD_REQUESTS):
            raw.sendall(line)
        wait(min(fault.duration_s, 1.0))
    for connection in opened:
        connection.close()


_ACTIONS: dict[str, Callable[[ChaosCluster, Fault, Wait], None]] = {
    "controller-kill": _controller_kill,
    "controller-restart": _controller_restart,
    "controller-stop": _controller_stop,
    "planner-kill": _planner_kill,
    "agent-kill": _agent_kill,
    "agent-restart": _agent_restart,
    "agent-stop": _agent_stop,
    "agent-silence": _agent_silence,
    "switch-dead": _switch_dead,
    "switch-empty": _switch_empty,
    "switch-silence": _switch_silence,
    "switch-reset": _switch_reset,
    "link-down": _link_down,
    "link-flap": _link_flap,
    "half-open": _half_open,
    "slow-writes": _slow_writes,
    "partial-write": _partial_write,
    "stolen-mastership": _stolen_mastership,
    "full-disk": _full_disk,
    "locked-state": _locked_state,
    "clock-jump": _clock_jump,
    "garbage": _garbage,
    "flood": _flood,
}
