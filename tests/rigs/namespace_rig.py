# SPDX-License-Identifier: Apache-2.0
"""Two hosts in network namespaces, and between them a switch made of raw sockets that can have faults."""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
PACKET_OUTGOING = 4
OFFLOADS = ("rx", "tx", "tso", "gso", "gro")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def inside(space: str, function: Callable[[], T]) -> T:
    """The result of `function()`, called in a thread that is in a network namespace."""

    def call() -> T:
        descriptor = os.open(f"/run/netns/{space}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(descriptor)
        return function()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


class Middle:
    """A switch between two ports. `cleared_dscps`: it sets these to 0. `largest`: longer frames are lost."""

    def __init__(self, space: str, ports: tuple[str, str]) -> None:
        self.cleared_dscps: Container[int] = ()
        self.largest = 65536

        def open_port(name: str) -> socket.socket:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            made.bind((name, 0))
            return made

        self._ports = inside(space, lambda: [open_port(name) for name in ports])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for port in self._ports:
            port.close()

    def _run(self) -> None:
        left, right = self._ports
        while not self._stop.is_set():
            for port in select.select(self._ports, (), (), 0.1)[0]:
                frame, address = port.recvfrom(65536)
                if address[2] != PACKET_OUTGOING and len(frame) <= self.largest:
                    (right if port is left else left).send(self._changed(frame))

    def _changed(self, frame: bytes) -> bytes:
        if frame[12:14] != b"\x08\x00" or frame[15] >> 2 not in self.cleared_dscps:
            return frame
        head = bytearray(frame[14:34])
        head[1], head[10:12] = head[1] & 3, b"\0\0"
        total = sum(struct.unpack(">10H", head))
        total = (total & 0xFFFF) + (total >> 16)
        head[10:12] = struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF)
        return frame[:14] + bytes(head) + frame[34:]


class Pair:
    """Hosts 10.77.0.1 and 10.77.0.2, each in a namespace with an interface eth0."""

    def __init__(self, names: tuple[str, str], middle: Middle) -> None:
        self.names, self.middle = names, middle

    def run(self, *words: str, host: int = 0) -> None:
        """Run a command on a host."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.names[host], *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def offloads(self, state: str) -> None:
        for host in (0, 1):
            self.run("ethtool", "-K", "eth0", *(w for o in OFFLOADS for w in (o, state)), host=host)


@contextmanager
def namespaces(*names: str) -> Iterator[None]:
    """Network namespaces, with lo up; skips the test where they cannot be made."""
    made = []
    try:
        for name in names:
            try:
                ip("netns", "add", name)
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"needs root and network namespaces: {error}")
            made.append(name)
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextmanager
def pair_of_hosts() -> Iterator[Pair]:
    """Two hosts without a fault. Skips the test without root, ip or ethtool."""
    if os.getuid() or not any(Path(f, "ethtool").exists() for f in ("/usr/sbin", "/sbin", "/usr/bin")):
        pytest.skip("needs root and ethtool")
    tag = f"pd{os.getpid() % 100000}"
    one, two, mid = (f"{tag}{x}" for x in "abm")
    with namespaces(one, two, mid):
        for index, name in enumerate((one, two)):
            ip(
                "link",
                "add",
                "eth0",
                "netns",
                name,
                "type",
                "veth",
                "peer",
                "name",
                f"p{index}",
                "netns",
                mid,
            )
            ip("-n", mid, "link", "set", f"p{index}", "mtu", "9000", "up")
            ip("-n", name, "link", "set", "eth0", "mtu", "9000", "up")
            ip("-n", name, "address", "add", f"10.77.0.{index + 1}/24", "dev", "eth0")
        middle = Middle(mid, ("p0", "p1"))
        try:
            pair = Pair((one, two), middle)
            pair.offloads("off")
            yield pair
        finally:
            middle.close()
