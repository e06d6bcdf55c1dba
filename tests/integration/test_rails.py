# SPDX-License-Identifier: Apache-2.0
"""Hosts with several NICs, one on each rail: one agent and one session for each host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_rig import AgentProcess, patient_library, status
from control_rig import RATE_BPS, Agent, Controller, HostFabric, eventually, job, join_message
from port_map_reader import parse_port_map
from run_rig import figures

from controller.wire import agent_pb2 as wire
from polyrhythm import polyrhythm_job
from topo.generate import rail
from topo.graph import Topology

__all__ = ["patient_library"]

RAILS = """\
name: rails
fabric: {kind: file, path: rails.yaml}
scale: 1000
profile: declared
warmup: 1
iterations: 4
jobs:
  - name: moe
    model: GPT
    gpus: 6
    hosts: [h1, h2, h3]
    traffic: {collective: all_to_all, data_bytes: 200e6, queue_pairs: 2}
    compute_ms: 30
  - name: ring
    model: GPT
    gpus: 4
    hosts: [h1, h4]
    traffic: {parallelism: {tensor: 2, data: 2}, data_bytes: 200e6}
    compute_ms: 40
"""


@pytest.fixture
def topology() -> Topology:
    """Servers h1 and h2, each with a NIC on both rails; a leaf a rail, two spines."""
    made = rail(1, 2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
    return replace(made, name="test")


def hello(topology: Topology, nic: str, **more: Any) -> wire.AgentMessage:
    said = wire.Hello(host=nic, ip=topology.host[nic].ip, pinning="udp", protocol=1, **more)
    return wire.AgentMessage(hello=said)


def told(agent: Agent, kind: str) -> wire.ControllerMessage:
    """The next message of `kind`, with the NIC that it is for."""
    while (message := agent.inbox.get(timeout=60)) is not None:
        if message.WhichOneof("body") == kind:
            return message
    raise AssertionError("the controller ended the session")


@pytest.mark.slow
def test_a_session_speaks_for_the_nics_of_one_machine(
    fabric: HostFabric,
    topology: Topology,
    start_controller: Callable[..., Controller],
    connect: Callable[..., Agent],
) -> None:
    controller = start_controller(fabric.description())
    h1 = connect(controller.agents, "h1.1")
    told(h1, "welcome")
    # Its second rail is not served yet, and nobody speaks for another machine.
    ask = wire.FlowRequest(flow="a/h1.2>h2.2")
    h1.send(wire.AgentMessage(host="h1.2", flow_request=ask))
    assert h1.next("refusal").what == "host: 'h1.2' is not served in this session; legal: h1.1"
    h1.send(hello(topology, "h1.2"))
    assert told(h1, "welcome").host == "h1.2"
    h2 = connect(controller.agents, "h2.1")
    h2.send(hello(topology, "h2.2"))
    assert [told(h2, "welcome").host for _ in range(2)] == ["", "h2.2"]

    # A message about a rank on the second rail must name that NIC.
    members = {rails: job(rails, f"h1.{rails}", f"h2.{rails}") for rails in "12"}
    h1.send(join_message(members["2"], 0))
    assert h1.next("refusal").what == "job 2: its list of hosts does not have rank 0 on host h1.1"
    for agent, server, rank in ((h1, "h1", 0), (h2, "h2", 1)):
        for rails, member in members.items():
            message = join_message(member, rank)
            message.host = f"{server}.{rails}"
            agent.send(message)
    for rails in "12":
        flow = f"{rails}/h1.{rails}>h2.{rails}"
        h1.send(wire.AgentMessage(host=f"h1.{rails}", flow_request=wire.FlowRequest(flow=flow)))
    answers = [told(h1, "flow") for _ in range(2)]
    assert {(m.host, m.flow.flow) for m in answers} == {("", "1/h1.1>h2.1"), ("h1.2", "2/h1.2>h2.2")}
    eventually(lambda: len((controller.api("plan") or {}).get("flows", ())) == 4, "both rails planned")
    leaves = {f["flow"][0]: f["path"][1] for f in controller.api("plan")["flows"]}
    assert len(set(leaves.values())) == 2

    # The session's end is that of both NICs.
    h1.close()
    for nic in ("h1.1", "h1.2"):
        eventually(lambda nic=nic: controller.says(f"agent of host {nic}: the session is lost"), nic)

    # A NIC of another machine ends a session.
    agent = connect(controller.agents, "h1.1")
    told(agent, "welcome")
    agent.send(hello(topology, "h2.1"))
    assert agent.next("refusal").what == (
        "host h2.1 is a NIC of h2, and h1.1 one of h1; legal: the NICs of one machine in a session"
    )
    assert agent.inbox.get(timeout=60) is None
    # A process that restarts its session takes all of its NICs over at once.
    first, second = (connect(controller.agents, "h1.1", hello=False) for _ in range(2))
    for session in (first, second):
        for nic in ("h1.1", "h1.2"):
            session.send(hello(topology, nic, instance="one"))
            told(session, "welcome")
    assert first.inbox.get(timeout=60) is None
    second.send(wire.AgentMessage(host="h1.2", clock_request=wire.ClockRequest(sent_ns=5)))
    assert told(second, "clock").host == "h1.2"


@pytest.mark.slow
def test_one_agent_pins_a_training_process_on_every_rail(
    fabric: HostFabric,
    topology: Topology,
    start_controller: Callable[..., Controller],
    start_agent: Callable[..., AgentProcess],
    tmp_path: Path,
    patient_library: None,
) -> None:
    """Two servers, two rails, one process a server: each rail's flows get their own ports and paths."""
    controller = start_controller(fabric.description())
    nics = ["h1.1", "h1.2", "h2.1", "h2.2"]
    sockets = {}
    # What a host with the shim and two RDMA devices has.
    (tmp_path / "shim.so").touch()
    for device in ("mlx5_0", "mlx5_1"):
        (tmp_path / "infiniband" / device / "ports" / "1").mkdir(parents=True)
    for server in ("h1", "h2"):
        sockets[server] = str(tmp_path / f"{server}.sock")
        rails = "".join(
            f'[[rails]]\nhost = "{server}.{n}"\nip = "{topology.host[f"{server}.{n}"].ip}"\n'
            f'device = "mlx5_{n - 1}"\n'
            for n in (1, 2)
        )
        hosts = "".join(f'"{nic}" = "{topology.host[nic].ip}"\n' for nic in nics)
        agent = start_agent(
            f'[agent]\nhost = "{server}"\ncontroller = "{controller.agents}"\ndeadline_ms = 1000.0\n'
            f'socket = "{sockets[server]}"\n[nic]\ndriver = "shim"\nport_map = "{tmp_path}/{server}.ports"\n'
            f'[nccl]\nshim = "{tmp_path}/shim.so"\n[sources]\nsysfs = "{tmp_path}/infiniband"\n'
            f"{rails}[hosts]\n{hosts}"
        )
        assert agent.ready == {
            "ready": True, "host": server, "pinning": "shim", "rails": [f"{server}.1", f"{server}.2"],
        }  # fmt: skip
    for server, path in sockets.items():
        eventually(lambda path=path: status(path)["connected"], f"{server} has a session")

    def process(server: int) -> polyrhythm_job:
        return polyrhythm_job(
            "llm", nics, rank=2 * server, gpus=4, period_ms=50, agent=sockets[f"h{server + 1}"],
            rails=2, bytes_per_flow=4_000_000,
        )  # fmt: skip

    with process(0) as first, process(1) as second:
        eventually(lambda: (controller.api("jobs/llm") or {}).get("flows"), "the job is planned")
        assert [w["rank"] for w in status(sockets["h1"])["workers"]] == [0, 1]
        assert [w["rank"] for w in status(sockets["h2"])["workers"]] == [2, 3]
        for each in (first, second):
            for _ in range(2):
                each.step()
        assert first.placements.keys() == {"llm/h1.1>h2.1", "llm/h1.2>h2.2"}
        planned = controller.api("plan")["flows"]
        assert len(planned) == 4
        # Each flow stays on its rail, and the shim finds the planned ports of both rails in one map.
        assert all(f["path"][1] == f["path"][-2] for f in planned)
        ports: dict[tuple[str, str], list[int]] = {}
        for f in sorted(planned, key=lambda f: f["flow"]):
            if f["path"][0].startswith("h1"):
                pair = topology.host[f["path"][0]].ip, topology.host[f["path"][-1]].ip
                ports.setdefault(pair, []).append(f["source_port"])
        written = tmp_path / "h1.ports"
        eventually(
            lambda: parse_port_map(written.read_text()) == {k: tuple(v) for k, v in ports.items()},
            "the port map",
        )
        eventually(lambda: controller.api("jobs/llm")["iterations"], "iterations are counted")
    eventually(lambda: controller.says("job llm has left"), "the job leaves with its processes")


