# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that can fall silent: its connections stand, but nothing passes."""

from __future__ import annotations

import contextlib
import socket
import threading


class SilentProxy:
    """Forwards to `address` ("host:port") from a port of its own, until `silence()` and after `resume()`."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._to = (host, int(port))
        self._passing = threading.Event()
        self._passing.set()
        self._closed = False
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        self._passing.clear()

    def abandon(self) -> None:
        """Leave the connections that stand silent for ever, while the target sees their end. New ones pass."""
        self._passing = threading.Event()
        self._passing.set()
        for far in self._open[1::2]:
            with contextlib.suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)

    def resume(self) -> None:
        self._passing.set()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._passing.set()
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._join(near)

    def _join(self, near: socket.socket) -> None:
        """Forward a new connection, unless the target does not answer or the proxy was closed meanwhile."""
        try:
            far = socket.create_connection(self._to)
        except OSError:
            near.close()
            return
        with self._lock:
            if self._closed:
                near.close()
                far.close()
                return
            self._open += [near, far]
        for source, sink in ((near, far), (far, near)):
            passed = source, sink, self._passing
            threading.Thread(target=self._pass, args=passed, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, passing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                passing.wait()
                sink.sendall(data)
            passing.wait()
            sink.shutdown(socket.SHUT_WR)
