# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm agent` as real processes: training over UDP, with and without a controller, and bad input."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_rig import (
    MS,
    PATIENCE_S,
    AgentProcess,
    Hub,
    assignment,
    clock_answer,
    command,
    config_text,
    eventually,
    job_text,
    serve_hub,
    welcome_and_pin,
)

from controller.wire import agent_pb2 as pb

Start = Callable[..., AgentProcess]
Addresses = dict[str, str]


def start_pair(
    start: Start, tmp_path: Path, addresses: Addresses, controller: str = "127.0.0.1:1", **job: int
) -> list[AgentProcess]:
    begin = time.monotonic_ns() + 1_500 * MS
    agents = []
    for name in ("h2", "h3"):
        records = tmp_path / f"{name}.jsonl"
        text = config_text(
            name, addresses[name], controller=controller, addresses=addresses, agent='socket = ""',
            nic='driver = "udp"\nrate_mbps = 25.0',
            more=job_text(("h2", "h3"), records, start_ns=begin, **job),
        )  # fmt: skip
        agents.append(start(text, records=records))
    return agents


def test_two_hosts_train_over_udp_without_a_controller(
    start_agent: Start, tmp_path: Path, addresses: Addresses
) -> None:
    agents = start_pair(start_agent, tmp_path, addresses, iterations=8)
    assert [a.ready["pinning"] for a in agents] == ["udp", "udp"]
    assert [a.process.wait(PATIENCE_S) for a in agents] == [0, 0]
    for rank, agent in enumerate(agents):
        records = agent.records()
        assert [r["index"] for r in records] == list(range(8))
        assert {(r["job"], r["rank"], r["bytes_sent"]) for r in records} == {("a", rank, 20_000)}
        # 20,000 bytes are 20 packets; at 25 Mbit/s, with headers, they take 6.8 ms, and never less.
        assert all(r["communication_ns"] > 6.5 * MS for r in records)
        assert all(r["end_ns"] - r["start_ns"] > 36.5 * MS for r in records)


def test_the_datagrams_are_rocev2_from_the_pinned_port_with_dscp_and_ecn(
    start_agent: Start, tmp_path: Path, addresses: Addresses, hub: tuple[Hub, str]
) -> None:
    """The far host is a bare socket: it sees what a switch would."""
    made, address = hub
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far:
        far.bind((addresses["h3"], 4791))
        far.settimeout(PATIENCE_S)
        far.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        text = config_text(
            "h2", addresses["h2"], controller=address, addresses=addresses, agent='socket = ""',
            more=job_text(("h2", "h3"), tmp_path / "r"),
        )  # fmt: skip
        start_agent(text)
        datagram, ancillary, _, sender = far.recvmsg(9000, 64)
    assert sender == (addresses["h2"], 0xC777)
    assert ancillary[0][2][0] == 34 << 2 | 2
    assert datagram[0] == 0x00  # RC SEND First
    assert len(datagram) == 12 + 1024 + 4
    assert made.bodies("hello")[0].pinning == "udp"
    assert made.bodies("job_join")[0].job == "a"


def test_a_move_of_the_plan_reaches_the_packets(
    start_agent: Start, tmp_path: Path, addresses: Addresses, hub: tuple[Hub, str]
) -> None:
    made, address = hub
    moved: list[str] = []

    def answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
        if message.WhichOneof("body") == "iteration" and message.iteration.index == 2 and not moved:
            moved.append("moved")
            return [assignment("a/h2>h3", 0xD001, 40)]
        return welcome_and_pin(message)

    made.answer = answer
    agents = start_pair(start_agent, tmp_path, addresses, controller=address, iterations=8)
    assert [a.process.wait(PATIENCE_S) for a in agents] == [0, 0]
    assert moved == ["moved"]
    assert [len(a.records()) for a in agents] == [8, 8]
    assert len(made.bodies("job_leave")) == 2


def test_jobs_begin_at_the_time_of_the_start_file_and_leave_at_theirs(
    start_agent: Start, tmp_path: Path, addresses: Addresses
) -> None:
    told = tmp_path / "start"
    agents = []
    for host in ("h1", "h2"):
        records = tmp_path / host
        more = job_text(("h1", "h2"), records, start_ns=100 * MS) + f"stop_ns = {2000 * MS}\n"
        more = more.replace("[training]\n", f'[training]\nstart = "{told}"\n')
        text = config_text(host, addresses[host], addresses=addresses, agent='socket = ""', more=more)
        agents.append(start_agent(text, records=records))
    # A line without its end is still being written.
    told.write_text("5")
    begin = time.monotonic_ns() + 500 * MS
    assert [a.records() for a in agents] == [[], []]
    told.write_text(f"{begin}\n")
    assert [a.process.wait(PATIENCE_S) for a in agents] == [0, 0]
    for agent in agents:
        assert agent.records()
        assert all(r["start_ns"] >= begin + 100 * MS for r in agent.records())


