# SPDX-License-Identifier: Apache-2.0
"""The TCP connections of a job that says nothing: which they are, and how many bytes they have sent."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from hostagent.sock_diag import OpenSocket, open_sockets

ANY_USER = -1


@dataclass(frozen=True, slots=True)
class JobEnds:
    """Where a job's connections begin and end: at the address `local`, at the addresses `peers`, and in
    sockets of the user with the id `user` (ANY_USER: of any).
    """

    job: str
    local: str
    peers: frozenset[str]
    user: int = ANY_USER

    def of(self, sockets: Iterable[OpenSocket]) -> Iterator[OpenSocket]:
        """Those of the sockets that are the job's."""
        for found in sockets:
            if found.protocol != socket.IPPROTO_TCP or self.user not in (ANY_USER, found.user):
                continue
            if found.local[0] == self.local and found.peer[0] in self.peers:
                yield found

    def reports(self, found: OpenSocket) -> bool:
        """Whether this end of a connection reports it: one of both does, the lower address."""
        return ip_address(found.local[0]).packed < ip_address(found.peer[0]).packed


class SentBytes:
    """Counts the bytes that the job's connections have sent since this was made. It never falls, although
    connections close: what a connection sent between the last reading and its end does not count.

    Reading raises OSError if the kernel shows no sockets.
    """

    def __init__(self, ends: JobEnds) -> None:
        self._ends = ends
        self._total = 0
        self._last: Mapping[object, int] | None = None

    def __call__(self) -> Mapping[str, int]:
        """The bytes, under the name "", as of a NIC."""
        return self.of(open_sockets(socket.IPPROTO_TCP))

    def of(self, sockets: Iterable[OpenSocket]) -> Mapping[str, int]:
        """The same, from the sockets that are open now."""
        now: dict[object, int] = {(s.local, s.peer, s.inode): s.bytes_sent for s in self._ends.of(sockets)}
        if self._last is not None:
            self._total += sum(max(0, sent - self._last.get(key, 0)) for key, sent in now.items())
        self._last = now
        return {"": self._total}
