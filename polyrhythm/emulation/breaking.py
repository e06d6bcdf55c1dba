# SPDX-License-Identifier: Apache-2.0
"""Failures on the Mininet fabric: interfaces go down, and a switch that is powered off loses all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from polyrhythm.fabric.failures import Failure
from topo.mininet import MininetFabric, port_interface


class Breaker:
    """Breaks what is asked for, when it is due, counted from `start`; `poll` does the work."""

    def __init__(self, network: MininetFabric, failures: Sequence[Failure]) -> None:
        self.notes: list[str] = []
        self._network = network
        self._due: list[tuple[int, bool, Failure]] = []
        for failure in failures:
            self._due.append((failure.at_ns, False, failure))
            if failure.until_ns is not None:
                self._due.append((failure.until_ns, True, failure))
        self._due.sort(key=lambda item: item[:2])
        self._begun_ns = 0

    def start(self) -> None:
        """Time counts from now."""
        self._begun_ns = time.monotonic_ns()

    def poll(self) -> None:
        """Take down and up again what is due."""
        while self._begun_ns and self._due and time.monotonic_ns() - self._begun_ns >= self._due[0][0]:
            _, up, failure = self._due.pop(0)
            for switch, port in failure.ends:
                argv = ["ip", "link", "set", "dev", port_interface(port), "up" if up else "down"]
                self._network.run(switch, argv)
            self.notes.append(f"{failure.what} {'is back' if up else 'went down'}")
