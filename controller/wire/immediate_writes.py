# SPDX-License-Identifier: Apache-2.0
"""Writes to the file under a stream that never wait for a reader."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
from typing import TextIO


class ImmediateWriter:
    """Writes to the file under `stream`, past its buffer, what that file takes at once.

    A regular file takes all. A pipe takes at most PIPE_BUF bytes at a time, so that a line is in it whole or
    not at all; it is opened anew, because a flag of the original would change it for its other writers too. A
    socket takes what it has room for. Terminals and streams without a file take nothing.
    """

    def __init__(self, stream: TextIO) -> None:
        self._file: int | None = None
        self._pipe: int | None = None
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError, ValueError):
            file = stream.fileno()
            mode = os.fstat(file).st_mode
            if stat.S_ISREG(mode):
                self._file = file
            elif stat.S_ISFIFO(mode):
                self._pipe = os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            elif stat.S_ISSOCK(mode):
                self._socket = socket.socket(fileno=os.dup(file))

    def write(self, data: bytes) -> int:
        """Write the beginning of `data`; returns how many bytes were written, 0 if there is no room."""
        try:
            if self._file is not None:
                return os.write(self._file, data)
            if self._pipe is not None and len(data) <= select.PIPE_BUF:
                return os.write(self._pipe, data)
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass
        return 0

    def close(self) -> None:
        """Close what was opened for the writes; further ones write nothing."""
        self._file = None
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
