# SPDX-License-Identifier: Apache-2.0
"""An agent with the socket shim: the map, the shell commands for a job, and reports that the kernel confirms."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_rig import (
    PATIENCE_S,
    AgentProcess,
    Hub,
    command,
    config_text,
    eventually,
    welcome_and_pin,
)
from shim_rig import needs_compiler

from controller.wire import agent_pb2 as pb
from hostagent.connections import parse_report

Start = Callable[..., AgentProcess]
TCP = 6


def config(folder: Path, addresses: dict[str, str], controller: str, *, driver: str = "sockets") -> str:
    return config_text(
        "h1", addresses["h1"], controller=controller, agent='socket = ""', nic=f'driver = "{driver}"',
        more=f'[sockets]\nmap = "{folder / "sockets"}"\nports = "41000-41999"\n',
    )  # fmt: skip


def path(
    addresses: dict[str, str], flow: str, ends: str, *, index: int = 0, odd: bool = True
) -> pb.ControllerMessage:
    src, dst = (addresses[host] for host in ends.split(">"))
    told = pb.ConnectionPath(
        flow=flow, job="my job", src_ip=src, dst_ip=dst, index=index, protocol=TCP, dscp=26, known=True,
        conditions=[pb.PortCondition(source_mask=1, dest_mask=0x8000, odd=odd)],
    )  # fmt: skip
    return pb.ControllerMessage(connection_path=told)


def map_text(folder: Path) -> str:
    return (folder / "sockets").read_text() if (folder / "sockets").exists() else ""


def hub_with_paths(hub: Hub, *paths: pb.ControllerMessage) -> None:
    def answer(message: pb.AgentMessage) -> list[pb.ControllerMessage]:
        return [*welcome_and_pin(message), *(paths if message.WhichOneof("body") == "hello" else ())]

    hub.answer = answer


def test_the_map_has_both_directions_of_each_pair_of_hosts(
    start_agent: Start, tmp_path: Path, addresses: dict[str, str], hub: tuple[Hub, str]
) -> None:
    hub_with_paths(
        hub[0],
        path(addresses, "my job/h1>h2", "h1>h2"),
        path(addresses, "my job/h1>h2#1", "h1>h2", index=1, odd=False),
        path(addresses, "my job/h2>h1", "h2>h1"),
        path(addresses, "my job/h3>h1", "h3>h1"),
    )
    agent = start_agent(config(tmp_path, addresses, hub[1]))
    assert agent.ready["pinning"] == "sockets"
    own, other, third = (addresses[h] for h in ("h1", "h2", "h3"))
    written = f"""# polyrhythm sockets 1 entries=3
tcp my%20job {own} {other} 0 26 41000-41999 1:8000:1 8000:1:1
tcp my%20job {own} {other} 1 26 41000-41999 1:8000:0 8000:1:1
tcp my%20job {own} {third} 0 26 41000-41999 - 8000:1:1
"""
    eventually(lambda: map_text(tmp_path) == written, "the map")
    assert list(eventually(lambda: hub[0].bodies("hello"))[0].connects) == [TCP]


def shim_environment(built: Path, tmp_path: Path) -> dict[str, str]:
    """What `agent env --export` prints for "my job", beside the environment of this process."""
    return {
        **os.environ, "LD_PRELOAD": str(built / "shim" / "libpolyrhythm-sockets.so"),
        "POLYRHYTHM_SOCKET_MAP": str(tmp_path / "sockets"), "POLYRHYTHM_SOCKET_JOB": "my%20job",
        "POLYRHYTHM_SOCKET_REPORTS": str(tmp_path / "sockets.sock"),
    }  # fmt: skip


@needs_compiler
def test_connections_are_reported_with_their_flows_and_again_when_they_close(
    built: Path, start_agent: Start, tmp_path: Path, addresses: dict[str, str], hub: tuple[Hub, str]
) -> None:
    """What `agent env --export` prints is all that a program needs."""
    hub_with_paths(
        hub[0], path(addresses, "my job/h1>h2", "h1>h2"), path(addresses, "my job/h2>h1", "h2>h1", odd=False)
    )
    start_agent(config(tmp_path, addresses, hub[1]))
    eventually(lambda: "entries=1" in map_text(tmp_path), "the map")
    environment = shim_environment(built, tmp_path)
    code = """
