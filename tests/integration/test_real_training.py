# SPDX-License-Identifier: Apache-2.0
"""Unchanged PyTorch jobs over gloo on a Mininet fabric, steered by the socket shim: root and torch are needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_rig import PATIENCE_S, ROOT, environment, eventually
from shim_rig import SHIM, needs_compiler

from polyrhythm.emulation.folder import own_folder
from polyrhythm.emulation.process import describe
from polyrhythm.emulation.programmed import wait_programmed
from polyrhythm.emulation.switches import Switches
from polyrhythm.scenario import load_scenario
from topo.mininet import HOST_INTERFACE, MininetError, MininetFabric, check_host

pytestmark = [pytest.mark.slow, pytest.mark.alone, needs_compiler]

JOBS = {"a": ("h1", "h3"), "b": ("h2", "h4")}
SCENARIO = """
name: training
fabric: {kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 2, host_gbps: 50, fabric_gbps: 50}
jobs:
  - {name: a, model: MLP, gpus: 2, hosts: [h1, h3], period_ms: 300, phases: [{start_ms: 0, end_ms: 150, gbps: 50}]}
"""
STEPS, PAUSE_S = 60, 0.05
STEP_BYTES = 4 * (256 * 256 + 256 + 256 * 128 + 128)
"""The gradients of the model, which each of two ranks sends once in a step."""


class Fabric:
    """Two leaves, two spines, a controller, and an agent on each of four hosts."""

    def __init__(self, network: MininetFabric, folder: Path) -> None:
        self.network, self.folder, self.web = network, folder, ""
        self.processes: list[subprocess.Popen[Any]] = []

    def start(self, *, hash_known: bool) -> None:
        network, folder = self.network, self.folder
        file = folder / "training.yaml"
        scenario = replace(load_scenario(file), hash_known=hash_known)
        switches = Switches(network, scenario, folder, seed=1)
        (folder / "fabric.json").write_text(json.dumps(describe(scenario, switches)))
        argv = ["controller", f"--fabric={folder}/fabric.json", f"--agents-address=unix:{folder}/agents.sock"]
        said = self._ready(subprocess.Popen, [*argv, "--web-port=0", "--policy=routing", "--state=none"])
        self.web = said["web"]
        for host in network.topology.hosts:
            own = folder / host.name
            own.mkdir()
            (own / "agent.toml").write_text(
                f'[agent]\nhost = "{host.name}"\nip = "{host.ip}"\ncontroller = "{said["agents"]}"\n'
                f'socket = "{own}/agent.sock"\n[nic]\ndriver = "sockets"\n[sockets]\nmap = "{own}/sockets"\n'
            )
            argv = ["agent", "--config", str(own / "agent.toml")]
            self._ready(lambda a, node=host.name, **o: network.spawn(node, a, **o), argv)
        wait_programmed(self.web)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _ready(self, spawn: Any, argv: list[str]) -> Any:
        with (self.folder / "log").open("a") as log:
            process = spawn(
                [sys.executable, "-m", "polyrhythm", *argv],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, env=environment(),
            )  # fmt: skip
        self.processes.append(process)
        line = process.stdout.readline()
        assert line, (self.folder / "log").read_text()
        return json.loads(line)

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.web}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def declare(self) -> None:
        for name, ends in JOBS.items():
            flows = [
                {"src": a, "dst": b, "bytes_per_iteration": STEP_BYTES} for a, b in (ends, reversed(ends))
            ]
            phases = [{"start_ms": 0, "end_ms": 150, "rate_bps": 25_000_000}]
            self.ask("/api/v1/jobs", {
                "name": name, "model": "MLP", "gpus": 2, "hosts": ends, "period_ms": 300, "phases": phases,
                "flows": flows,
            })  # fmt: skip
        maps = [self.folder / host / "sockets" for host in ("h1", "h2", "h3", "h4")]
        eventually(lambda: all(m.exists() and "entries=1" in m.read_text() for m in maps), "socket maps")

    def train(self, *, steered: bool) -> list[subprocess.Popen[Any]]:
        environments: dict[str, dict[str, str]] = {}
        for name, ends in JOBS.items():
            master = self.network.topology.host[ends[0]].ip
            for rank, host in enumerate(ends):
                own = {
                    "MASTER_ADDR": master, "MASTER_PORT": "29500", "RANK": str(rank), "WORLD_SIZE": "2",
                    "GLOO_SOCKET_IFNAME": HOST_INTERFACE, "OMP_NUM_THREADS": "1",
                }  # fmt: skip
                if steered:
                    config = str(self.folder / host / "agent.toml")
                    argv = [sys.executable, "-m", "polyrhythm", "agent", "--config", config, "env", name]
                    printed = self.network.run(host, argv)
                    own |= dict(line.split("=", 1) for line in printed.splitlines())
                environments[host] = {**os.environ, **own}
        argv = [sys.executable, str(ROOT / "tests/rigs/ddp_train.py"), str(STEPS), str(PAUSE_S)]
        with (self.folder / "log").open("a") as log:
            return [
                self.network.spawn(host, argv, env=own, stdout=subprocess.PIPE, stderr=log)
                for host, own in environments.items()
            ]

    def sent(self, switch: str, peer: str, lowest: int) -> int:
        """The bytes that a switch has sent to a peer through the queues from `lowest` upward."""
        rows = self.ask("/api/v1/counters")["counters"]
        return sum(
            r["bytes"] for r in rows if (r["switch"], r["peer"]) == (switch, peer) and r["qid"] >= lowest
        )

    def path(self, flow: str) -> tuple[str, ...]:
        flows = {f["flow"]: f["path"] for f in self.ask("/api/v1/plan")["flows"]}
        return tuple(flows[flow])


@pytest.fixture
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    pytest.importorskip("torch")
    try:
        check_host()
    except MininetError as error:
        pytest.skip(str(error))
    subprocess.run(["make", "-s", "-C", str(SHIM)], check=True, cwd=SHIM)
    with own_folder() as folder:
        file = folder / "training.yaml"
        file.write_text(SCENARIO)
        network = MininetFabric(load_scenario(file).topology)
        made = Fabric(network, folder)
        try:
            made.start(hash_known=request.param)
            yield made
        finally:
            network.stop()
            made.close()


def states(ranks: list[subprocess.Popen[Any]]) -> list[str]:
    """What the ranks end with, in their order. All end well."""
    outputs = [rank.communicate(timeout=10 * PATIENCE_S)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * len(ranks)
    return [json.loads(text)["state"] for text in outputs]


@pytest.mark.parametrize("fabric", [True, False], ids=["ports", "pins"], indirect=True)
def test_gloo_takes_the_planned_paths_and_trains_the_same_with_us_and_without(fabric: Fabric) -> None:
    """With ports that lead there or, where the hash is not known, with pins in switches. In mid-training all
    agents and the controller are killed, and no step fails."""
    fabric.declare()
    ends = {fabric.path(f"a/{a}>{b}")[2] for a, b in (("h1", "h3"), ("h3", "h1"))}
    others = {fabric.path(f"b/{a}>{b}")[2] for a, b in (("h2", "h4"), ("h4", "h2"))}
    assert len(ends) == len(others) == 1
    assert ends != others
    ranks = fabric.train(steered=True)
    spines = *ends, *others

    def carried() -> list[int]:
        return [fabric.sent(leaf, spine, 1) for leaf in ("leaf1", "leaf2") for spine in spines]

    # Every rank's gradients of five steps leave by the planned spine, in the queue of a level.
    eventually(lambda: min(carried()) > 5 * STEP_BYTES, "traffic on all planned links")
    assert [rank.poll() for rank in ranks] == [None] * len(ranks)
    for process in reversed(fabric.processes):
        process.send_signal(signal.SIGKILL)
    with_us = states(ranks)
    assert with_us[0] == with_us[1]
    assert states(fabric.train(steered=False)) == with_us
