# SPDX-License-Identifier: Apache-2.0
"""The child processes of a run. A child reads and writes JSON lines, and ends when its input is closed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Chosen: how long a child may take to end, and how many lines of its log an error shows.
STOP_TIMEOUT_S = 5.0
LOG_TAIL_LINES = 12


class RunError(RuntimeError):
    """A run cannot go on. The message is for a person."""


class Process:
    """A child process `python -m polyrhythm ...`. It writes JSON lines; its log goes to a file."""

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        transport: asyncio.SubprocessTransport,
        log: Path,
    ) -> None:
        self.name = name
        self._process = process
        self._transport = transport
        self._log = log

    @classmethod
    async def spawn(cls, name: str, arguments: Sequence[str], log: Path) -> Process:
        """Start `python -m polyrhythm *arguments`. Standard error goes to the file `log`."""
        loop = asyncio.get_running_loop()
        with log.open("wb") as sink:
            # What asyncio.create_subprocess_exec does. But that keeps the transport, which `stop` must close.
            starting = asyncio.ensure_future(
                loop.subprocess_exec(
                    lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=64 << 20, loop=loop),
                    sys.executable,
                    "-m",
                    "polyrhythm",
                    *arguments,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=sink,
                    # Ctrl-C on the terminal is for us alone: a child that ended first would be a failure.
                    process_group=0,
                    env={**os.environ, "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE")},
                )
            )
            try:
                # If asyncio is cancelled before it has connected the pipes, it waits for them for ever.
                transport, protocol = await asyncio.shield(starting)
            except asyncio.CancelledError:
                transport, protocol = await starting
                process = asyncio.subprocess.Process(transport, protocol, loop)
                await cls(name, process, transport, log).stop()
                raise
        return cls(name, asyncio.subprocess.Process(transport, protocol, loop), transport, log)

    @property
    def pid(self) -> int:
        """The id of the child process."""
        return self._process.pid

    async def messages(self) -> AsyncIterator[Mapping[str, Any]]:
        """The messages of the child until it closes its output."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
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
        code = await self._process.wait()
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
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()
        except ConnectionError:
            raise await self.failure() from None

    async def stop(self) -> None:
        """Close the child's input, so that it ends. Kill it if it has not ended after STOP_TIMEOUT_S.

        It also closes our ends of the pipes: output that nobody has read would keep them open until the event
        loop is closed, and asyncio would then print a traceback.
        """
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        self._transport.close()
