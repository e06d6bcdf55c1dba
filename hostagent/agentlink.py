# SPDX-License-Identifier: Apache-2.0
"""The connection of training code with the agent of its host: lines of JSON over a Unix socket."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)

CONNECT_S = 0.05
"""The longest that anything waits for the agent but an answer."""
RETRY_NS = 5_000_000_000


class AgentLink:
    """The connection with the agent: lines of JSON, never waited for longer than is said."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._read = b""
        self._retry_ns = 0
        self._told = ""

    @property
    def up(self) -> bool:
        """Whether there is an agent."""
        return self._socket is not None

    def connect(self) -> bool:
        """Try to reach the agent, unless that was tried a moment ago."""
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
            self._say(f"no agent at {self._path} ({error.strerror or error}); training goes on without")
            return False
        self._socket, self._read, self._told = made, b"", ""
        return True

    def send(self, message: Mapping[str, Any]) -> None:
        """Say something; an agent that does not take it is left."""
        if self._socket is None:
            return
        try:
            self._socket.settimeout(CONNECT_S)
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            self._lost(str(error))

    def receive(self, wait_s: float = 0.0) -> list[dict[str, Any]]:
        """What the agent has said by now, or within `wait_s` if it has said nothing."""
        if self._socket is None:
            return []
        try:
            self._socket.settimeout(wait_s)
            fresh = self._socket.recv(1 << 16)
            if not fresh:
                self._lost("it has ended")
                return []
            *lines, self._read = (self._read + fresh).split(b"\n")
            return [said for line in lines if isinstance(said := json.loads(line), dict)]
        except (BlockingIOError, TimeoutError):
            return []
        except (OSError, ValueError) as error:
            self._lost(str(error))
            return []

    def close(self) -> None:
        """Leave the agent; the job has ended."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _lost(self, why: str) -> None:
        self.close()
        self._say(f"the agent at {self._path} is lost ({why}); training goes on without")

    def _say(self, what: str) -> None:
        if what != self._told:
            self._told = what
            log.warning("polyrhythm: %s", what)