import json, socket, sys
made = socket.socket()
made.bind((sys.argv[1], 0))
made.connect((sys.argv[2], int(sys.argv[3])))
print(json.dumps(made.getsockname()[1]), flush=True)
sys.stdin.read()
"""
    with socket.create_server((addresses["h2"], 0)) as listener:
        port = listener.getsockname()[1]
        program = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, addresses["h1"], addresses["h2"], str(port)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert program.stdout is not None
        own = json.loads(program.stdout.readline())
        assert 41000 <= own < 42000
        # Odd parity of what is sent, even of what comes back: bit 0 of the one and bit 15 of the other port.
        there = (own & 1) ^ (port >> 15) == 1
        assert there
        flows = [("my job/h1>h2", own, port), ("my job/h2>h1", port, own)]

        def said(closed: bool) -> bool:
            found = [
                c for body in hub[0].bodies("connections") for c in body.connections if c.closed == closed
            ]
            return [(c.flow, c.source_port, c.dest_port) for c in found] == flows

        eventually(lambda: said(closed=False), "a report of both directions")
        accepted, _ = listener.accept()
        program.communicate()
        accepted.close()
        eventually(lambda: said(closed=True), "a report that it has closed")


@needs_compiler
def test_connections_from_before_a_job_joins_are_reported_once_its_paths_are_known(
    built: Path, start_agent: Start, tmp_path: Path, addresses: dict[str, str], hub: tuple[Hub, str]
) -> None:
    """Training connects its ranks before it joins."""
    told: list[pb.ControllerMessage] = []
    hub[0].answer = lambda message: [*welcome_and_pin(message), *told]
    start_agent(config(tmp_path, addresses, hub[1]))
    eventually(lambda: hub[0].bodies("hello"), "a session")
    code = """
import socket, sys
made = [socket.socket() for _ in range(2)]
for each, to in zip(made, sys.argv[2:4]):
    each.bind((sys.argv[1], 0))
    each.connect((to, int(sys.argv[4])))
print(made[0].getsockname()[1], flush=True)
sys.stdin.read()
"""
    with socket.create_server((addresses["h2"], 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_server((addresses["h3"], port)):
            program = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", code, *(addresses[h] for h in ("h1", "h2", "h3")), str(port)],
                env=shim_environment(built, tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert program.stdout is not None
            own = int(program.stdout.readline())
            assert hub[0].bodies("connections") == []
            told.append(path(addresses, "my job/h1>h2", "h1>h2"))
            body = eventually(lambda: hub[0].bodies("connections"), "a report")[0]
            program.communicate()
    assert [(c.flow, c.source_port, c.dest_port, c.sent_dscp) for c in body.connections] == [
        ("my job/h1>h2", own, port, 0)
    ]


@needs_compiler
def test_an_agent_that_dies_between_look_up_and_connect_costs_no_connection(
    built: Path, start_agent: Start, tmp_path: Path, addresses: dict[str, str], hub: tuple[Hub, str]
) -> None:
    """Some sockets are bound before its end and connected after it. The map stays, so all are steered."""
    hub_with_paths(hub[0], path(addresses, "my job/h1>h2", "h1>h2"))
    agent = start_agent(config(tmp_path, addresses, hub[1]))
    eventually(lambda: "entries=1" in map_text(tmp_path), "the map")
    environment = shim_environment(built, tmp_path)
    code = """
import json, socket, sys
to, made = (sys.argv[2], int(sys.argv[3])), [socket.socket() for _ in range(40)]
for each in made[:30]:
    each.bind((sys.argv[1], 0))
for each in made[:20]:
    each.connect(to)
print("bound", flush=True)
sys.stdin.readline()
for each in made[20:]:
    each.bind((sys.argv[1], 0)) if each in made[30:] else None
    each.connect(to)