def test_a_rate_cap_and_a_shift_hold_what_is_sent_over_udp(
    start_agent: Start, tmp_path: Path, addresses: Addresses, hub: tuple[Hub, str]
) -> None:
    made, address = hub
    period = 120 * MS

    def answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
        kind = message.WhichOneof("body")
        if kind == "flow_request":
            told = assignment(message.flow_request.flow)
            told.flow.rate_cap_bps = 5_000_000
            return [told]
        if kind == "job_join":
            schedule = pb.JobSchedule(job="a", epoch_ns=0, shift_ns=7 * MS, period_ns=period)
            return [pb.ControllerMessage(schedule=schedule)]
        if kind == "clock_request":
            return clock_answer(message)
        return welcome_and_pin(message)

    made.answer = answer
    agents = start_pair(start_agent, tmp_path, addresses, controller=address, iterations=8)
    assert [a.process.wait(PATIENCE_S) for a in agents] == [0, 0]
    for agent in agents:
        records = agent.records()
        assert len(records) == 8
        # With headers 20 packets at 5 Mbit/s, of which a few may leave at once.
        assert all(r["communication_ns"] > 30 * MS for r in records)
        # An iteration takes 64 ms by itself and is held to one in each slot of 120 ms, however late it begins.
        slots = [(r["start_ns"] - 7 * MS + period // 20) // period for r in records[1:]]
        assert slots == sorted(set(slots))
        assert sum(r["held_ns"] for r in records) > 0


def test_garbage_on_the_roce_port_is_counted_and_harms_nothing(
    start_agent: Start, tmp_path: Path, addresses: Addresses
) -> None:
    agents = start_pair(start_agent, tmp_path, addresses, iterations=6)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        for size in (0, 1, 11, 12, 40, 1500):
            for byte in (0x00, 0x11, 0x81, 0xFF):
                noise.sendto(bytes([byte]) * size, (addresses["h2"], 4791))
    assert [a.process.wait(PATIENCE_S) for a in agents] == [0, 0]
    assert [len(a.records()) for a in agents] == [6, 6]


def test_what_the_controller_says_in_error_is_left_out(
    start_agent: Start, tmp_path: Path, addresses: Addresses, hub: tuple[Hub, str]
) -> None:
    made, address = hub

    def answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
        if message.WhichOneof("body") == "flow_request":
            return [assignment(message.flow_request.flow, port=80)]
        return welcome_and_pin(message)

    made.answer = answer
    agents = start_pair(start_agent, tmp_path, addresses, controller=address, iterations=3)
    assert [a.process.wait(PATIENCE_S) for a in agents] == [0, 0]
    assert [[r["bytes_sent"] for r in a.records()] for a in agents] == [[20_000] * 3] * 2
    assert agents[0].says("source port 80 is outside 49152-65535")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "[agent]\nhost = 'h1'\nip = '10.0.0.1'\nhots = 1\n",
            "4: agent.hots: unknown key (is host meant?); legal: host, ip",
        ),
        ("[agnt]\n", "1: agnt: unknown key (is agent meant?); legal: agent, tls, nic, sockets, rails"),
        ("[agent]\nhost = 'h1'\n", "1: agent.ip: missing; legal: the host's address, or rails"),
        (
            "[agent]\nhost = 'h1'\nip = '10.0.0.1'\n[[rails]]\nhost = 'h1.1'\nip = '10.0.0.1'\n",
            "3: agent.ip: '10.0.0.1' with rails; legal: a key of each of the rails",
        ),
        (
            "[agent]\nhost = 'h1'\n" + 2 * "[[rails]]\nhost = 'h1.1'\nip = '10.0.0.1'\n",
            "7: rails[1].host: 'h1.1' is another rail's too; legal: its own",
        ),
        (
            "[agent]\nhost = 'h1'\n[[rails]]\nhost = 'h1.1'\nip = '10.0.0.1'\n"
            "[[rails]]\nhost = 'h1.2'\nip = 'fd00::1'\n",
            "8: rails[1].ip: 'fd00::1' and '10.0.0.1'; legal: addresses of one family",
        ),
        (
            "[agent]\nhost = 'h1'\n[nic]\ndriver = 'none'\n"
            "[[rails]]\nhost = 'h1.1'\nip = '10.0.0.1'\ninterface = 'lo'\n"
            "[[rails]]\nhost = 'h1.2'\nip = '10.0.0.2'\ninterface = 'nosuch'\n",
            "rails[1].interface: no interface 'nosuch'; legal: ",
        ),
        ("[agent]\nhost = 'h1'\nip = '10.0.0.256'\n", "agent.ip: '10.0.0.256' is not an address such as"),
        (
            "[agent]\nhost = 'h1'\nip = '10.0.0.1'\n[nic]\ndriver = 'dpdk'\n",
            "5: nic.driver: 'dpdk' is wrong; legal: auto, verbs, shim",
        ),
        (
            "[agent]\nhost = 'h1'\nip = '10.0.0.1'\n[nic]\nmtu = 1023\n",
            "5: nic.mtu: 1023 is wrong; legal: a multiple of 4",
        ),
        (
            "[agent]\nhost = 'h1'\nip = '10.0.0.1'\ndeadline_ms = 0\n",
            "4: agent.deadline_ms: 0 is wrong; legal: a number from 0.1 to 1000",
        ),
        (
            "[agent]\nhost = 'h1'\nip = '10.0.0.1'\ncontroller = []\n",
            "4: agent.controller: no address; legal: HOST:PORT or unix:/PATH, or a list",
        ),
        (
            "[agent]\nhost = 'h1'\nip = '10.0.0.1'\ncontroller = ['a:1', 2]\n",
            "4: agent.controller",
        ),
        ("not toml", "1: not TOML: Expected '='"),
        (
            "[agent]\nhost='h1'\nip='127.0.0.1'\n[training]\njobs=[{name='a', hosts=['h1','h2'], phases=[]}]\n",
            "5: training.jobs: nic.driver is 'auto'; legal: only with driver 'udp'",
        ),
        (
            "[agent]\nhost='h1'\nip='127.0.0.1'\n[nic]\ndriver='udp'\n"
            "[training]\njobs=[{name='a', hosts=['h1','h2'], phases=[]}]\n",
            "7: training.jobs[0]: job a: needs at least one phase",
        ),
        (
            "[agent]\nhost='h1'\nip='10.99.0.1'\n[nic]\ndriver='udp'\n",
            "no interface of this host has the address",
        ),
    ],
)
def test_a_bad_configuration_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    done = command("--config", str(file))
    assert done.returncode == 2
    assert done.stdout == ""
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"polyrhythm agent: {file}:")


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    done = command("--config", str(tmp_path / "none.toml"))
    assert (done.returncode, "No such file" in done.stderr) == (2, True)


