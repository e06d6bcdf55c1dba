# SPDX-License-Identifier: Apache-2.0
"""The agent's Unix socket and several users of its host: quotas, ownership, and names that are freed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_rig import (
    AgentProcess,
    assignment,
    config_text,
    eventually,
    local_socket,
    running_hub,
    start_agent,
    status,
    welcome_and_pin,
)

from controller.wire import agent_pb2 as pb
from controller.wire.limits import (
    MAX_FLOWS_OF_USER,
    MAX_LOCAL_CONNECTIONS,
    MAX_LOCAL_STATUS_WAITING,
    MAX_LOCAL_UNSENT_BYTES,
)
from controller.wire.traffic import flow_name

__all__ = ["start_agent"]

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as another user")

# Run as another user: it says what came back of each connection that it was told to make.
OTHER_USER = """
import json, os, socket, sys
path, count, said = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
os.setuid(int(sys.argv[5]))
made, heard = [], []
for _ in range(count):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.connect(path)
    made.append(one)
for one in made:
    one.settimeout(float(sys.argv[4]))
    try:
        if said:
            one.sendall(said)
            # The end of what it says ends the connection, after all answers.
            one.shutdown(socket.SHUT_WR)
        text = b""
        while data := one.recv(65536):
            text += data
            if not said:
                break
        heard.append(text.decode())
    except TimeoutError:
        heard.append(None)
    except (BrokenPipeError, ConnectionResetError):
        heard.append("")
print(json.dumps(heard), flush=True)
"""

# Run as another user: it says how many connections the agent keeps open, and holds them until it is stopped.
HOLDING_USER = """
import os, select, socket, sys
os.setuid(int(sys.argv[2]))
made = []
for _ in range(int(sys.argv[3])):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.connect(sys.argv[1])
    made.append(one)
# The agent accepts in order, so when the last one is closed, all are decided.
made[-1].recv(1)
poll = select.poll()
for one in made:
    poll.register(one, select.POLLIN)
