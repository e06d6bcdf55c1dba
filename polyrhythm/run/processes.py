# SPDX-License-Identifier: Apache-2.0
"""The processes of a run: spawned, spoken to in JSON lines, and ended by closing their input."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

STOP_TIMEOUT_S = 5.0
LOG_TAIL_LINES = 12


class RunError(RuntimeError):
    """A run that cannot go on; the message is for a person."""


class Process:
    """One `python -m polyrhythm ...` child. Its standard output is JSON lines, its log a file."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @classmethod
    async def spawn(cls, name: str, arguments: Sequence[str], log: Path) -> Process:
        """Start `python -m polyrhythm *arguments`; standard error goes to the file `log`."""
        with log.open("wb") as sink:
            starting = asyncio.create_task(
                asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "polyrhythm",
                    *arguments,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=sink,
                    limit=64 << 20,
                    # Ctrl-C on the terminal is for us alone: a child that ended first would be a failure.
                    process_group=0,
                    env={**os.environ, "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE")},
                )
            )
            try:
                # asyncio, called off before the pipes are joined, waits for them for ever.
                process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                await cls(name, await starting, log).stop()
                raise
        return cls(name, process, log)

    async def messages(self) -> AsyncIterator[Mapping[str, Any]]:
        """The child's messages until it closes its output."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield json.loads(line)

    async def expect(self, key: str) -> Mapping[str, Any]:
        """The next message that has `key`.

        Raises:
            RunError: the child ended first; the message carries the end of its log.
        """
        async for message in self.messages():
            if key in message:
                return message
        raise await self.failure()

    async def failure(self) -> RunError:
        """Why the child ended, for a person."""
        code = await self._process.wait()
        tail = self._log.read_text(errors="replace").strip().splitlines()[-LOG_TAIL_LINES:]
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return RunError(
            f"the {self.name} {how}" + ("; its last words:\n  " + "\n  ".join(tail) if tail else "")
        )

    async def say(self, message: Mapping[str, Any]) -> None:
        """Write one message to the child's input.

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
        """Close the child's input, which asks it to end; kill it if it does not."""
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
