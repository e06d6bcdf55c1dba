# SPDX-License-Identifier: Apache-2.0
"""The controller as a process, on the host's clock, with real switches and agents on real sockets."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
from pathlib import Path

import grpc
import pytest
from control_rig import PATIENCE_S, RATE_BPS, eventually, job, join_message, silent_fabric, spawn
from finsy.proto import p4r, p4r_grpc

from controller.southbound.artefacts import load_artefacts
from controller.wire import agent_pb2 as wire
from topo.generate import leaf_spine


def start_job(controller, connect, member, **options):
    """All workers of a job join; their agents, opened with `options`."""
    agents = [connect(controller.agents, host, **options) for host in member.hosts]
    for rank, agent in enumerate(agents):
        agent.next("welcome")
        agent.send(join_message(member, rank))
    return agents


def test_a_job_is_planned_told_and_its_paths_verified(fabric, start_controller, connect, tmp_path):
    state = tmp_path / "state.sqlite"
    controller = start_controller(fabric.description(scenario="here"), f"--state={state}", "--poll")
    member = job("a", "h1", "h3")
    first, second = start_job(controller, connect, member)
    first.send(wire.AgentMessage(flow_request=wire.FlowRequest(flow="a/h1>h3")))
    told = first.next("flow")
    assert told.flow == "a/h1>h3"
    assert told.source_port >= 0xC000
    assert second.next("schedule").job == "a"
    eventually(lambda: controller.says("confirmed 2 paths; 0 are not"), "paths verified")
    # The probes ended at the sink leaves: no host has seen one.
    assert fabric.to_hosts.empty()

    first.send(wire.AgentMessage(probe_request=wire.ProbeRequest(flow="a/h1>h3")))
    result = first.next("probe_result")
    assert result.verified
    assert list(result.path[:2]) == ["h1", "leaf1"]

    for index in range(3):
        for rank, agent in enumerate((first, second)):
            report = wire.IterationReport(
                job="a", rank=rank, index=index, start_ns=0, end_ns=(260 + rank) * 1_000_000
            )
            agent.send(wire.AgentMessage(iteration=report))
    shown = eventually(
        lambda: next((j for j in controller.api("jobs")["jobs"] if j["iterations"] == 3), None), "iterations"
    )
    assert shown["mean_ms"] == 261.0
    # The first polls may have been before the probes.
    counted = eventually(
        lambda: [
            c for c in controller.api("counters")["counters"] if c["switch"] == "leaf1" and c["packets"]
        ],
        "packets counted on leaf1",
    )
    assert all(c["bytes"] > 0 for c in counted)

    for rank, agent in enumerate((first, second)):
        agent.send(wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=rank)))
    eventually(lambda: controller.says("job a has left"))
    assert eventually(lambda: jobs_in(state) == ["job arrived", "job left"], "the log of events")


def jobs_in(state: Path) -> list[str]:
    with sqlite3.connect(state) as db:
        rows = db.execute("SELECT what FROM events WHERE subject = 'a' ORDER BY number")
        return [what for (what,) in rows]


@pytest.mark.slow
def test_a_failed_link_and_a_dead_switch_move_the_flows(fabric, start_controller, connect):
    controller = start_controller(fabric.description())
    member = job("a", "h1", "h3")
    start_job(controller, connect, member)

    def spine():
        plan = controller.api("plan")
        return next(f["path"] for f in plan["flows"] if f["flow"] == "a/h1>h3")[2]

    eventually(lambda: controller.says("confirmed 2 paths"))
    was = spine()
    port = next(p for p, peer in fabric.topology.ports["leaf1"].items() if peer.node == was)
    fabric.on_data_plane(lambda: fabric.switches["leaf1"].set_port_up(port, False))
    eventually(lambda: spine() != was, "the flow moved")
    eventually(
        lambda: controller.says("plan 2: INT probes have confirmed 2 paths; 0 are not"), "verified again"
    )

    # The other spine dies instead: its session is lost, and the flow goes back.
    fabric.on_data_plane(lambda: fabric.switches["leaf1"].set_port_up(port, True))
    other = spine()
    eventually(lambda: controller.says(f"(to {was}) is up"))
    fabric.servers[other].stop()
    eventually(lambda: controller.says(f"{other} is lost"))
    eventually(lambda: spine() == was, "the flow moved back")
    assert controller.process.poll() is None


def hello(host: str) -> wire.Hello:
    ip = leaf_spine(2, 2, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS).host[host].ip
    return wire.Hello(host=host, ip=ip, pinning="udp", protocol=1)


def test_strangers_garbage_and_second_sessions_are_refused_and_the_rest_goes_on(
    fabric, start_controller, connect
):
    controller = start_controller(fabric.description(verify=False))
    host, port = controller.agents.split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 8)
    good = connect(controller.agents, "h1")
    good.next("welcome")
    assert "already has a session" in connect(controller.agents, "h1").next("refusal").what
    assert "nobody" in connect(controller.agents, "nobody").next("refusal").what
    assert "not '10.9.9.9'" in connect(controller.agents, "h2", ip="10.9.9.9").next("refusal").what
    silent = connect(controller.agents, "h2", hello=False)
    silent.send(wire.AgentMessage(flow_request=wire.FlowRequest(flow="x")))
    assert "must be Hello" in silent.next("refusal").what

    good.send(wire.AgentMessage())
    assert "none" in good.next("refusal").what
    liar = job("a", "h1", "h3")
    good.send(join_message(liar, 1))
    assert "does not have rank 1 on host h1" in good.next("refusal").what
    monster = join_message(job("m" * 10_000, "h1", "h3"), 0)
    good.send(monster)
    assert "legal: 1 to 200 printable characters" in good.next("refusal").what
    good.send(join_message(job("b", "h1", "h3", gpus=0), 0))
    assert "job b: it has 0 GPUs; legal: 1 to" in good.next("refusal").what
    # Bytes that are no message end their own session, before or after Hello.
    for words in ([b"\xff" * 300], [wire.AgentMessage(hello=hello("h3")).SerializeToString(), b"\xff" * 300]):
        with grpc.insecure_channel(controller.agents) as channel:
            talk = channel.stream_stream("/polyrhythm.v1.AgentHub/Session")
            with contextlib.suppress(grpc.RpcError):
                list(talk(iter(words), timeout=PATIENCE_S))
    eventually(lambda: controller.says("refused: it sent no message of the agent protocol"))
    eventually(
        lambda: controller.says(
            "host h3: the session of its agent ends: the agent sent no message of the agent protocol"
        )
    )
    # As many idle connections as may come keep nobody out.
    idle = [socket.create_connection((host, int(port))) for _ in range(300)]
    connect(controller.agents, "h4").next("welcome")
    for raw in idle:
        raw.close()
    assert not controller.says("Traceback")
    good.send(wire.AgentMessage(flow_request=wire.FlowRequest(flow="no/such>flow")))
    assert good.next("flow").source_port == 0
    assert controller.says("refused")


@pytest.mark.slow
def test_an_agent_that_goes_is_said_and_can_come_back(fabric, start_controller, connect):
    controller = start_controller(fabric.description(verify=False))
    agents = start_job(controller, connect, job("a", "h1", "h3"))
    agents[0].next("schedule")
    agents[0].close()
    eventually(lambda: controller.says("agent of host h1: the session is lost"))
    again = connect(controller.agents, "h1")
    again.next("welcome")
    again.send(join_message(job("a", "h1", "h3"), 0))
    assert again.next("schedule").job == "a"


@pytest.mark.parametrize("how", ["signal", "input"])
def test_it_ends_cleanly_and_leaves_no_process(fabric, start_controller, how):
    controller = start_controller(fabric.description())
    process = controller.process
    children = eventually(lambda: children_of(process.pid), "the worker process")
    if how == "signal":
        process.send_signal(signal.SIGTERM)
    else:
        process.stdin.close()
    assert process.wait(PATIENCE_S) == 0
    eventually(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "no child left")
    said = controller.log.read_text()
    assert "Traceback" not in said
    assert "leaked" not in said


def children_of(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
        int(c)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if task.name != str(pid)
        for c in (task / "children").read_text().split()
    ]


@pytest.mark.slow
def test_a_worker_process_that_dies_is_replaced(fabric, start_controller, connect):
    controller = start_controller(fabric.description())
    eventually(lambda: controller.says("spine2 is in service"))
    workers = workers_of(controller)
    assert len(workers) == 2
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    start_job(controller, connect, job("a", "h1", "h3"))
    # The new one imports all that the first did, behind everything else that this machine does.
    eventually(lambda: controller.says("a new one takes its place"), "the death is noticed")
    eventually(lambda: controller.says("confirmed 2 paths"), "a plan of the new worker", 4 * PATIENCE_S)


def workers_of(controller):
    """The process ids of the workers: the one for table writes, then the one for plans if it runs."""
    found = [c for c in children_of(controller.process.pid) if b"worker_calls" in command_of(c)]
    return sorted(found, key=lambda pid: os.getpriority(os.PRIO_PROCESS, pid))


def planner_of(controller):
    """The process id of the worker for plans, once there is one."""
    return eventually(lambda: workers_of(controller)[1:], "a worker process for plans")[0]


BREAKS = """
import os
from dataclasses import dataclass

