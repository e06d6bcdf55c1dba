# SPDX-License-Identifier: Apache-2.0
"""Which iterations of a measurement count: those that nothing disturbed, and that are like the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

SETTLE_NS = 5_000_000
"""A change of the plan disturbs iterations until this long after it is made. Chosen: agents have it after the
control delay (1 ms in the embedded fabric), and packets in the queues are gone after a few more."""
_SPREADS = 3.0
"""An iteration is unlike the others beyond this many standard deviations. Chosen: the usual three sigma."""
_DEVIATION = 1.4826
"""A standard deviation in median absolute deviations (normal distribution)."""
_LEAST_LENGTH = 0.05
_LEAST_BYTES = 0.02
"""Deviations below these parts of an iteration's length and bytes are no difference. Chosen: their usual
variation, as in `controller/measure/change.py`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One iteration of one worker, as reported; times in ns of fabric time."""

    rank: int
    index: int
    start_ns: int
    end_ns: int
    held_ns: int
    communication_ns: int
    compute_ns: int
    bytes_sent: int
    flops: float

    @property
    def own_ns(self) -> int:
        """The length of the iteration without the time that its schedule delayed it."""
        return self.end_ns - self.start_ns - self.held_ns

    @property
    def quiet_ns(self) -> int:
        """The time in which the worker neither communicated nor waited for its slot."""
        return self.own_ns - self.communication_ns


def counting(samples: Sequence[Sample], changes_ns: Sequence[int]) -> tuple[Sample, ...]:
    """The samples of the iterations that count, of all ranks, in their order.

    `changes_ns` are the times at which the plan changed the level, path or shift of the job or of a job that
    shares a link with it: iterations that overlap one are left out. So are iterations whose length, bytes or
    time without communication (of rank 0) differ from the median by more than three standard deviations,
    where those come from the median deviation and are at least the usual variation.
    """
    calm = [s for s in samples if s.rank == 0 and not _disturbed(s, changes_ns)]
    if not calm:
        return ()
    length = median(s.own_ns for s in calm)
    limits = (
        _limits([s.own_ns for s in calm], _LEAST_LENGTH * length),
        _limits([s.quiet_ns for s in calm], _LEAST_LENGTH * length),
        _limits([s.bytes_sent for s in calm], _LEAST_BYTES * median(s.bytes_sent for s in calm)),
    )
    kept = {
        s.index
        for s in calm
        if all(
            low <= value <= high
            for value, (low, high) in zip((s.own_ns, s.quiet_ns, s.bytes_sent), limits, strict=True)
        )
    }
    return tuple(s for s in samples if s.index in kept)


def _disturbed(sample: Sample, changes_ns: Sequence[int]) -> bool:
    return any(sample.start_ns < at + SETTLE_NS and at < sample.end_ns for at in changes_ns)


def _limits(values: Sequence[float], least: float) -> tuple[float, float]:
    middle = median(values)
    reach = max(least, _SPREADS * _DEVIATION * median(abs(v - middle) for v in values))
    return middle - reach, middle + reach
