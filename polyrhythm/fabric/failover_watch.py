# SPDX-License-Identifier: Apache-2.0
"""Measures how soon packets use another path after a failure of a switch or cable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bmv2 import EmbeddedSwitch
from hostagent.nic.roce import ETHERTYPE_IPV4, ETHERTYPE_IPV6
from polyrhythm.fabric.heap import EventHeap
from polyrhythm.scenario.failures import Failure

_NS_PER_MS = 1_000_000
# New paths that agents receive within this time of each other belong to the same failure. Chosen: well above
# the 1 ms control delay, well below the time of a planned change.
_SAME_FAILURE_NS = 20 * _NS_PER_MS
_FLOW = {ETHERTYPE_IPV4: slice(26, 38), ETHERTYPE_IPV6: slice(22, 58)}
"""Where a frame has its addresses and UDP ports, by its Ethernet type."""


@dataclass(slots=True)
class FailoverReport:
    """What happened to the flows that a failure cut off. Times are in ns after the failure; None: never.

    `backup_ns`: the first packet of such a flow has left a living switch by another port. `reassigned_ns`:
    agents received the first and the last new path from the controller. `lost` is the number of packets lost
    at the dead ports; None: nothing counts them. Without `watched` nothing has looked at the packets before
    the failure, so `backup_ns` is not known.
    """

    failure: Failure
    backup_ns: int | None = None
    reassigned_ns: tuple[int, int] | None = None
    lost: int | None = 0
    watched: bool = True

    def heard(self, after_ns: int) -> None:
        """An agent received a new path. One that arrives much later than the last has another cause."""
        first, last = self.reassigned_ns or (after_ns, after_ns)
        if after_ns - last <= _SAME_FAILURE_NS:
            self.reassigned_ns = first, after_ns

    def to_json(self) -> Mapping[str, Any]:
        """The report as JSON values, times in ms."""
        first, last = self.reassigned_ns or (None, None)
        return {
            "what": self.failure.what,
            "at_ms": self.failure.at_ns / _NS_PER_MS,
            "until_ms": _ms(self.failure.until_ns),
            "watched": self.watched,
            "backup_ms": _ms(self.backup_ns),
            "first_reassigned_ms": _ms(first),
            "last_reassigned_ms": _ms(last),
            "packets_lost": self.lost,
        }


@dataclass(slots=True)
class FailoverWatch:
    """Records by which port each flow leaves the switches of future failures, and measures the failovers.

    It watches only these switches, so a run without failures has no overhead. Of other failures it knows less
    (`FailoverReport.watched`).
    """

    heap: EventHeap
    switches: Mapping[str, EmbeddedSwitch]
    failures: tuple[Failure, ...]
    outcomes: list[FailoverReport] = field(default_factory=list)
    _last: dict[str, dict[bytes, int]] = field(default_factory=lambda: defaultdict(dict))
    _cut: dict[tuple[str, bytes], tuple[FailoverReport, int]] = field(default_factory=dict)
    _drops: dict[int, int] = field(default_factory=dict)

    @property
    def watched(self) -> frozenset[str]:
        """The switches that have a port of a failure."""
        return frozenset(switch for f in self.failures for switch, _ in f.ends)

    def tap(self, switch: str, port: int, transmit: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """Wrap `transmit` of a switch's port, to look at each frame that leaves by it."""
        return partial(self._leaving, switch, port, transmit)

    def began(self, failure: Failure) -> None:
        """A failure is about to begin."""
        outcome = FailoverReport(failure, watched=failure in self.failures)
        self.outcomes.append(outcome)
        self._drops[id(outcome)] = self._dropped(failure)
        for switch, port in failure.ends:
            if switch != failure.switch:
                for flow, last in self._last.get(switch, {}).items():
                    if last == port:
                        self._cut[switch, flow] = outcome, port

    def reassigned(self) -> None:
        """An agent received a new path of a flow."""
        for outcome in self.outcomes:
            outcome.heard(self.heap.now - outcome.failure.at_ns)

    def results(self) -> list[Mapping[str, Any]]:
        """The reports so far, as JSON values."""
        for outcome in self.outcomes:
            outcome.lost = self._dropped(outcome.failure) - self._drops[id(outcome)]
        return [outcome.to_json() for outcome in self.outcomes]

    def _leaving(self, switch: str, port: int, transmit: Callable[[bytes], None], frame: bytes) -> None:
        ends = _FLOW.get(frame[12:14])
        if ends is not None:
            flow = frame[ends]
            self._last[switch][flow] = port
            if self._cut:
                outcome, dead = self._cut.get((switch, flow), (None, 0))
                if outcome is not None and port != dead:
                    del self._cut[switch, flow]
                    if outcome.backup_ns is None:
                        outcome.backup_ns = self.heap.now - outcome.failure.at_ns
        transmit(frame)

    def _dropped(self, failure: Failure) -> int:
        return sum(
            queue.drops for switch, port in failure.ends for queue in self.switches[switch].ports[port].queues
        )


def _ms(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / _NS_PER_MS