print(len(made) - len(poll.poll(0)), flush=True)
sys.stdin.read()
"""


def as_nobody(path: str, said: str, count: int = 1, patience_s: float = 60) -> list[str | None]:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_USER, path, str(count), said, str(patience_s), str(NOBODY)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    heard: list[str | None] = json.loads(done.stdout)
    return heard


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may enter."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def agent(start_agent: Callable[..., AgentProcess], folder: Path) -> tuple[AgentProcess, str]:
    return started(start_agent, folder, f"unix:{folder}/none.sock")


def started(
    start_agent: Callable[..., AgentProcess], folder: Path, controller: str
) -> tuple[AgentProcess, str]:
    """The agent of h2 and the path of its socket."""
    path = str(folder / "agent.sock")
    text = config_text(
        "h2",
        "10.0.0.2",
        controller=controller,
        addresses={"h1": "10.0.0.1"},
        agent=f'socket = "{path}"',
        nic='driver = "none"',
    )
    process = start_agent(text)
    eventually(lambda: Path(path).exists(), "the socket")
    return process, path


def request(op: str, **fields: Any) -> bytes:
    return json.dumps({"op": op, **fields}).encode() + b"\n"


def join(job: str, flows: int = 1, rank: int = 0, hosts: tuple[str, ...] = ("h2", "h1")) -> bytes:
    """A request to join with a job of that many flows from h2 to h1."""
    return request(
        "join", job=job, rank=rank, hosts=hosts, ring=[["h2", "h1"]] * flows, period_ns=10**8,
        bytes_per_flow=10**6,
    )  # fmt: skip


def refusal(path: str, said: bytes) -> str:
    """What the agent answers to an illegal request."""
    with local_socket(path) as made:
        made.sendall(said)
        event = json.loads(made.makefile().readline())
    assert event["event"] == "error", event
    text: str = event["what"]
    return text


def test_a_worker_whose_flows_are_open_for_another_one_is_refused(agent: tuple[AgentProcess, str]) -> None:
    process, path = agent
    with local_socket(path) as first:
        first.sendall(join("a"))
        assert json.loads(first.makefile().readline())["event"] == "flows"
        # The hosts in another order, or one of them twice: the flow's name is the same.
        for hosts in (("h1", "h2"), ("h2", "h2", "h1")):
            said = refusal(path, join("a", rank=1, hosts=hosts))
            assert said == "job a: flow a/h2>h1 is open on h2 for its rank 0; legal: one rank a host"
        assert status(path)["workers"] == [{"job": "a", "rank": 0, "accepted": False}]
    assert process.process.poll() is None


def test_long_names_are_refused(agent: tuple[AgentProcess, str]) -> None:
    _, path = agent
    long = "n" * 1001
    said = refusal(path, request("flow", flow=long, bytes=10**6))
    assert said.endswith("is wrong; legal: a name of 1 to 1,000 characters")
    assert "legal: text of 0 to 200 characters" in refusal(path, join(long[:201]))
    with local_socket(path) as made:
        made.sendall(request("flow", flow=long[:1000], bytes=10**6))
        assert json.loads(made.makefile().readline())["flow"] == long[:1000]


def test_many_moves_one_after_another_tell_their_process_the_result(
    start_agent: Callable[..., AgentProcess], folder: Path
) -> None:
    names = [flow_name("a", "h2", "h1", n) for n in range(300)]
    ports = {name: 0xC000 + n for n, name in enumerate(names)}

    def answer(message: pb.AgentMessage) -> Iterator[pb.ControllerMessage]:
        if message.flow_request.flow == "move":
            for name, port in ports.items():
                # Longer than the agent gathers moves.
                time.sleep(0.004)
                yield assignment(name, port)
        yield from welcome_and_pin(message)

    with running_hub() as (hub, address):
        hub.answer = answer
        _, path = started(start_agent, folder, address)
        with local_socket(path) as training:
            events = training.makefile()
            eventually(lambda: status(path)["connected"], "the session")
            training.sendall(join("a", len(names)))
            told = json.loads(events.readline())["flows"]
            assert set(told) == set(names)
            # The process reads nothing meanwhile, as one that computes. Told of each move, it would get 5 MB.
            training.sendall(request("flow", flow="move", bytes=10**6))
            eventually(
                lambda: {n: f["source_port"] for n, f in status(path)["flows"].items()} == ports, "the moves"
            )
            while {n: told.get(n, {}).get("source_port") for n in names} != ports:
                told = json.loads(events.readline()).get("flows", told)


def test_a_process_that_reads_late_gets_all_answers_and_the_error_after_them(
    agent: tuple[AgentProcess, str],
) -> None:
    process, path = agent
    # More than the socket takes while nobody reads.
    asked = 4000
    with local_socket(path) as training:
        questions = [request("flow", flow=f"a/mine{n}", bytes=1) for n in range(asked)]
        training.sendall(b"".join(questions) + request("nonsense") + request("status"))
        eventually(lambda: process.says("sent an illegal request"), "the error")
        *answers, error = [json.loads(line) for line in training.makefile()]
    assert [a["flow"] for a in answers] == [f"a/mine{n}" for n in range(asked)]
    assert error["event"] == "error"
    assert "nonsense" in error["what"]


def test_a_long_answer_reaches_a_process_that_reads_it(agent: tuple[AgentProcess, str]) -> None:
    _, path = agent
    with contextlib.ExitStack() as stack:
        for n in range(4):
            training = stack.enter_context(local_socket(path))
            training.sendall(join(f"job{n}", 4000))
            training.makefile().readline()
        with local_socket(path) as asking:
            asking.sendall(request("status"))
            line = asking.makefile().readline()
    assert len(line) > MAX_LOCAL_UNSENT_BYTES
    assert len(json.loads(line)["flows"]) == 16_000


@needs_root
def test_a_user_ends_no_flow_of_another_and_shuts_nobody_out(agent: tuple[AgentProcess, str]) -> None:
    process, path = agent
    with local_socket(path) as mine:
        answers = mine.makefile()
        mine.sendall(b'{"op": "flow", "flow": "a/mine", "bytes": 1000000}\n')
        assert json.loads(answers.readline())["event"] == "flow"
        (heard,) = as_nobody(path, '{"op": "end", "flow": "a/mine"}\n')
        assert heard is not None
        assert "a/mine is another user's; legal: a flow of user 65534" in json.loads(heard)["what"]
        assert process.says(f"of user {NOBODY} sent an illegal request")
        # Its own flows it may end, also one of the same name.
        (heard,) = as_nobody(
            path, '{"op": "flow", "flow": "a/mine", "bytes": 1}\n{"op": "end", "flow": "a/mine"}\n'
        )
        assert heard is not None
        assert [json.loads(line)["event"] for line in heard.splitlines()] == ["flow"]
        # More connections than a user may have: the rest is refused, and others get through.
        half = MAX_LOCAL_CONNECTIONS // 2
        heard_all = as_nobody(path, "", count=half + 20, patience_s=0.01)
        assert heard_all.count("") >= 20
        assert status(path)["event"] == "status"
        mine.sendall(b'{"op": "end", "flow": "a/mine"}\n{"op": "status"}\n')
        assert json.loads(answers.readline())["event"] == "status"


@needs_root
def test_two_users_with_all_connections_they_get_leave_room_for_a_third(
    agent: tuple[AgentProcess, str],
) -> None:
    _, path = agent
    with contextlib.ExitStack() as stack:
        kept = []
        for user in (NOBODY - 1, NOBODY - 2):
            holding = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", HOLDING_USER, path, str(user), str(MAX_LOCAL_CONNECTIONS)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            assert holding.stdout is not None
            kept.append(int(holding.stdout.readline()))
        assert all(0 < count <= MAX_LOCAL_CONNECTIONS // 2 for count in kept)
        (heard,) = as_nobody(path, '{"op": "status"}\n')
        assert heard is not None
        assert json.loads(heard)["event"] == "status"


@needs_root
def test_a_user_that_asks_for_the_state_without_end_is_refused(agent: tuple[AgentProcess, str]) -> None:
    process, path = agent
    with local_socket(path) as training:
        training.sendall(join("a", 4000))
        training.makefile().readline()
        as_nobody(path, '{"op": "status"}\n' * 4_000)
        eventually(
            lambda: process.says(f"closed: op: {MAX_LOCAL_STATUS_WAITING} times status; legal: to read"),
            "log",
        )
        assert process.says(f"of user {NOBODY} sent an illegal request")
        # Another user's question waits for none of these.
        assert status(path)["workers"] == [{"job": "a", "rank": 0, "accepted": False}]


def test_a_user_opens_a_bounded_number_of_flows_and_all_are_free_when_it_goes(
    agent: tuple[AgentProcess, str],
) -> None:
    process, path = agent

    def ask(first: int, count: int) -> list[str]:
        with local_socket(path) as made:
            answers = made.makefile()
            said = []
            # No more than the socket holds: the last answer, the error, would wait in the agent and be lost.
            for start in range(first, first + count, 100):
                names = range(start, min(start + 100, first + count))
                lines = (f'{{"op": "flow", "flow": "x/{n}", "bytes": 1000000}}\n' for n in names)
                made.sendall("".join(lines).encode())
                for _ in names:
                    said.append(json.loads(answers.readline())["event"])
                    if said[-1] == "error":
                        return said
            return said

    for round_ in range(2):
        said = ask(round_ * 10**6, MAX_FLOWS_OF_USER + 1)
        assert said.count("flow") == MAX_FLOWS_OF_USER
        assert said[-1] == "error"
    assert process.says(f"has {MAX_FLOWS_OF_USER:,} open flows; legal: end some of them first")
    assert status(path)["event"] == "status"


@pytest.mark.slow
@needs_root
def test_connections_that_say_nothing_are_closed(agent: tuple[AgentProcess, str]) -> None:
    _, path = agent
    assert as_nobody(path, "", count=20) == [""] * 20
