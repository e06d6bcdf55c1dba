# SPDX-License-Identifier: Apache-2.0
"""The socket map: the file in which the agent gives the socket shim the ports and DSCP of connections.

A line is `PROTOCOL JOB SOURCE DESTINATION INDEX DSCP PORTS SENT RETURNED`; `hostagent/shim/socketmap.h` says
what its fields mean. The agent's first line is a comment with the number of entries.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

PROTOCOL_NAMES = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp"}
HEADER = "# polyrhythm sockets 1 entries="
_MOST_CONDITIONS = 40
"""As MOST_CONDITIONS of the shim, which refuses a map with more in a line."""


@dataclass(frozen=True, slots=True)
class FlowPath:
    """What the controller says of the connections of a flow: it is number `index` of `job` from `src_ip` to
    `dst_ip`. `conditions` are (source mask, destination mask, odd); None: no ports are known to lead along
    the path.
    """

    flow: str
    job: str
    src_ip: str
    dst_ip: str
    index: int
    protocol: int
    dscp: int
    conditions: tuple[tuple[int, int, bool], ...] | None


@dataclass(frozen=True, slots=True)
class PairPaths:
    """The flows of a job between two addresses, by their index: those `sent` from the local one, and those
    `returned` to it. Fewer connections than flows take them in turn."""

    sent: tuple[FlowPath, ...]
    returned: tuple[FlowPath, ...]

    def of_connection(self, number: int) -> tuple[FlowPath | None, FlowPath | None]:
        """The flows that connection `number` of a process carries: there and back."""
        there = self.sent[number % len(self.sent)] if self.sent else None
        back = self.returned[number % len(self.returned)] if self.returned else None
        return there, back


Pair = tuple[int, str, str, str]
"""Protocol, job, local address, peer's address."""


def pairs_of(paths: Iterable[FlowPath], locals_: Iterable[str]) -> dict[Pair, PairPaths]:
    """The flows of all jobs, by the two addresses of which the first is one of `locals_`."""
    own = frozenset(locals_)
    sent: dict[Pair, list[FlowPath]] = defaultdict(list)
    returned: dict[Pair, list[FlowPath]] = defaultdict(list)
    for path in sorted(paths, key=lambda p: (p.index, p.flow)):
        if path.src_ip in own:
            sent[path.protocol, path.job, path.src_ip, path.dst_ip].append(path)
        if path.dst_ip in own:
            returned[path.protocol, path.job, path.dst_ip, path.src_ip].append(path)
    return {
        pair: PairPaths(tuple(sent.get(pair, ())), tuple(returned.get(pair, ())))
        for pair in sorted(sent.keys() | returned.keys())
    }


def format_socket_map(pairs: dict[Pair, PairPaths], ports: str = "") -> str:
    """The map as text. `ports`: those that connections may take, "LOW-HIGH,PORT,..."; empty: any."""
    lines = []
    for (protocol, job, local, peer), paths in pairs.items():
        for index in range(max(len(paths.sent), len(paths.returned))):
            there, back = paths.of_connection(index)
            either = there or back
            assert either is not None
            lines.append(
                f"{PROTOCOL_NAMES[protocol]} {shim_name(job)} {local} {peer} {index} {either.dscp} "
                f"{ports or '-'} {_conditions(there, reverse=False)} {_conditions(back, reverse=True)}"
            )
    return "\n".join([f"{HEADER}{len(lines)}", *lines]) + "\n"


def reports_path(path: Path) -> Path:
    """Where the shim sends its reports, beside the map at `path`."""
    return path.with_name(path.name + ".sock")


def shim_name(job: str) -> str:
    """A job's name without white space or other separators, as the map and the shim's environment have it."""
    return quote(job, safe="") if job != "*" else "%2A"


def _conditions(path: FlowPath | None, *, reverse: bool) -> str:
    """The conditions for (local port, peer's port): of a flow that comes back, the other way round."""
    if path is None or not path.conditions or len(path.conditions) > _MOST_CONDITIONS:
        return "-"
    swapped = ((d, s, odd) if reverse else (s, d, odd) for s, d, odd in path.conditions)
    return ",".join(f"{local:x}:{peer:x}:{int(odd)}" for local, peer, odd in swapped)
