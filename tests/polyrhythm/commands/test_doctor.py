# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm doctor`: its output, its exit codes and its options."""

from __future__ import annotations

import json
import re
import socket
import threading
from pathlib import Path

import pytest

from polyrhythm.cli import main
from polyrhythm.commands.doctor import CHECKS

DOC = Path(__file__).parents[3] / "docs" / "watching.md"


@pytest.fixture
def agent(tmp_path: Path) -> str:
    file = tmp_path / "agent.toml"
    file.write_text(
        f'[agent]\nhost = "h1"\nip = "127.0.0.1"\nsocket = "{tmp_path}/none.sock"\n[nic]\ndriver = "none"\n'
    )
    return str(file)


def test_findings_come_as_text_and_as_json(agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--agent", agent]) == 1
    out = capsys.readouterr().out
    assert "problem  agent-socket  " in out
    assert "do: start the agent: systemctl start polyrhythm-agent" in out
    assert "unknown  switches      cannot be checked here: it needs the description of the fabric" in out
    assert main(["doctor", "--agent", agent, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [f["check"] for f in told["findings"]] == list(CHECKS)
    assert told["problems"] == sum(f["state"] == "problem" for f in told["findings"])
    for finding in told["findings"]:
        assert bool(finding["remedy"]) is (finding["state"] == "problem")


def test_what_cannot_be_checked_is_no_problem(agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--agent", agent, "--only", "switches", "--only", "nic-offloads"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["unknown", "ok", "0"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--agent", "/none.toml"], "/none.toml"),
        (["--fabric", "/none.json"], "/none.json"),
        (["--token", "/none"], "--token /none: No such file"),
    ],
)
def test_bad_input_is_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_guide_lists_every_check() -> None:
    assert re.findall(
        r"^\| `([\w-]+)` \| .* \| .* \|$", DOC.read_text().partition("## Doctor")[2], re.M
    ) == list(CHECKS)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x00\x18\x04\x00\x00\x00\x00\x00",  # A gRPC port: the beginning of HTTP/2.
        b"HTTP/1.1 200 OK\r\n\r\n[1, 2]",
        b'HTTP/1.1 200 OK\r\nDate: \x1b[31mnow\r\n\r\n{"policy": 3}',
        b"HTTP/1.1 999999 \xff\r\n\r\n",
        b"",
    ],
)
def test_a_port_that_speaks_something_else_is_said_and_no_crash(
    answer: bytes, agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            for _ in range(2):
                accepted, _ = listener.accept()
                with accepted:
                    accepted.recv(4096)
                    accepted.sendall(answer)

        thread = threading.Thread(target=speak)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        only = ("--only", "time", "--only", "policy")
        assert main(["doctor", "--agent", agent, "--web", url, "--policy", "crux", *only]) == 0
        thread.join()
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert [line.split()[:2] for line in out.splitlines()[:2]] == [["unknown", "time"], ["unknown", "policy"]]


@pytest.mark.parametrize(
    "url",
    [
        "host:8080",
        "http://",
        "http://[",
        "http://a b/",
        "http://\x01",
        "http://127.0.0.1:99999",
        "http://h:0",
    ],
)
def test_an_address_that_is_none_is_bad_input(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--web", url, "--only", "time"]) == 2
    error = capsys.readouterr().err
    assert error.endswith(": legal: http://HOST:PORT or https://HOST:PORT\n")
    assert error.count("\n") == 1
    assert "\x01" not in error


def test_a_controller_that_is_away_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--web", "http://127.0.0.1:1", "--only", "time"]) == 1
    assert capsys.readouterr().out.startswith(
        "problem  time          http://127.0.0.1:1 does not answer: Connection refused"
    )
