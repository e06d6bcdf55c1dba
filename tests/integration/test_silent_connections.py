# SPDX-License-Identifier: Apache-2.0
"""Jobs that say nothing, found by their TCP connections: plain programs, agents, a controller, and switches in
network namespaces. Root and Mininet are needed."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from socket import IPPROTO_TCP
from typing import Any

import pytest
from agent_rig import PATIENCE_S

from controller.model import TRAFFIC_CLASSES
from controller.routing.forwarding import forwarding
from controller.routing.paths import path_of
from polyrhythm.emulation.folder import own_folder
from polyrhythm.paper.real_training.cluster import Rank, TrainingCluster, wait_until
from topo.graph import Host
from topo.mininet import MininetError, check_host, port_interface

pytestmark = [pytest.mark.slow, pytest.mark.alone]

RATE_BPS = 6_250_000
PERIOD_MS, BURST_BYTES = 500, 60_000
"""A burst takes a sixth of the period alone."""
PORT = 5001
SEGMENTS = 20
DATA_BYTES = 200
"""Longer packets carry data."""
ETH_P_ALL = 3
JOBS = {"a": ("h1", "h3"), "b": ("h2", "h4")}

# Two programs exchange a burst in each period, as a ring of two does. One listens, the other gives its port.
PROGRAM = f"""
import socket, sys, threading, time
own, peer, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if port:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((own, port))
    while made.connect_ex((peer, {PORT})):
        time.sleep(0.1)
else:
    made = socket.create_server((own, {PORT})).accept()[0]
def drain():
    while made.recv(1 << 16):
        pass
threading.Thread(target=drain, daemon=True).start()
while True:
    time.sleep({PERIOD_MS / 1e3} - time.time() % {PERIOD_MS / 1e3})
    made.sendall(bytes({BURST_BYTES}))
