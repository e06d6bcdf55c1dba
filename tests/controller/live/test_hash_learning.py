# SPDX-License-Identifier: Apache-2.0
"""Ports learned by probes in a fabric whose hash the controller does not know, linear or not, with losses."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from control_rig import RATE_BPS, job

from controller.live.core import Core
from controller.live.messages import FlowAsked, PacketSeen, PortsSeen, SendFrame, SwitchReady, WorkerJoined
from controller.live.settings import CoreSettings
from controller.model.job import Flow
from controller.planner import POLICIES, plan
from controller.southbound.desired import REASON_INT
from polyrhythm.cli import main
from topo.generate import leaf_spine
from topo.graph import UNKNOWN_HASH, HashSpec, Topology

SECRET = HashSpec(UNKNOWN_HASH)


def crc(key: bytes) -> int:
    return zlib.crc32(key) & 255


def scrambled(key: bytes) -> int:
    """No CRC: nothing linear about it."""
    return hashlib.blake2b(key, digest_size=1).digest()[0]


class Fabric:
    """A core, and switches that answer its probes by a hash of their own."""

    def __init__(self, spines: int, chooses: Callable[[bytes], int], *, loses: bool = False) -> None:
        self.topology = replace(leaf_spine(2, spines, 4, host_bps=RATE_BPS, fabric_bps=RATE_BPS), hash=SECRET)
        self.core = Core(CoreSettings(self.topology, POLICIES["routing"], 1, True, 1))
        self.chooses, self.loses, self.probes = chooses, loses, 0
        self.dead: set[str] = set()
        for name in self.topology.switch:
            self.core.handle(SwitchReady(name, dict.fromkeys(self.topology.ports[name], True)))

    def way(self, src: str, dst: str, port: int) -> tuple[str, ...]:
        a, b = self.topology.host[src], self.topology.host[dst]
        if a.leaf == b.leaf:
            return src, a.leaf, dst
        alive = [s for s in self.topology.upward[a.leaf] if s not in self.dead]
        key = struct.pack("!4s4sH", *(bytes(map(int, h.ip.split("."))) for h in (a, b)), port)
        return src, a.leaf, alive[self.chooses(key) % len(alive)], b.leaf, dst

    def settle(self) -> None:
        """Answer probes and plan until nothing is asked any more."""
        core = self.core
        while True:
            frames = [e for e in core.take_effects() if isinstance(e, SendFrame)]
            for frame in frames:
                self.answer(frame.payload)
            if core.wants_tables:
                core.take_condition()
            if core.wants_plan:
                core.adopt(plan(core.plan_input()))
            elif not frames:
                if core.next_timer_ns is None:
                    return
                core.now_ns = core.next_timer_ns
                core.run_timers()

    def answer(self, probe: bytes) -> None:
        self.probes += 1
        if self.loses and self.probes % 5 == 0:
            return
        ip = {bytes(map(int, h.ip.split("."))): h.name for h in self.topology.hosts}
        (port,) = struct.unpack("!H", probe[34:36])
        path = self.way(ip[probe[26:30]], ip[probe[30:34]], port)
        for node in path[1:-1]:
            hop = struct.pack("!IHHIIQQ", self.topology.switch[node].device_id, 1, 2, 30, 7 << 24, 0, 0)
            shim = bytearray(probe[42:46])
            shim[1] += 8
            probe = probe[:42] + bytes(shim) + probe[46:58] + hop + probe[58:]
        self.core.handle(PacketSeen(path[-2], 1, REASON_INT, 0, probe))

    def check(self) -> None:
        """Every elephant is pinned, and goes where the plan says."""
        for name, flow in self.core.plan.flows.items():
            assert flow.source_port is not None, (name, flow.why)
            assert self.way(flow.path[0], flow.path[-1], flow.source_port) == flow.path
        assert self.core.paths.verified == set(self.core.plan.flows)


def begin(fabric: Fabric, *members) -> None:
    for member in members:
        for rank, host in enumerate(member.hosts):
            fabric.core.handle(WorkerJoined(host, rank, member))
        for flow in member.flows:
            fabric.core.handle(FlowAsked(flow.src, flow.name))


@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("spines", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("chooses", [crc, scrambled])
def test_flows_are_pinned_by_what_probes_have_shown(chooses, spines, loses) -> None:
    fabric = Fabric(spines, chooses, loses=loses)
    members = [job(f"j{i}", f"h{i}", f"h{i + 4}") for i in (1, 2, 3)]
    begin(fabric, *members, job("near", "h4", "h1"))
    fabric.settle()
    fabric.check()
    ways = {fabric.core.plan.flows[m.flows[0].name].path[2] for m in members}
    assert len(ways) == min(3, spines)
    if chooses is crc and spines == 8 and not loses:
        # One for the constant, three to span the paths, the checks, and each plan's verification.
        assert fabric.probes <= 6 * (4 + 4) + 2 * 8


def test_a_failure_has_them_learned_anew() -> None:
    fabric = Fabric(4, scrambled)
    begin(fabric, *(job(f"j{i}", f"h{i}", f"h{i + 4}") for i in (1, 2, 3, 4)))
    fabric.settle()
    fabric.dead = {"spine2"}
    for leaf in ("leaf1", "leaf2"):
        port = next(p for p, peer in fabric.topology.ports[leaf].items() if peer.node == "spine2")
        fabric.core.handle(PortsSeen(leaf, {port: False}))
    fabric.settle()
    fabric.check()
    assert not any("spine2" in f.path for f in fabric.core.plan.flows.values())


def test_without_probes_switches_pin_what_has_a_choice() -> None:
    topology: Topology = replace(leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS), hash=SECRET)
    for policy in ("routing", "crux", "polyrhythm"):
        core = Core(CoreSettings(topology, POLICIES[policy], 1, False, 1))
        member = job("a", "h1", "h3")
        near = Flow("a/h1>h2", "a", "h1", "h2", 1_500_000)
        member = replace(member, hosts=("h1", "h3", "h2"), flows=(*member.flows, near))
        for rank, host in enumerate(member.hosts):
            core.handle(WorkerJoined(host, rank, member))
        core.adopt(plan(core.plan_input()))
        assert core.plan.flows["a/h1>h3"].path is not None
        assert "hash is not known" in core.plan.flows["a/h1>h3"].why
        assert {p.flow for p in core.plan.pins} == {"a/h1>h3", "a/h3>h1"}
        assert core.plan.flows["a/h1>h2"].path == ("h1", "leaf1", "h2")


@pytest.mark.slow
@pytest.mark.parametrize("spines", [2, 3])
def test_the_embedded_fabric_keeps_its_hash_to_itself(tmp_path: Path, spines: int) -> None:
    """The real switches, the real probes; the controller knows nothing but how to ask."""
    jobs = [
        f"  - {{name: {n}, model: M, gpus: 2, hosts: [{a}, {b}], period_ms: 60, "
        "phases: [{start_ms: 0, end_ms: 30, gbps: 50}]}"
        for n, a, b in (("a", "h1", "h3"), ("b", "h2", "h4"))
    ]
    scenario = tmp_path / "secret.yaml"
    scenario.write_text(
        "name: secret\nhash: unknown\nwarmup: 1\niterations: 4\n"
        f"fabric: {{kind: leaf_spine, leaves: 2, spines: {spines}, hosts_per_leaf: 2, host_gbps: 50, "
        "fabric_gbps: 50}\njobs:\n" + "\n".join(jobs) + "\n"
    )
    out = tmp_path / "run.json"
    words = [
        "run",
        str(scenario),
        "--once",
        "--offsets",
        "0",
        "--policy",
        "routing",
        "--json",
        str(out),
        "--keep",
        str(tmp_path),
    ]
    assert main(words) == 0
    found = json.loads(out.read_text())["scenarios"]["secret"]
    assert found["deterministic"] is True
    ways = {f["path"][2] for j in found["jobs"] for f in j["flows"] if f["flow"].startswith(("a/h1", "b/h2"))}
    assert len(ways) == 2
    log = (tmp_path / "secret" / "routing" / "controller.log").read_text()
    assert "confirmed 4 paths; 0 are not" in log
    assert f"the hash is {'linear' if spines == 2 else 'not linear'}" in log
