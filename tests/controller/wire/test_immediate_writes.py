# SPDX-License-Identifier: Apache-2.0
"""Writes that wait for no reader: to a file, a pipe and a socket, and to what has no file."""

import io
import os
import re
import select
import socket
import subprocess
import sys
from pathlib import Path

from controller.wire.immediate_writes import ImmediateWriter

LINE = b"x" * 99 + b"\n"

MIXED = """
import logging
from controller.wire.log_lines import LogHandler
import sys
handler = LogHandler(sys.stderr, "text")
logger = logging.Logger("controller.test")
logger.addHandler(handler)
handler.limit.filter = lambda record: True
for n in range(600):
    logger.warning("line %d %s", n, "é" * (n % 7 * 600))
handler.close()
"""


def test_a_regular_file_takes_all(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        writer = ImmediateWriter(stream)
        assert [writer.write(LINE * n) for n in (1, 1_000)] == [100, 100_000]
        writer.close()
        assert writer.write(LINE) == 0
    assert (tmp_path / "log").stat().st_size == 100_100


def test_a_pipe_takes_whole_lines_until_it_is_full_and_stays_as_it_was() -> None:
    reader, end = os.pipe()
    with os.fdopen(end, "w") as stream, os.fdopen(reader, "rb") as read:
        writer = ImmediateWriter(stream)
        written = 0
        while count := writer.write(LINE):
            assert count == len(LINE)
            written += count
        assert os.get_blocking(end)
        assert read.read(written) == LINE * (written // len(LINE))
        # One that is too long to be in it whole or not at all.
        assert writer.write(b"x" * (select.PIPE_BUF + 1)) == 0
        assert writer.write(LINE) == len(LINE)
        writer.close()


def test_a_socket_takes_what_it_has_room_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("w") as stream:
        writer = ImmediateWriter(stream)
        written = 0
        while count := writer.write(LINE):
            written += count
        received = b""
        while len(received) < written:
            received += theirs.recv(1 << 20)
        assert received == (LINE * (written // len(LINE) + 1))[:written]
        assert ours.getblocking()
        writer.close()


def test_a_reader_that_is_gone_and_a_stream_without_a_file_take_nothing() -> None:
    reader, end = os.pipe()
    with os.fdopen(end, "w") as stream:
        writer = ImmediateWriter(stream)
        os.close(reader)
        assert writer.write(LINE) == 0
        writer.close()
    assert ImmediateWriter(io.StringIO()).write(LINE) == 0


def test_short_and_long_lines_come_in_their_order_to_a_slow_reader() -> None:
    """Long lines are written by the thread, short ones at once where none waits."""
    command = [sys.executable, "-c", MIXED]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=root) as process:
        assert process.stderr is not None
        process.stderr.read(1)
        err = process.stderr.read().decode()
    found = [re.search(r" line (\d+) (é*)$", line) for line in err.splitlines()]
    assert [(int(m[1]), len(m[2])) for m in found if m] == [(n, n % 7 * 600) for n in range(600)]
