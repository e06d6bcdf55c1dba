# SPDX-License-Identifier: Apache-2.0
"""The bytes that leave a switch by each of its interfaces, by connection, as tcpdump sees them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topo.mininet import MininetError, MininetFabric

PROGRAM = "tcpdump"
_HEAD = 96
"""Bytes that are kept of a frame: all headers up to TCP's without long options."""
_END_S = 10.0
_FILE = struct.Struct("=IHHiIII")
_MAGIC, _ETHERNET = 0xA1B2C3D4, 1
_RECORD = struct.Struct("=IIII")
_ETHERNET_BYTES = 14


@dataclass(frozen=True, slots=True)
class Tuple5:
    """A direction of a TCP connection."""

    source: str
    source_port: int
    destination: str
    destination_port: int


class Capture:
    """Captures what leaves the switch `node` by each of `interfaces`, from now until `stop`.

    Raises:
        MininetError: tcpdump is not installed.
    """

    def __init__(self, network: MininetFabric, node: str, interfaces: Sequence[str], folder: Path) -> None:
        if shutil.which(PROGRAM) is None:
            raise MininetError(f"not on PATH: {PROGRAM}; on Debian: apt-get install {PROGRAM}")
        self._running: dict[str, tuple[subprocess.Popen[Any], Path]] = {}
        for interface in interfaces:
            file = folder / f"{node}.{interface}.pcap"
            # With -U each frame is written at once; -Z root: it may write to a folder of root.
            argv = [
                PROGRAM, "-i", interface, "-Q", "out", "-s", str(_HEAD), "-U", "-n", "-Z", "root",
                "-w", str(file), "tcp",
            ]  # fmt: skip
            process = network.spawn(
                node, argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            self._running[interface] = process, file
            # It says when it listens.
            assert process.stderr is not None
            process.stderr.readline()

    def stop(self) -> dict[str, Counter[Tuple5]]:
        """End the capture. The payload bytes of each direction of a connection, by interface."""
        found = {}
        for interface, (process, file) in self._running.items():
            process.terminate()
            process.communicate(timeout=_END_S)
            found[interface] = payload_bytes(file.read_bytes())
            file.unlink()
        return found


def payload_bytes(capture: bytes) -> Counter[Tuple5]:
    """The TCP payload bytes of each direction of a connection in a file of tcpdump (pcap, microseconds, this
    machine's byte order, Ethernet, IPv4). Other frames do not count.

    Raises:
        ValueError: it is no such file.
    """
    if len(capture) < _FILE.size:
        return Counter()
    magic, *_, link = _FILE.unpack_from(capture)
    if (magic, link) != (_MAGIC, _ETHERNET):
        raise ValueError(f"no capture of Ethernet frames: magic {magic:#x}, link type {link}")
    found: Counter[Tuple5] = Counter()
    for frame in _frames(capture):
        ip = frame[_ETHERNET_BYTES:]
        if frame[12:14] != b"\x08\x00" or len(ip) < 20 or ip[9] != 6:
            continue
        head = 4 * (ip[0] & 15)
        tcp = ip[head:]
        if len(tcp) < 13:
            continue
        size = int.from_bytes(ip[2:4]) - head - 4 * (tcp[12] >> 4)
        ends = _address(ip[12:16]), int.from_bytes(tcp[:2]), _address(ip[16:20]), int.from_bytes(tcp[2:4])
        found[Tuple5(*ends)] += size
    return found


def _frames(capture: bytes) -> Iterator[bytes]:
    """The frames of a file; one that was cut off at its end is left out."""
    at = _FILE.size
    while at + _RECORD.size <= len(capture):
        kept = _RECORD.unpack_from(capture, at)[2]
        at += _RECORD.size
        if at + kept <= len(capture):
            yield capture[at : at + kept]
        at += kept


def _address(raw: bytes) -> str:
    return ".".join(map(str, raw))
