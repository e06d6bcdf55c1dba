# SPDX-License-Identifier: Apache-2.0
"""Fabric time on a host: NTP's exchange with the controller, with a bound of the error."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

KEPT = 16
"""The number of last exchanges that count. Chosen: about a minute at the default interval."""
DRIFT_PPM = 200.0
"""The assumed drift between two clocks until exchanges show a smaller one: a quartz has up to 100 ppm."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The offset from the host's time to fabric time at `local_ns`, exact to +- `error_ns` at that moment."""

    local_ns: int
    offset_ns: float
    error_ns: float


class FabricTime:
    """Converts between the host's time and fabric time.

    An exchange bounds the error of the offset by half of its round trip, even if its two directions take
    unequal times. Older exchanges count with the drift since, so the best exchange is one with a short round
    trip or a recent one. `shared`: the host's clock shows fabric time itself, and no exchange is needed.
    """

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared
        self._exchanges: deque[_Exchange] = deque(maxlen=KEPT)
        self._best = _Exchange(0, 0.0, 0.0)
        self._rate = 0.0
        self._drift = 0.0

    @property
    def known(self) -> bool:
        """Whether fabric time is known."""
        return self.shared or bool(self._exchanges)

    def add(self, sent: int, received: int, replied: int, arrived: int) -> None:
        """Add an exchange: `sent` and `arrived` are the host's times, `received` and `replied` fabric times.

        An exchange that took less time than the controller had it (its clock jumped) is ignored.
        """
        trip = (arrived - sent) - (replied - received)
        if self.shared or trip < 0 or arrived < sent:
            return
        offset = ((received - sent) + (replied - arrived)) / 2
        # The clock drifts during the exchange too.
        fresh = _Exchange(arrived, offset, trip / 2 + DRIFT_PPM / 1e6 * (arrived - sent))
        if self._exchanges and not self._agrees(fresh):
            # One of the two clocks was set: earlier exchanges are wrong now.
            self._exchanges.clear()
        self._exchanges.append(fresh)
        self._choose(arrived)

    def to_fabric(self, local_ns: int) -> int:
        """Fabric time when the host's clock shows `local_ns`."""
        best = self._best
        return local_ns + round(best.offset_ns + self._rate * (local_ns - best.local_ns))

    def to_local(self, fabric_ns: int) -> int:
        """What the host's clock shows at that fabric time."""
        best = self._best
        gone = (fabric_ns - best.local_ns - best.offset_ns) / (1 + self._rate)
        return best.local_ns + round(gone)

    def error_ns(self, local_ns: int) -> int:
        """The bound of the error of `to_fabric` at that time, in ns."""
        best = self._best
        return round(best.error_ns + self._drift * abs(local_ns - best.local_ns))

    def _agrees(self, fresh: _Exchange) -> bool:
        last = self._exchanges[-1]
        may = fresh.error_ns + last.error_ns + 2 * DRIFT_PPM / 1e6 * abs(fresh.local_ns - last.local_ns)
        return abs(fresh.offset_ns - last.offset_ns) <= may

    def _choose(self, now: int) -> None:
        """Estimate the drift between the clocks where exchanges show it, and choose the exchange with the
        least error.
        """
        first, last = self._exchanges[0], self._exchanges[-1]
        apart = last.local_ns - first.local_ns
        loose = DRIFT_PPM / 1e6
        tight = (first.error_ns + last.error_ns) / apart if apart > 0 else loose
        if tight < loose:
            self._rate, self._drift = (last.offset_ns - first.offset_ns) / apart, tight
        else:
            self._rate, self._drift = 0.0, loose
        self._best = min(self._exchanges, key=lambda e: e.error_ns + self._drift * (now - e.local_ns))
