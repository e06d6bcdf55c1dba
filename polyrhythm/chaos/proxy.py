# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that disturbs what passes: silence, slowness, half-open and broken connections."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

# Bytes and pause of the slow mode. Chosen: a message of some hundred bytes takes tens of milliseconds.
_SLOW_BYTES = 24
_SLOW_PAUSE_S = 0.002
_CONNECT_S = 1.0


class Proxy:
    """Forwards connections from a port of its own to `target` ("host:port", may change)."""

    def __init__(self, target: str = "") -> None:
        self.target = target
        self.slow = False
        self._passing = threading.Event()
        self._passing.set()
        self._closed = False
        self._cut_after: int | None = None
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self, silent: bool) -> None:
        """From now on nothing passes, or all that has waited passes."""
        if silent:
            self._passing.clear()
        else:
            self._passing.set()

    def cut(self, *, after_bytes: int = 0) -> None:
        """Break all connections; with `after_bytes` only once so many more bytes have passed."""
        if after_bytes:
            self._cut_after = after_bytes
            return
        self._cut_after = None
        with self._lock:
            pairs = list(self._pairs)
        for near, far in pairs:
            _break(near)
            _break(far)

    def lose_near_ends(self) -> None:
        """Close the connections of the clients; the target does not hear of it until it sends."""
        with self._lock:
            pairs = list(self._pairs)
            self._pairs.clear()
        for near, _ in pairs:
            _break(near)

    def abandon(self) -> None:
        """Leave the present connections silent for ever, while the target sees their end. New ones pass."""
        with self._lock:
            pairs = list(self._pairs)
            self._passing = threading.Event()
            self._passing.set()
        for _, far in pairs:
            _break(far)

    def close(self) -> None:
        """End all connections and close the port."""
        self._closed = True
        self._passing.set()
        _break(self._listener)
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            far = socket.create_connection((host, int(port)), timeout=_CONNECT_S)
        except (OSError, ValueError):
            near.close()
            return
        far.settimeout(None)
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = (near, far)
        with self._lock:
            self._pairs.add(pair)
            passing = self._passing
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pass, args=(source, sink, pair, passing), daemon=True).start()

    def _pass(
        self,
        source: socket.socket,
        sink: socket.socket,
        pair: tuple[socket.socket, socket.socket],
        passing: threading.Event,
    ) -> None:
        try:
            while data := source.recv(65536):
                passing.wait()
                if self._cut_after is not None:
                    data, rest = data[: self._cut_after], data[self._cut_after :]
                    self._cut_after -= len(data)
                    sink.sendall(data)
                    if rest or not self._cut_after:
                        self._cut_after = None
                        break
                elif self.slow:
                    for at in range(0, len(data), _SLOW_BYTES):
                        sink.sendall(data[at : at + _SLOW_BYTES])
                        time.sleep(_SLOW_PAUSE_S if self.slow else 0)
                else:
                    sink.sendall(data)
        except OSError:
            pass
        passing.wait()
        with self._lock:
            lost = pair not in self._pairs
            self._pairs.discard(pair)
        # The far end of a connection whose near end was lost stays open until its target closes it.
        if not lost or source is pair[1]:
            _break(pair[0])
            _break(pair[1])


def _break(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