"""


class ObservingCluster(TrainingCluster):
    """Its agents know the names and hosts of the jobs, and nothing else of them."""

    def agent_toml(self, host: Host, controller: str) -> str:
        text = super().agent_toml(host, controller)
        for name, hosts in JOBS.items():
            if host.name in hosts:
                named = ", ".join(f'"{h}"' for h in hosts)
                text += f'[[sources.jobs]]\nname = "{name}"\nhosts = [{named}]\nconnections = true\n'
        return text


@pytest.fixture(autouse=True)
def _possible() -> None:
    try:
        check_host()
    except MininetError as error:
        pytest.skip(str(error))


class Programs:
    """The two processes of each job. Unsteered, the connections of all jobs cross spine1, both ways."""

    def __init__(self, cluster: TrainingCluster) -> None:
        self._cluster = cluster
        self._ranks: dict[str, list[Rank]] = {}
        self._next_port = 41_000
        self.port: dict[str, int] = {}

    def start(self, job: str) -> None:
        src, dst = JOBS[job]
        self.port[job] = self._port(src, dst)
        self._next_port = self.port[job] + 1
        ip = {host: self._cluster.topology.host[host].ip for host in (src, dst)}
        run = [sys.executable, "-I", "-S", "-c", PROGRAM]
        self._ranks[job] = [
            self._cluster.rank(dst, [*run, ip[dst], ip[src], "0"], {}),
            self._cluster.rank(src, [*run, ip[src], ip[dst], str(self.port[job])], {}),
        ]

    def end(self, job: str) -> None:
        for rank in self._ranks.pop(job):
            rank.kill()

    def end_all(self) -> None:
        for job in list(self._ranks):
            self.end(job)

    def _port(self, src: str, dst: str) -> int:
        topology = self._cluster.topology
        table = forwarding(topology)

        def crosses_spine1(src: str, dst: str, ports: tuple[int, int]) -> bool:
            path = path_of(topology, table, src, dst, ports[0], protocol=IPPROTO_TCP, dest_port=ports[1])
            return path is not None and path[2] == "spine1"

        return next(
            port
            for port in range(self._next_port, 1 << 16)
            if crosses_spine1(src, dst, (port, PORT)) and crosses_spine1(dst, src, (PORT, port))
        )


class Uplinks:
    """What leaves leaf1 for the spines."""

    def __init__(self, cluster: TrainingCluster) -> None:
        self._spines = {
            port_interface(port): peer.node for port, peer in cluster.topology.ports["leaf1"].items()
        }
        self._socket = cluster.network.inside("leaf1", self._open)

    @staticmethod
    def _open() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        made.settimeout(PATIENCE_S)
        return made

    def close(self) -> None:
        self._socket.close()

    def segments(self, port: int) -> set[tuple[str, int]]:
        """Where the next segments with data from this port to PORT go, and with which DSCP."""
        self._drain()
        found = set()
        seen = 0
        while seen < SEGMENTS:
            frame, (interface, _, kind, *_) = self._socket.recvfrom(100)
            if kind != socket.PACKET_OUTGOING or frame[12:14] != b"\x08\x00" or frame[23] != IPPROTO_TCP:
                continue
            length, ports = struct.unpack_from("!H", frame, 16)[0], struct.unpack_from("!HH", frame, 34)
            if ports == (port, PORT) and length > DATA_BYTES:
                found.add((self._spines[interface], frame[15] >> 2))
                seen += 1
        return found

    def _drain(self) -> None:
        self._socket.setblocking(False)
        try:
            while True:
                self._socket.recv(1)
        except BlockingIOError:
            self._socket.settimeout(PATIENCE_S)


def is_right(profile: Mapping[str, Any]) -> bool:
    """Whether a profile has the period of the bursts, or twice that, and Up phases about as long as they are."""
    periods = profile["period_ms"] / PERIOD_MS
    up_ms = sum(phase["end_ms"] - phase["start_ms"] for phase in profile["phases"])
    near = periods == pytest.approx(round(periods), abs=0.15)
    return near and round(periods) in (1, 2) and 0 < up_ms < profile["period_ms"] / 2


def test_silent_jobs_are_found_planned_for_pinned_and_put_on_a_level() -> None:
    """Two programs share a link, unsteered. They are moved apart while they run, and one that starts again too."""
    with own_folder() as folder, ExitStack() as ending:
        cluster = ObservingCluster(folder, spines=2, rate_bps=RATE_BPS, policy="polyrhythm")
        ending.callback(cluster.close)
        cluster.start()
        programs, uplinks = Programs(cluster), Uplinks(cluster)
        ending.callback(uplinks.close)
        ending.callback(programs.end_all)
        for job in JOBS:
            programs.start(job)
            # Nobody has asked for a level: as they come, they are mice on the port that the hash gives.
            assert uplinks.segments(programs.port[job]) == {("spine1", TRAFFIC_CLASSES.mice)}

        def planned() -> dict[str, tuple[str, int]]:
            """The spine and the DSCP of what each job's first host sends, if all are planned for."""
            flows = cluster.ask("plan", absent={"flows": []})["flows"]
            found = {
                job: (flow["path"][2], flow["dscp"])
                for job, ends in JOBS.items()
                for flow in flows
                if flow["flow"] == f"{job}/{ends[0]}>{ends[1]}" and flow["path"]
            }
            return found if len(found) == len(JOBS) else {}

        def as_planned() -> bool:
            wanted = planned()
            return bool(wanted) and all(uplinks.segments(programs.port[job]) == {wanted[job]} for job in JOBS)

        def as_they_send() -> bool:
            """Whether the jobs' profiles are right. On a busy machine bursts are seen late, and two in turn may
            look alike; while the jobs share a link, and until the agents have seen enough, others may be found.
            """
            profiles = [job["profile"] for job in cluster.ask("jobs")["jobs"]]
            return len(profiles) == len(JOBS) and all(map(is_right, profiles))

        wait_until(as_planned, "segments on the planned paths, with the DSCP of their levels")
        wait_until(as_they_send, "profiles with the period of the bursts")
        # A better profile brings a new plan.
        wait_until(as_planned, "segments as in the plan for these profiles")
        assert {spine for spine, _ in planned().values()} == {"spine1", "spine2"}
        assert {dscp for _, dscp in planned().values()} <= set(TRAFFIC_CLASSES.levels)
        moved = next(job for job, (spine, _) in planned().items() if spine != "spine1")
        programs.end(moved)
        programs.start(moved)
        wait_until(as_planned, "the next connection on the planned path")
