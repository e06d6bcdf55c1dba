# SPDX-License-Identifier: Apache-2.0
"""What a command says when no controller, or something else, is at the address that it was given."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from polyrhythm.cli import main


@pytest.fixture
def answers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that answers one connection with the given bytes."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with closing(connection):
                connection.recv(65_536)
                connection.sendall(request.param)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "no answer of a controller: SSH-2.0-OpenSSH"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "no answer of a controller: IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "it is no JSON object"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "no answer of a controller: Expecting value"),
        (b"", "--controller says where the controller is"),
    ],
    indirect=["answers"],
)
def test_another_server_is_told_in_one_line(
    answers: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jobs", "list", "--controller", answers]) == 1
    out, said = capsys.readouterr()
    assert out == ""
    assert said.startswith(f"polyrhythm jobs list: {answers}/api/v1/jobs: ")
    assert words in said
    assert said.count("\n") == 1


def test_a_controller_that_is_not_there_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        free = f"http://127.0.0.1:{server.getsockname()[1]}"
    assert main(["history", "--controller", free]) == 1
    said = capsys.readouterr().err
    assert said.endswith("plans?most=20: Connection refused; --controller says where the controller is\n")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:8080",
        "http://",
        "http://h:80a",
        "http://h:99999",
        "http://a b:80",
        "http://[::1",
        "ftp://h",
        "http://h\n",
    ],
)
def test_an_illegal_address_is_bad_input(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list", "--controller", address]) == 2
    said = capsys.readouterr().err
    assert said.endswith("legal: http://HOST:PORT or https://HOST:PORT\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["apply", "gone.yaml"], "gone.yaml: a scenario can be tried with --dry-run only"),
        (["apply", "gone.yaml", "--dry-run"], "gone.yaml: cannot be read: No such file or directory"),
        (["apply", "magic"], "'magic' is no policy; legal: "),
    ],
)
def test_apply_tells_a_file_from_a_policy(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"polyrhythm apply: {words}")
