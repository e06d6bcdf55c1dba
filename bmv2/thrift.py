# SPDX-License-Identifier: Apache-2.0
"""Set the rates and depths of simple_switch_grpc's queues. Only Thrift can set them.

Two calls of the service SimpleSwitch in Thrift's binary protocol, encoded by hand. The generated code of the
whole service, and Thrift's library, would be a larger dependency.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

_SERVICE = "simple_switch"
_VERSION = 0x80010000
_CALL, _REPLY = 1, 2
_STOP, _I32, _I64, _STRING = 0, 8, 10, 11
_LONGEST = 1 << 16


class ThriftError(RuntimeError):
    """The switch did not do what it was asked. The message says what and why."""


class QueueControl:
    """A connection to the Thrift server of one switch, which it closes at the end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sequence = 0

    def set_rate(self, port: int, priority: int, packets_per_second: int) -> None:
        """Let a queue of a port send no more than so many packets a second. Raises ThriftError, OSError."""
        arguments = ((_I32, port), (_I32, priority), (_I64, packets_per_second))
        self._call("set_egress_priority_queue_rate", arguments)

    def set_depth(self, port: int, packets: int) -> None:
        """How many packets each queue of a port holds. Raises ThriftError, OSError."""
        self._call("set_egress_queue_depth", ((_I32, port), (_I32, packets)))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _call(self, method: str, arguments: Sequence[tuple[int, int]]) -> None:
        self._sequence += 1
        name = f"{_SERVICE}:{method}".encode()
        fields = b"".join(
            struct.pack(">bhi" if kind == _I32 else ">bhq", kind, number, value)
            for number, (kind, value) in enumerate(arguments, 1)
        )
        head = struct.pack(">Ii", _VERSION | _CALL, len(name)) + name + struct.pack(">i", self._sequence)
        self._connection.sendall(head + fields + bytes([_STOP]))
        version, length = struct.unpack(">Ii", self._read(8))
        self._read(length)
        (sequence,) = struct.unpack(">i", self._read(4))
        if version != _VERSION | _REPLY or sequence != self._sequence:
            raise ThriftError(f"{method}: {self._words() or 'an answer that is none of this call'}")
        kind, _, result = struct.unpack(">bhi", self._read(7))
        self._read(1)
        if kind != _I32 or result:
            raise ThriftError(f"{method}: refused with {result}")

    def _words(self) -> str:
        """What an exception says: its first field."""
        kind, _, length = struct.unpack(">bhi", self._read(7))
        return self._read(length).decode(errors="replace") if kind == _STRING else ""

    def _read(self, size: int) -> bytes:
        if not 0 <= size <= _LONGEST:
            raise ThriftError(f"an answer of {size} bytes is none of this service")
        data = b""
        while len(data) < size:
            fresh = self._connection.recv(size - len(data))
            if not fresh:
                raise ThriftError("the switch has ended the connection")
            data += fresh
        return data
