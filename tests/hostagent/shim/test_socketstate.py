# SPDX-License-Identifier: Apache-2.0
"""Programs see the same with the socket shim and without, whatever they do and whatever is wrong around them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from shim_rig import ROOT, compile_c, needs_compiler, steers

pytestmark = [needs_compiler, pytest.mark.skipif(not steers(), reason="needs Linux 6.3 or newer")]

PROGRAM = ROOT / "tests" / "data" / "sockets"
HERE, THERE = "127.0.0.1", "127.0.0.2"
MAP = "".join(f"{kind} job {HERE} {THERE} 0 26 - 1:0:1 -\n" for kind in ("tcp", "udp"))
HANGS_S = 60
"""A program that has not ended by then hangs."""


@pytest.fixture(scope="module")
def behave(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("behave") / "behave"
    compile_c("-o", str(made), *(str(PROGRAM / f"{part}.c") for part in ("behave", "behave_threads")))
    return made


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A listener that accepts and closes what is not among the last few."""
    with socket.create_server((THERE, 0), backlog=4096) as listener, ExitStack() as ending:

        def serve() -> None:
            kept: list[socket.socket] = []
            with suppress(OSError):
                while True:
                    kept.append(listener.accept()[0])
                    if len(kept) > 50:
                        kept.pop(0).close()
            for made in kept:
                made.close()

        thread = threading.Thread(target=serve)
        ending.callback(thread.join)
        ending.callback(listener.shutdown, socket.SHUT_RDWR)
        thread.start()
        yield listener.getsockname()[1]


Compare = Callable[..., str]


@pytest.fixture
def compare(built: Path, tmp_path: Path) -> Compare:
    """Runs a program without the shim and with it, and compares. Without a text the caller makes the map."""

    def run(*words: str, text: str = MAP, **more: str) -> str:
        path = tmp_path / "sockets"
        seen = []
        for shim in ("", str(built / "shim" / "libpolyrhythm-sockets.so")):
            if text:
                path.write_text(text)
            environment = {
                "PATH": os.environ["PATH"], "POLYRHYTHM_SOCKET_MAP": str(path), "POLYRHYTHM_SOCKET_JOB": "job",
                "POLYRHYTHM_SHIM_LOG": str(tmp_path / "log"), "LD_PRELOAD": shim, **more,
            }  # fmt: skip
            done = subprocess.run(
                words, env=environment, capture_output=True, text=True, check=False, timeout=HANGS_S
            )
            seen.append((done.returncode, done.stdout, done.stderr))
        assert seen[0][0] == 0, seen[0]
        assert seen[1] == seen[0]
        return seen[1][1]

    return run


@pytest.mark.parametrize(
    "what",
    [
        *("dup_name", "fork_name", "exec_name", "passed_name", "bind_twice", "listeners", "options", "again"),
        *(
            "wrong_calls",
            "errno_stays",
            "in_handler",
            "bare_fork",
            "spawned",
            "cancelled",
            "closed_meanwhile",
        ),
        *("replaced", "many", "small_files"),
    ],
)
def test_what_a_program_does(behave: Path, port: int, compare: Compare, what: str) -> None:
    assert compare(str(behave), what, str(port))


def test_a_program_that_has_changed_its_root(behave: Path, port: int, compare: Compare) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    assert compare(str(behave), "no_root", str(port)) == "0\n"


@pytest.mark.parametrize("what", ["a pipe", "a folder", "a device", "a loop", "without end"])
def test_a_map_that_is_no_file_or_too_large(
    behave: Path, port: int, compare: Compare, tmp_path: Path, what: str
) -> None:
    path = tmp_path / "sockets"
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a folder":
        path.mkdir()
    elif what == "a device":
        path.symlink_to("/dev/zero")
    elif what == "a loop":
        path.symlink_to(path)
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    assert compare(str(behave), "once", str(port), text="") == "0\n"


@pytest.mark.parametrize("what", ["a pipe", "a folder", "/dev/full", "nowhere"])
def test_a_log_that_takes_nothing(
    behave: Path, port: int, compare: Compare, tmp_path: Path, what: str
) -> None:
    path = tmp_path / "shim.log" if what != "nowhere" else tmp_path / "nowhere" / "log"
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a folder":
        path.mkdir()
    elif what == "/dev/full":
        path.symlink_to(what)
    assert compare(str(behave), "once", str(port), POLYRHYTHM_SHIM_LOG=str(path)) == "0\n"


def test_a_map_that_the_user_may_not_read(
    behave: Path, built: Path, port: int, compare: Compare, tmp_path: Path
) -> None:
    if os.geteuid():
        pytest.skip("needs root, to become another user")
    path = tmp_path / "sockets"
    path.write_text(MAP)
    path.chmod(0)
    code = "import os, sys; os.setuid(65534); os.execv(sys.argv[1], sys.argv[1:])"
    for folder in (tmp_path, *tmp_path.parents[:-2], behave.parent, built, built / "shim"):
        folder.chmod(0o755)
    words = (sys.executable, "-I", "-S", "-c", code, str(behave), "once", str(port))
    assert compare(*words, text="") == "0\n"


SERVER = f"""
import asyncio, sys
async def echo(reader, writer):
    writer.write(await reader.readexactly(200_000))
    await writer.drain()
    writer.close()
async def ask(port):
    reader, writer = await asyncio.open_connection({THERE!r}, port, local_addr=({HERE!r}, 0))
    writer.write(bytes(range(200)) * 1000)
    found = await reader.read()
    while more := await reader.read():
        found += more
    writer.close()
    return len(found), sum(found)
async def main():
    server = await asyncio.start_server(echo, {THERE!r}, 0)
    port = server.sockets[0].getsockname()[1]
    print(await asyncio.gather(*(ask(port) for _ in range(64))))
asyncio.run(main())
"""


def test_an_asyncio_server_and_its_clients(compare: Compare) -> None:
    assert compare(sys.executable, "-I", "-c", SERVER).count("(200000, 19900000)") == 64