print(json.dumps([each.getsockname()[1] for each in made]), flush=True)
"""
    with socket.create_server((addresses["h2"], 0), backlog=256) as listener:
        port = listener.getsockname()[1]
        program = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, addresses["h1"], addresses["h2"], str(port)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == "bound\n"
        agent.stop(signal.SIGKILL)
        said, _ = program.communicate("go on\n")
    assert program.returncode == 0
    ports = json.loads(said)
    assert [own for own in ports if not 41000 <= own < 42000 or (own & 1) ^ (port >> 15) != 1] == []


def test_reports_that_the_kernel_does_not_confirm_are_worth_nothing(
    start_agent: Start, tmp_path: Path, addresses: dict[str, str], hub: tuple[Hub, str]
) -> None:
    hub_with_paths(hub[0], path(addresses, "my job/h1>h2", "h1>h2"))
    start_agent(config(tmp_path, addresses, hub[1]))
    eventually(lambda: "entries=1" in map_text(tmp_path), "the map")
    own, other = addresses["h1"], addresses["h2"]
    with (
        socket.create_server((other, 0)) as listener,
        socket.create_connection(listener.getsockname(), source_address=(own, 0)) as made,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as shim,
    ):
        ends = made.getsockname()[1], listener.getsockname()[1]
        for text in (
            b"\xff",
            b"tcp",
            b"tcp * x 1 y 2 0 0",
            f"tcp my%20job {own} 9 {other} {ends[1]} 0 26".encode(),
        ):
            shim.sendto(text, str(tmp_path / "sockets.sock"))
        real = f"tcp my%20job ::ffff:{own} {ends[0]} ::ffff:{other} {ends[1]} 0 26"
        shim.sendto(real.encode(), str(tmp_path / "sockets.sock"))
        eventually(lambda: hub[0].bodies("connections"), "a report")
        (said,) = (c for body in hub[0].bodies("connections") for c in body.connections)
        assert (said.flow, said.source_port, said.sent_dscp) == ("my job/h1>h2", ends[0], 26)


def test_the_environment_of_a_job(
    tmp_path: Path, addresses: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = Path(__file__).parents[2] / "hostagent" / "shim" / "build" / "libpolyrhythm-sockets.so"
    if not shim.is_file():
        pytest.skip("needs the built shim (make shim)")
    file = tmp_path / "agent.toml"
    text = config(tmp_path, addresses, "127.0.0.1:1")
    file.write_text(text)
    printed = command("--config", str(file), "env", "my job", "--export").stdout
    assert "POLYRHYTHM_SOCKET_PACE" not in printed
    file.write_text(text.replace("[sockets]\n", "[sockets]\npace_mbps = 12.5\n"))
    assert "POLYRHYTHM_SOCKET_PACE=1562500" in command("--config", str(file), "env", "my job").stdout
    shown = subprocess.run(
        ["sh", "-c", f"LD_PRELOAD=\n{printed}\necho $LD_PRELOAD; echo $POLYRHYTHM_SOCKET_JOB; echo $POLYRHYTHM_SOCKET_MAP"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert shown.stdout.splitlines() == [str(shim), "my%20job", str(tmp_path / "sockets")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('driver = "sockets"\n', "sockets.map: missing"),
        ('driver = "none"\n[sockets]\nmap = "/nowhere/sockets"\n', "/nowhere/sockets.sock"),
        ('driver = "none"\n[sockets]\nmap = "m"\nports = "9-8"\n', "9-8"),
        ('driver = "none"\n[sockets]\nmap = "m"\nports = "0"\n', "legal: ports from 1 to 65535"),
        ('driver = "none"\n[sockets]\nmap = "m"\nports = "70000"\n', "70000"),
        ('driver = "none"\n[sockets]\nmap = "a b"\n', "without white space"),
    ],
)
def test_bad_keys_are_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(config_text("h1", "127.0.0.1", agent='socket = ""', nic=text))
    done = command("--config", str(file))
    assert done.returncode == 2, done.stderr
    assert words in done.stderr


def test_a_report_is_read_as_the_shim_writes_it() -> None:
    report = parse_report("udp %2A ::ffff:10.0.0.1 40000 fd00::2 29500 3 26")
    assert report.key == (17, ("10.0.0.1", 40000), ("fd00::2", 29500))
    assert (report.job, report.number, report.dscp) == ("%2A", 3, 26)
    for wrong in (
        "",
        "tcp a 10.0.0.1 1 10.0.0.2 2 0",
        "tcp a 10.0.0.1 -1 10.0.0.2 2 0 0",
        "icmp a ::1 1 ::2 2 0 0",
    ):
        with pytest.raises(ValueError, match="no report"):
            parse_report(wrong)