from controller.routing.routings import LeastCongested
from polyrhythm import Policy


@dataclass(frozen=True)
class Breaks(LeastCongested):
    def route(self, problem):
        owners = {flow.owner for flow in problem.flows}
        if "kills" in owners:
            os._exit(1)
        if "raises" in owners:
            raise RuntimeError("cannot be planned")
        while "never-ends" in owners:
            pass
        return super().route(problem)


POLICY = Policy("breaks:POLICY", routing=Breaks())
"""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("raises", "cannot be planned"),
        pytest.param("kills", "the worker process died 3 times", marks=pytest.mark.slow),
        pytest.param("never-ends", "plan took longer than 10 s of processor time", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_breaks_the_planner_costs_the_others_nothing(
    fabric, start_controller, connect, tmp_path, monkeypatch, name, why
):
    (tmp_path / "breaks.py").write_text(BREAKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    controller = start_controller(fabric.description(), "--policy=breaks:POLICY")
    eventually(lambda: controller.says("spine2 is in service"))
    first = start_job(controller, connect, job(name, "h2", "h4"))
    start_job(controller, connect, job("a", "h1", "h3"))
    eventually(lambda: controller.says("confirmed 2 paths"), "a is planned")
    for agent in first:
        said = agent.next("refusal").what
        assert said.startswith(f"job {name} is left out of all plans, and its flows go by ECMP: ")
        assert why in said


@pytest.mark.slow
def test_a_job_with_too_many_flows_between_two_hosts_is_refused_and_costs_nobody_anything(
    fabric, start_controller, connect
):
    controller = start_controller(fabric.description())
    agent = connect(controller.agents, "h2")
    agent.next("welcome")
    message = join_message(job("many", "h2", "h4"), 0)
    for number in range(20_000):
        message.job_join.flows.add(name=f"many/{number}", src="h2", dst="h4", bytes_per_iteration=1 << 30)
    agent.send(message)
    assert "20,001 flows go from h2 to h4; legal: at most 1,024" in agent.next("refusal").what
    start_job(controller, connect, job("a", "h1", "h3"))
    eventually(lambda: controller.says("confirmed 2 paths"), "a is planned")


def test_a_flow_between_hosts_of_others_is_refused(fabric, start_controller, connect):
    controller = start_controller(fabric.description())
    agent = connect(controller.agents, "h2")
    agent.next("welcome")
    message = join_message(job("a", "h2", "h4"), 0)
    message.job_join.flows.append(wire.FlowSpec(name="a/h1>h3", src="h1", dst="h3"))
    agent.send(message)
    assert (
        "flow a/h1>h3 goes from h1 to h3; legal: from one host of the job to another"
        in agent.next("refusal").what
    )


@pytest.mark.slow
def test_the_worker_may_die_any_number_of_times(fabric, start_controller, connect):
    controller = start_controller(fabric.description())
    eventually(lambda: controller.says("spine2 is in service"))
    member = job("a", "h1", "h3")
    agents = start_job(controller, connect, member, returns=True)

    def planned() -> list[str]:
        return [decided["job"] for decided in (controller.api("plan") or {"jobs": ()})["jobs"]]

    for deaths in range(1, 4):
        eventually(
            lambda: planned() == ["a"], f"a plan with the job after {deaths - 1} deaths", 4 * PATIENCE_S
        )
        os.kill(planner_of(controller), signal.SIGKILL)
        for rank, agent in enumerate(agents):
            agent.send(wire.AgentMessage(job_leave=wire.JobLeave(job="a", rank=rank)))
        eventually(lambda: planned() == [], f"a plan without the job after {deaths} deaths", 4 * PATIENCE_S)
        for rank, agent in enumerate(agents):
            agent.send(join_message(member, rank))


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_busy_web_port_gives_way_to_the_next(fabric, start_controller):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        controller = start_controller(fabric.description(), f"--web-port={taken}")
        assert not controller.web.endswith(f":{taken}")
        assert controller.says(f"port {taken} is busy")
        assert eventually(lambda: controller.api("fabric"), "the API answers")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fabric=/nowhere.json"], "/nowhere.json"),
        (["--fabric=/etc/hostname"], "legal: a table with the keys"),
        (["--fabric=/etc/hostname", "--policy=best"], "'best' is no policy; legal: "),
        (["--fabric=/etc/hostname", "--web-port=70000"], "65535"),
    ],
)
def test_bad_input_ends_with_one_line_and_code_2(tmp_path, arguments, words):
    log = tmp_path / "log"
    process = spawn(arguments, log)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    said = log.read_text().splitlines()
    assert len(said) == 1
    assert words in said[0]


def test_a_named_folder_of_artefacts_is_pushed(fabric, start_controller, artefacts, tmp_path):
    folder = tmp_path / "compiled"
    folder.mkdir()
    (folder / "mine.p4info.txtpb").write_bytes(artefacts.p4info)
    (folder / "mine.bin").write_bytes(artefacts.device_config + b"\n")
    controller = start_controller(fabric.description(), f"--artefacts={folder}")
    eventually(lambda: all(switch.program for switch in fabric.switches.values()), "pipelines pushed")
    ours = load_artefacts(folder).cookie
    assert ours != artefacts.cookie
    for switch in fabric.topology.switches:
        with grpc.insecure_channel(fabric.servers[switch.name].address) as channel:
            request = p4r.GetForwardingPipelineConfigRequest(device_id=switch.device_id)
            reply = p4r_grpc.P4RuntimeStub(channel).GetForwardingPipelineConfig(request)
        assert reply.config.p4_device_config == artefacts.device_config + b"\n"
        assert reply.config.cookie.cookie == ours
    assert controller.process.poll() is None


# A digest of a type that is not there.
SERIALIZABLE_ENUM = """
digests { preamble { id: 1 alias: "d" name: "d" } type_spec { serializable_enum { name: "e" } } }
"""


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "P4Infos found: none"),
        ({"a.p4info.txtpb": ""}, "no device config was found beside it"),
        ({"a.p4info.txtpb": "no P4Info {", "a.json": "{}"}, "P4Info is not readable"),
        (
            {"a.p4info.txtpb": SERIALIZABLE_ENUM, "a.json": "{}"},
            "P4Info is not usable: it does not declare 'e'",
        ),
    ],
)
def test_a_folder_without_a_program_ends_with_one_line_and_code_2(fabric, tmp_path, files, words):
    description = tmp_path / "fabric.json"
    description.write_text(json.dumps(fabric.description()))
    folder = tmp_path / "compiled"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    process = spawn([f"--fabric={description}", f"--artefacts={folder}"], tmp_path / "log")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    [said] = (tmp_path / "log").read_text().splitlines()
    assert words in said


def test_where_a_target_tells_no_port_states_link_probes_do(topology, start_controller):
    with silent_fabric(topology) as fabric:
        controller = start_controller(fabric.description())
        eventually(lambda: controller.says("spine2 is in service"))
        assert controller.says("link probes watch its links")
        fabric.on_data_plane(lambda: fabric.switches["leaf1"].set_port_up(3, False))
        eventually(lambda: controller.says("switch leaf1: port 3 (to spine1) is down"))
        fabric.on_data_plane(lambda: fabric.switches["leaf1"].set_port_up(3, True))
        eventually(lambda: controller.says("switch leaf1: port 3 (to spine1) is up"))
        # On a busy machine probes of other links are late as well; then these are soon up again.
        eventually(lambda: changes(controller, "leaf2", "down") == changes(controller, "leaf2", "up"))


def changes(controller, switch, state):
    """How many ports of a switch the log says to have gone down or up."""
    lines = controller.log.read_text().splitlines()
    return sum(f"switch {switch}: port" in line and line.endswith(f"is {state}") for line in lines)
