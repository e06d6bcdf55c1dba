# SPDX-License-Identifier: Apache-2.0
"""The child processes of a run. A child reads and writes JSON lines, and ends when its input is closed."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrhythm.run import fork_server
from polyrhythm.run.fork_server import Request, Streams

# Chosen: how long a child may take to end, how many lines of its log an error shows, and how long a message
# may be, in bytes.
STOP_TIMEOUT_S = 5.0
LOG_TAIL_LINES = 12
LONGEST_LINE = 64 << 20

_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RunError(RuntimeError):
    """A run cannot go on. The message is for a person."""


class _ForkServer:
    """The process that starts all children (`polyrhythm.run.fork_server`). The first child starts it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._server: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, arguments: Sequence[str], streams: Streams) -> None:
        """Start `polyrhythm *arguments`.

        Raises:
            OSError: no process can be started.
        """
        environment = {**os.environ, "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE")}
        request = Request(arguments, os.getcwd(), environment)
        with self._guard:
            if self._server is None:
                self._begin(environment)
            assert self._server is not None
            try:
                request.send(self._server, streams)
            except ConnectionError:
                # Somebody has ended it.
                self._end()
                self._begin(environment)
                request.send(self._server, streams)

    def _begin(self, environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", fork_server.__name__, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    # Ctrl-C on the terminal is for us alone: a child that ended first would be a failure.
                    process_group=0,
                    env=environment,
                )
            except OSError:
                ours.close()
                raise
        self._server = ours
        atexit.register(self._end)

    def _end(self) -> None:
        """Let it end. Its children go on."""
        atexit.unregister(self._end)
        server, process = self._server, self._process
        self._server = self._process = None
        if server is not None:
            server.close()
        if process is not None:
            process.terminate()
            process.wait()


_FORK_SERVER = _ForkServer()


class Process:
    """A child process `polyrhythm ...`. It writes JSON lines; its log goes to a file."""

    def __init__(self, name: str, log: Path, pid: int, streams: Sequence[_Stream]) -> None:
        self.name = name
        self.pid = pid
        """The id of the child process."""
        self._log = log
        self._streams = streams
        (_, self._input), (self._output, _), (self._status, _) = streams
        self._ending = asyncio.ensure_future(self._ended())

    @classmethod
    async def spawn(cls, name: str, arguments: Sequence[str], log: Path) -> Process:
        """Start `polyrhythm *arguments`. Standard error goes to the file `log`.

        Raises:
            RunError: no process can be started.
        """
        with log.open("wb") as sink, contextlib.ExitStack() as until_asked, contextlib.ExitStack() as undo:
            ours = []
            theirs = []
            for _ in range(3):
                a, b = socket.socketpair()
                ours.append(undo.enter_context(a))
                theirs.append(until_asked.enter_context(b).fileno())
            try:
                _FORK_SERVER.start(arguments, Streams(theirs[0], theirs[1], sink.fileno(), theirs[2]))
            except OSError as error:
                raise RunError(f"the {name} could not be started: {error}") from None
            until_asked.close()
            # A child that nobody waits for any more ends because its input is closed.
            streams = []
            for end in ours:
                streams.append(await asyncio.open_connection(sock=end, limit=LONGEST_LINE))
                undo.callback(streams[-1][1].transport.abort)
            line = await streams[2][0].readline()
            if not line:
                raise RunError(f"the {name} could not be started")
            undo.pop_all()
            return cls(name, log, json.loads(line)["pid"], streams)

    async def messages(self) -> AsyncIterator[Mapping[str, Any]]:
        """The messages of the child until it closes its output."""
        async for line in self._output:
            yield json.loads(line)

    async def expect(self, key: str) -> Mapping[str, Any]:
        """Wait for the next message that has `key`.

        Raises:
            RunError: the child ended first; the message has the end of its log.
        """
        async for message in self.messages():
            if key in message:
                return message
        raise await self.failure()

    async def failure(self) -> RunError:
        """Wait until the child has ended; returns the reason as an error."""
        code = await self._wait()
        tail = self._log.read_text(errors="replace").strip().splitlines()[-LOG_TAIL_LINES:]
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return RunError(
            f"the {self.name} {how}" + ("; the end of its log:\n  " + "\n  ".join(tail) if tail else "")
        )

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send one message to the child.

        Raises:
            RunError: the child has ended.
        """
        try:
            self._input.write(json.dumps(message).encode() + b"\n")
            await self._input.drain()
        except ConnectionError:
            raise await self.failure() from None

    async def stop(self) -> None:
        """Close the child's input, so that it ends. Kill it if it has not ended after STOP_TIMEOUT_S.

        It also closes our ends of the sockets: output that nobody has read would keep them open until the
        event loop is closed, and asyncio would then complain.
        """
        if not self._ending.done():
            self._input.close()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._wait()
            except TimeoutError:
                os.kill(self.pid, signal.SIGKILL)
                await self._wait()
        for _, writer in self._streams:
            writer.transport.abort()

    async def _wait(self) -> int:
        """Wait until the child has ended; returns its exit code, negative if a signal ended it."""
        return await asyncio.shield(self._ending)

    async def _ended(self) -> int:
        line = await self._status.readline()
        # Somebody killed the process that waits for it.
        return int(json.loads(line)["code"]) if line else -signal.SIGKILL
