# SPDX-License-Identifier: Apache-2.0
"""The Mininet fabric with its controller and running jobs, under Mininet's own command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from polyrhythm.emulation.agents import Agents
from polyrhythm.emulation.folder import last_line, own_folder
from polyrhythm.emulation.process import describe, set_tcp
from polyrhythm.emulation.programmed import wait_programmed
from polyrhythm.emulation.switches import Switches
from polyrhythm.scenario import Scenario
from topo.mininet import MininetError, MininetFabric


def serve_command_line(scenario: Scenario, policy: str, seed: int, port: int, logs: Path) -> None:
    """Build everything, run Mininet's command line until `exit` or Ctrl-D, and take everything down.

    Raises:
        MininetError: something did not start.
    """
    with own_folder() as folder:
        _serve(scenario, policy, seed, port, logs, folder)


def _serve(scenario: Scenario, policy: str, seed: int, port: int, logs: Path, folder: Path) -> None:
    network = MininetFabric(scenario.topology, scenario.packet_bytes)
    controller = None
    try:
        set_tcp(network, scenario)
        switches = Switches(network, scenario, folder, seed=seed)
        description = folder / "fabric.json"
        description.write_text(json.dumps(describe(scenario, switches)), encoding="utf-8")
        controller, agents_at, web = _controller(description, folder, policy, seed, port, logs)
        agents = Agents(
            network, scenario, logs, sockets=folder, controller=agents_at,
            jobs=[w.job.name for w in scenario.workloads],
            hosts=[h.name for h in scenario.topology.hosts], profiles={}, seed=seed,
            start_jitter_ns=scenario.start_jitter_ns,
        )  # fmt: skip
        agents.wait_ready()
        wait_programmed(web)
        agents.begin()
        print(f"Page of the live fabric: {web}", flush=True)
        print(
            "Mininet's command line, for example: pingall, links, h1 ip addr. Type exit to end.", flush=True
        )
        _command_line(network)
    finally:
        network.stop()
        if controller is not None and controller.stdin is not None:
            controller.stdin.close()
            controller.wait()


def _controller(
    description: Path, folder: Path, policy: str, seed: int, port: int, logs: Path
) -> tuple[subprocess.Popen[bytes], str, str]:
    """Start the controller; returns its process, the address for agents, and the address of its page."""
    argv = [
        sys.executable, "-m", "polyrhythm", "controller", f"--fabric={description}", f"--policy={policy}",
        f"--seed={seed}", f"--web-port={port}", f"--agents-address=unix:{folder / 'agents.sock'}",
        "--state=none",
    ]  # fmt: skip
    log = logs / "controller.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait()
        raise MininetError(f"the controller did not start: {last_line(log)}")
    ready = json.loads(line)
    return process, ready["agents"], ready["web"]


def _command_line(network: MininetFabric) -> None:
    from mininet.cli import CLI
    from mininet.log import setLogLevel

    setLogLevel("output")
    CLI(network.net)
