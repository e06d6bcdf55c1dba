# SPDX-License-Identifier: Apache-2.0
"""Failures of switches and cables during a run: what fails, and when."""

from __future__ import annotations

from dataclasses import dataclass

from topo.graph import Topology

End = tuple[str, int]

_NS_PER_MS = 1_000_000


class FailureError(ValueError):
    """A failure that the fabric cannot have. The message is one line and says what is legal."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A switch, the cables between two switches, or one cable, that is down from `at_ns` to `until_ns`.

    `what` is NODE, A:B or A:PORT. `until_ns` None means for good. `ends` are the ports that go down, on both
    sides.
    """

    what: str
    at_ns: int
    until_ns: int | None
    ends: tuple[End, ...]

    @property
    def switch(self) -> str | None:
        """The switch that is powered off; None for a cable."""
        return None if ":" in self.what else self.what


def parse_failure(text: str, topology: Topology) -> Failure:
    """Read NODE@MS, NODE@MS-MS, A:B@MS or A:B@MS-MS.

    Raises:
        FailureError: the text has another form, names no switch or two switches without a cable, or the times
            are not in order.
    """
    what, at, times = text.partition("@")
    begin, dash, end = times.partition("-")
    if not at or not begin.isdecimal() or (dash and not end.isdecimal()):
        raise FailureError(
            f"{text}: not a failure; legal: NODE@MS or A:B@MS, for example spine2@3000 or "
            f"leaf1:spine2@3000-3500"
        )
    try:
        return failure_of(what, int(begin), int(end) if dash else None, topology)
    except FailureError as error:
        raise FailureError(f"{text}: {error}") from None


def failure_of(what: str, at_ms: float, repair_ms: float | None, topology: Topology) -> Failure:
    """The failure of a switch NODE, of the cables A:B, or of the cable at A:PORT.

    It lasts from `at_ms` to `repair_ms` (None: for good).

    Raises:
        FailureError: no such switch, two switches without a cable, or times that are not in order.
    """
    a, colon, b = what.partition(":")
    at_port = int(b) if b.isdecimal() and b not in topology.switch else None
    for node in (a, b) if colon and at_port is None else (a,):
        if node not in topology.switch:
            raise FailureError(
                f"{node!r} is no switch of {topology.name}; legal: {', '.join(topology.switch)}"
            )
    if repair_ms is not None and repair_ms <= at_ms:
        raise FailureError("the second time must be later than the first")
    ends: list[End] = []
    for port, peer in topology.ports[a].items():
        if peer.node == b or not colon or port == at_port:
            ends.append((a, port))
            if peer.node in topology.switch:
                ends.append((peer.node, peer.port))
    if at_port is not None and len(ends) < len((a, b)):
        raise FailureError(f"no cable to a switch at port {at_port} of {a}")
    if colon and not ends:
        legal = ", ".join(dict.fromkeys(p.node for p in topology.ports[a].values() if p.port))
        raise FailureError(f"no cable joins {a} and {b}; {a} is joined to {legal}")
    until = None if repair_ms is None else round(repair_ms * _NS_PER_MS)
    return Failure(what, round(at_ms * _NS_PER_MS), until, tuple(ends))