def test_check_and_env_print_one_json_document(tmp_path: Path, addresses: Addresses) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(config_text("h2", addresses["h2"], controller="127.0.0.1:1", addresses=addresses))
    done = command("check", "--json", "--config", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"file": str(file), "mistakes": []}
    done = command("env", "a", "--json", "--config", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    plain = command("env", "a", "--config", str(file)).stdout
    assert [f"{k}={v}" for k, v in json.loads(done.stdout).items()] == plain.splitlines()
    refused = command("env", "a", "--json", "--export", "--config", str(file))
    assert (refused.returncode, refused.stdout) == (2, "")


def test_the_schema_is_published_and_complete() -> None:
    done = command("schema")
    schema = json.loads(done.stdout)
    assert schema["$defs"]["AgentSettings"]["required"] == ["host"]
    assert schema["$defs"]["NicSettings"]["properties"]["driver"]["enum"][0] == "auto"

    for table in (schema, *schema["$defs"].values()):
        assert all(item.get("description") for item in table["properties"].values()), table


def test_two_agents_on_one_address_the_second_is_refused(
    start_agent: Start, tmp_path: Path, addresses: Addresses
) -> None:
    text = config_text("h2", addresses["h2"], agent='socket = ""')
    first = start_agent(text)
    file = tmp_path / "twin.toml"
    file.write_text(text)
    done = command("--config", str(file))
    assert done.returncode == 2
    assert "another agent, or a RoCE stack in software, has the port" in done.stderr
    assert first.process.poll() is None


def test_a_controller_that_dies_and_returns(start_agent: Start, tmp_path: Path, addresses: Addresses) -> None:
    """Nothing is lost: training goes on without a controller, and the session resumes with the next one."""
    first, second = Hub(), Hub()
    path = f"unix:{tmp_path}/controller.sock"
    server, address = serve_hub(first, path)
    agents = start_pair(start_agent, tmp_path, addresses, controller=address)
    eventually(lambda: len(first.bodies("iteration")) > 4, "iterations reported")
    server.stop(grace=0).wait()
    before = len(agents[0].records())
    eventually(lambda: len(agents[0].records()) > before + 5, "iterations without a controller")
    server, _ = serve_hub(second, path)
    eventually(lambda: len(second.bodies("iteration")) > 2, "iterations reported again")
    eventually(
        lambda: {j.rank for j in second.bodies("job_join")} == {0, 1}, "both workers have joined again"
    )
    server.stop(grace=0).wait()
    for agent in agents:
        assert agent.stop(signal.SIGTERM) == 0
        indices = [r["index"] for r in agent.records()]
        assert indices == list(range(len(indices)))
