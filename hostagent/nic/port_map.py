# SPDX-License-Identifier: Apache-2.0
"""The port map: the file through which the agent tells the verbs shim which ports queue pairs take.

Lines `srcIP,dstIP=port,port,...`, a format that is already in the field; comments after #. The agent's maps
begin with a line that counts the entries, so that no part of a map passes for a whole one.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from hostagent.nic.driver import FIRST_SOURCE_PORT

PortMap = Mapping[tuple[str, str], tuple[int, ...]]
"""(source, destination) address -> the ports that queue pairs of the pair take in turn."""

_HEADER = "# polyrhythm 1 entries="
_LINE = re.compile(r"([^,=\s]+),([^,=\s]+)=(\d+(?:,\d+)*)")


class PortMapError(ValueError):
    """A map that is not whole, or not right in every line; the message says where."""


def flow_label(port: int) -> int:
    """The flow label from which a NIC makes the RoCEv2 source port `port` (never 0, which means none)."""
    return 0x4001 if port == FIRST_SOURCE_PORT else port & 0x3FFF


def format_port_map(entries: PortMap) -> str:
    """The map as the agent writes it."""
    lines = [f"{src},{dst}={','.join(map(str, ports))}" for (src, dst), ports in sorted(entries.items())]
    return "\n".join([f"{_HEADER}{len(lines)}", *lines]) + "\n"


def parse_port_map(text: str) -> PortMap:
    """Read a map as the shim does. Raises PortMapError."""
    if text and not text.endswith("\n"):
        raise PortMapError("the last line has no end: the file is not whole")
    stripped = [line.partition("#")[0].strip() for line in text.split("\n")]
    entries = dict(_line(said, number) for number, said in enumerate(stripped, 1) if said)
    promised = re.match(re.escape(_HEADER) + r"(\d+)\n", text)
    if promised and int(promised[1]) != len(entries):
        raise PortMapError(f"{len(entries)} entries of {promised[1]}: the file is not whole")
    return entries


def write_port_map(path: Path, entries: PortMap) -> None:
    """Put a map in the place of an earlier one at once: a reader sees the one or the other.

    Raises OSError where that cannot be written.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("w", encoding="ascii") as file:
            file.write(format_port_map(entries))
            file.flush()
            os.fsync(file.fileno())
        fresh.chmod(0o644)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def _line(said: str, number: int) -> tuple[tuple[str, str], tuple[int, ...]]:
    match = _LINE.fullmatch(said)
    if match is None:
        raise PortMapError(f"line {number} is not srcIP,dstIP=port,...")
    for address in match[1], match[2]:
        if not _is_address(address):
            raise PortMapError(f"line {number}: {address} is no IP address")
    ports = tuple(map(int, match[3].split(",")))
    for port in ports:
        if not FIRST_SOURCE_PORT <= port <= 0xFFFF:
            raise PortMapError(f"line {number}: port {port} is outside 49152-65535")
    return (match[1], match[2]), ports


def _is_address(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except OSError:
        return False
    return True
