# SPDX-License-Identifier: Apache-2.0
"""What a proxy does to the connections that pass through it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from polyrhythm.chaos.proxy import Proxy

PATIENCE_S = 20.0


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy before a server that sends everything back."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(end,), daemon=True).start()

    def echo(end: socket.socket) -> None:
        with end:
            try:
                while data := end.recv(65536):
                    end.sendall(data)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    found = Proxy(f"127.0.0.1:{listener.getsockname()[1]}")
    yield found
    found.close()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@contextmanager
def connected(proxy: Proxy) -> Iterator[socket.socket]:
    host, _, port = proxy.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as end:
        yield end


def echoed(end: socket.socket, words: bytes) -> bytes:
    end.sendall(words)
    found = b""
    while len(found) < len(words) and (data := end.recv(65536)):
        found += data
    return found


def test_it_passes_all_bytes_also_when_it_is_slow(proxy: Proxy) -> None:
    words = bytes(range(256)) * 2
    with connected(proxy) as end:
        assert echoed(end, words) == words
        proxy.slow = True
        assert echoed(end, words) == words


def test_a_silent_proxy_loses_nothing_and_breaks_nothing(proxy: Proxy) -> None:
    with connected(proxy) as end:
        assert echoed(end, b"one") == b"one"
        proxy.silence(True)
        end.sendall(b"two")
        end.settimeout(0.2)
        with pytest.raises(TimeoutError):
            end.recv(1)
        end.settimeout(PATIENCE_S)
        proxy.silence(False)
        assert end.recv(3) == b"two"


def test_it_cuts_connections_at_once_or_in_the_middle_of_a_message(proxy: Proxy) -> None:
    with connected(proxy) as end:
        assert echoed(end, b"one") == b"one"
        proxy.cut()
        assert end.recv(1) == b""
    with connected(proxy) as end:
        proxy.cut(after_bytes=4)
        assert echoed(end, b"a long message") == b""


def test_near_ends_are_lost_and_new_connections_work(proxy: Proxy) -> None:
    with connected(proxy) as end:
        assert echoed(end, b"one") == b"one"
        proxy.lose_near_ends()
        assert end.recv(1) == b""
    with connected(proxy) as end:
        assert echoed(end, b"two") == b"two"


def test_without_a_target_a_connection_ends(proxy: Proxy) -> None:
    proxy.target = ""
    with connected(proxy) as end:
        assert end.recv(1) == b""
