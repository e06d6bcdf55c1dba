# SPDX-License-Identifier: Apache-2.0
"""The agent's Unix socket and several users of its host: quotas, ownership, and names that are freed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_rig import AgentProcess, config_text, eventually, local_socket, start_agent, status

from controller.wire.limits import MAX_CONNECTIONS_OF_USER, MAX_FLOWS_OF_USER

__all__ = ["start_agent"]

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as another user")

# Run as another user: it says what came back of each connection that it was told to make.
OTHER_USER = """
import json, os, socket, sys
path, count, said = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
os.setuid(65534)
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


def as_nobody(path: str, said: str, count: int = 1, patience_s: float = 60) -> list[str | None]:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_USER, path, str(count), said, str(patience_s)],
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
    path = str(folder / "agent.sock")
    text = config_text(
        "h2",
        "10.0.0.2",
        controller=f"unix:{folder}/none.sock",
        agent=f'socket = "{path}"',
        nic='driver = "none"',
    )
    process = start_agent(text)
    eventually(lambda: Path(path).exists(), "the socket")
    return process, path


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
        heard_all = as_nobody(path, "", count=MAX_CONNECTIONS_OF_USER + 20, patience_s=0.01)
        assert heard_all.count("") >= 20
        assert status(path)["event"] == "status"
        mine.sendall(b'{"op": "end", "flow": "a/mine"}\n{"op": "status"}\n')
        assert json.loads(answers.readline())["event"] == "status"


def test_a_user_opens_a_bounded_number_of_flows_and_all_are_free_when_it_goes(
    agent: tuple[AgentProcess, str],
) -> None:
    process, path = agent

    def ask(first: int, count: int) -> list[str]:
        with local_socket(path) as made:
            answers = made.makefile()
            said = []
            for start in range(first, first + count, 500):
                names = range(start, min(start + 500, first + count))
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
