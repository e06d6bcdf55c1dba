# SPDX-License-Identifier: Apache-2.0
"""The connection of a training process with the agent of its host."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Mapping
from typing import Any

from polyrhythm_job.protocol import encode, split_lines

log = logging.getLogger(__name__)

CONNECT_S = 0.05
"""The longest wait to connect, or for the agent to take a message. Chosen: below what one iteration takes."""
RETRY_NS = 500_000_000
"""The least time between two attempts to connect. An attempt that nobody answers takes some microseconds."""
RETRY_AFTER_TIMEOUT_NS = 5_000_000_000
"""The same after an attempt that took CONNECT_S: an agent that hangs costs a training process 1 % at most."""


class AgentConnection:
    """A connection that never raises and never waits longer than its caller allows. Without an agent it sends
    and receives nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._incomplete = b""
        self._retry_ns = 0
        self._last_warning = ""

    @property
    def up(self) -> bool:
        """Whether the connection is open."""
        return self._socket is not None

    def connect(self) -> bool:
        """Connect, unless the last attempt is less than RETRY_NS ago, or RETRY_AFTER_TIMEOUT_NS if nobody
        answered it. Returns `up`.
        """
        now = time.monotonic_ns()
        if self._socket is not None or now < self._retry_ns:
            return self.up
        self._retry_ns = now + RETRY_NS
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(CONNECT_S)
        try:
            made.connect(self._path)
        except OSError as error:
            made.close()
            if isinstance(error, TimeoutError | BlockingIOError):
                self._retry_ns = now + RETRY_AFTER_TIMEOUT_NS
            self._warn(f"no agent at {self._path} ({error.strerror or error}); training goes on without it")
            return False
        self._socket, self._incomplete, self._last_warning = made, b"", ""
        return True

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. If the agent does not take it, the connection is closed."""
        if self._socket is None:
            return
        try:
            self._socket.settimeout(CONNECT_S)
            self._socket.sendall(encode(message))
        except OSError as error:
            self._lost(str(error))

    def receive(self, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """The messages that have arrived. If none has, waits up to `wait_s` for one."""
        if self._socket is None:
            return []
        try:
            self._socket.settimeout(wait_s)
            fresh = self._socket.recv(1 << 16)
            if not fresh:
                self._lost("the agent closed it")
                return []
            lines, self._incomplete = split_lines(self._incomplete + fresh)
            return [message for line in lines if isinstance(message := json.loads(line), dict)]
        except (BlockingIOError, TimeoutError):
            return []
        except (OSError, ValueError) as error:
            self._lost(str(error))
            return []

    def close(self) -> None:
        """Close the connection: for the agent, the job has ended."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _lost(self, why: str) -> None:
        self.close()
        self._warn(f"the connection with the agent at {self._path} is lost ({why}); training goes on without")

    def _warn(self, what: str) -> None:
        """Log a warning, once while it stays the same."""
        if what != self._last_warning:
            self._last_warning = what
            log.warning("polyrhythm: %s", what)