@pytest.mark.slow
def test_the_rails_of_a_run(tmp_path: Path) -> None:
    """Eight NICs on four machines: the packets of each queue pair take the path that the plan gives it."""
    (tmp_path / "rails.yaml").write_text(
        "{kind: rail, groups: 2, rails: 2, spines: 2, servers_per_group: 2, host_gbps: 100, fabric_gbps: 100}"
    )
    scenario = tmp_path / "rails.scenario.yaml"
    scenario.write_text(RAILS)
    found = figures(tmp_path, scenario)[0]["scenarios"]["rails"]
    assert found["notes"] == {"ecmp": [], "polyrhythm": []}
    jobs = {job["name"]: job for job in found["jobs"]}
    assert jobs["moe"]["hosts"] == [f"h{n}.{rail}" for n in (1, 2, 3) for rail in (1, 2)]
    for each in jobs.values():
        # Every rail has its own queue pairs, each with a port that leads along its planned path.
        assert {f["path"][0] for f in each["flows"]} == set(each["hosts"])
        assert all(f["source_port"] for f in each["flows"] if len(f["path"]) > 3)
        # The run is not held up: as fast as alone, but for what the jobs share.
        assert each["polyrhythm"]["mean_iteration_ms"] < 1.2 * each["ideal_iteration_ms"]
