# SPDX-License-Identifier: Apache-2.0
"""The port map as the verbs shim reads it, in Python: the oracle for the shim's C code."""

from __future__ import annotations

import re
import socket

from controller.wire.rocev2 import ROCE_SOURCE_PORTS
from hostagent.nic.port_map import HEADER, PortMap

_LINE = re.compile(r"([^,=\s]+),([^,=\s]+)=(\d+(?:,\d+)*)")


class PortMapError(ValueError):
    """A map that is not whole, or not right in every line; the message says where."""


def flow_label(port: int) -> int:
    """The flow label from which a NIC makes the RoCEv2 source port `port` (never 0, which means none)."""
    return 0x4001 if port == ROCE_SOURCE_PORTS.start else port & 0x3FFF


def parse_port_map(text: str) -> PortMap:
    """Read a map as the shim does. Raises PortMapError."""
    if text and not text.endswith("\n"):
        raise PortMapError("the last line has no end: the file is not whole")
    stripped = [line.partition("#")[0].strip() for line in text.split("\n")]
    entries = dict(_line(said, number) for number, said in enumerate(stripped, 1) if said)
    promised = re.match(re.escape(HEADER) + r"(\d+)\n", text)
    if promised and int(promised[1]) != len(entries):
        raise PortMapError(f"{len(entries)} entries of {promised[1]}: the file is not whole")
    return entries


def _line(said: str, number: int) -> tuple[tuple[str, str], tuple[int, ...]]:
    match = _LINE.fullmatch(said)
    if match is None:
        raise PortMapError(f"line {number} is not srcIP,dstIP=port,...")
    for address in match[1], match[2]:
        if not _is_address(address):
            raise PortMapError(f"line {number}: {address} is no IP address")
    ports = tuple(map(int, match[3].split(",")))
    for port in ports:
        if port not in ROCE_SOURCE_PORTS:
            raise PortMapError(f"line {number}: port {port} is outside 49152-65535")
    return (match[1], match[2]), ports


def _is_address(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except OSError:
        return False
    return True
