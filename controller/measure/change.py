# SPDX-License-Identifier: Apache-2.0
"""Whether a job still does what it was measured doing.

Only what congestion cannot change is looked at: the bytes of an iteration, and its time without
communication. That iterations got longer may be the network's doing; that they carry other bytes is not.
"""

from __future__ import annotations

from collections import deque
from statistics import median

AGREEING = 3
"""So many iterations in a row must differ, and alike: one straggler is no change of pattern."""
BYTES_OFF = 0.02
QUIET_OFF = 0.05
"""Parts by which bytes, and time without communication, may vary without a change of pattern."""


class ChangeDetector:
    """Compares iterations with the measured one: `sent` bytes and `quiet_ns` without communication."""

    def __init__(self, sent: float, quiet_ns: float, agreeing: int = AGREEING) -> None:
        self._sent = sent
        self._quiet_ns = quiet_ns
        self._last: deque[tuple[float, float]] = deque(maxlen=agreeing)

    def add(self, sent: float, quiet_ns: float) -> bool:
        """An iteration. True once the last ones all differ from the measured one in the same way; then it
        begins to count anew."""
        self._last.append((sent, quiet_ns))
        if len(self._last) < (self._last.maxlen or 1) or not all(self._differs(*seen) for seen in self._last):
            return False
        usual = (median(s for s, _ in self._last), median(q for _, q in self._last))
        alike = all(not self._off(*seen, *usual) for seen in self._last)
        if alike:
            self._last.clear()
        return alike

    def _differs(self, sent: float, quiet_ns: float) -> bool:
        return self._off(sent, quiet_ns, self._sent, self._quiet_ns)

    def _off(self, sent: float, quiet_ns: float, usual: float, usual_ns: float) -> bool:
        off_ns = abs(quiet_ns - usual_ns)
        return abs(sent - usual) > BYTES_OFF * usual or off_ns > QUIET_OFF * usual_ns
