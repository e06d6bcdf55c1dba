# SPDX-License-Identifier: Apache-2.0
"""Failures on the Mininet fabric: interfaces go down, and the process of a dead switch ends."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from polyrhythm.emulation.sniffing import PortChange, Sniffer
from polyrhythm.emulation.switches import Switches
from polyrhythm.fabric.failover_watch import FailoverReport
from polyrhythm.scenario.failures import Failure
from topo.mininet import MininetFabric

_AFTER_NS = 5_000_000_000
"""How long after a failure packets are captured. Chosen: above the time to detect a failure and plan again.
"""
_TABLES_NS = 500_000_000
"""How long after its pipeline a switch has its tables. Chosen: the controller writes them at once."""


class FailureInjector:
    """Causes the failures when they are due, and records what flows do. `poll` does the work.

    It captures packets at the neighbours of a failure, from `before_ns` before it. That must be long enough
    for each flow to send once.
    """

    def __init__(
        self, network: MininetFabric, switches: Switches, failures: Sequence[Failure], *, before_ns: int
    ) -> None:
        self.notes: list[str] = []
        self._network = network
        self._switches = switches
        self._before_ns = before_ns
        self._failures = failures
        self._due: list[tuple[int, bool, Failure]] = []
        for failure in failures:
            self._due.append((failure.at_ns, False, failure))
            if failure.until_ns is not None:
                self._due.append((failure.until_ns, True, failure))
        self._due.sort(key=lambda item: item[:2])
        self._begun_ns = 0
        self._sniffers: dict[str, Sniffer] = {}
        self._changes: list[PortChange] = []
        self._broken: list[tuple[int, Failure]] = []
        # Switches that are on again, with the time at which the controller had given them a pipeline.
        self._booting: dict[Failure, int | None] = {}

    def start(self, begun_ns: int) -> None:
        """Begin to count time at `begun_ns` of the monotonic clock."""
        self._begun_ns = begun_ns

    def poll(self) -> None:
        """Take interfaces down and up when they are due, and read what the neighbouring switches sent."""
        if not self._begun_ns:
            return
        now = time.monotonic_ns() - self._begun_ns
        self._listen(now)
        for sniffer in self._sniffers.values():
            self._changes += sniffer.changes()
        while self._due and now >= self._due[0][0]:
            _, up, failure = self._due.pop(0)
            if up:
                self._repair(failure)
            else:
                self._broken.append((time.monotonic_ns(), failure))
                if failure.switch is not None:
                    self._switches.power_off(failure.switch)
                for end in failure.ends:
                    self._switches.cut(end)
                self.notes.append(f"{failure.what} went down")
        self._bring_up_programmed(time.monotonic_ns())

    def failovers(self, moves_ns: Sequence[int]) -> list[Mapping[str, Any]]:
        """One report for each failure so far. `moves_ns` are the times at which agents received new paths."""
        return [after_failure(f, at, self._changes, moves_ns).to_json() for at, f in self._broken]

    def close(self) -> None:
        """Stop the capture."""
        for sniffer in self._sniffers.values():
            sniffer.close()
        self._sniffers.clear()

    def _repair(self, failure: Failure) -> None:
        """End a failure. The ports of a switch stay down until the controller has written its tables."""
        if failure.switch is None:
            self._mend(failure)
        else:
            self._switches.power_on(failure.switch)
            self._booting[failure] = None

    def _bring_up_programmed(self, now_ns: int) -> None:
        for failure, since_ns in list(self._booting.items()):
            assert failure.switch is not None
            if since_ns is None:
                if self._switches.programmed(failure.switch):
                    self._booting[failure] = now_ns
            elif now_ns >= since_ns + _TABLES_NS:
                del self._booting[failure]
                self._mend(failure)

    def _mend(self, failure: Failure) -> None:
        for end in failure.ends:
            self._switches.mend(end)
        self.notes.append(f"{failure.what} came up again")

    def _listen(self, now: int) -> None:
        near = {
            switch
            for failure in self._failures
            if failure.at_ns - self._before_ns <= now <= failure.at_ns + _AFTER_NS
            for switch, _ in failure.ends
            if switch != failure.switch
        }
        for switch in self._sniffers.keys() - near:
            self._sniffers.pop(switch).close()
        for switch in sorted(near - self._sniffers.keys()):
            self._sniffers[switch] = Sniffer(self._network, switch)


def after_failure(
    failure: Failure, at_ns: int, changes: Sequence[PortChange], moves_ns: Sequence[int]
) -> FailoverReport:
    """The report of a failure that happened at `at_ns`.

    It covers the flows that left living switches by the dead ports at that time. Lost packets are not
    counted: the kernel refuses packets for an interface that is down, and no switch reports it.
    """
    outcome = FailoverReport(failure, lost=None)
    living = {end for end in failure.ends if end[0] != failure.switch}
    ordered = sorted(changes, key=lambda change: change.at_ns)
    last = {(c.switch, c.flow): (c.switch, c.port) for c in ordered if c.at_ns <= at_ns}
    for change in ordered:
        cut = last.get((change.switch, change.flow)) in living
        if change.at_ns > at_ns and cut and (change.switch, change.port) not in living:
            outcome.backup_ns = change.at_ns - at_ns
            break
    for heard in sorted(moves_ns):
        if heard > at_ns:
            outcome.heard(heard - at_ns)
    return outcome
