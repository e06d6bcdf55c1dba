# SPDX-License-Identifier: Apache-2.0
"""The slots of a job: when its communication phases may begin."""

from __future__ import annotations

from dataclasses import dataclass

REALIGN_THRESHOLD = 0.05
"""Part of a period that a communication phase may begin late before it waits for its next slot. The CASSINI
thesis (4.4.2, step 3) measures the drift on each server and adjusts; the figure is the authors' later one."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The slots of a job: times t with (t - epoch) mod period == shift and t >= epoch + shift.

    Times are fabric time in ns. `period_ns` 0 means that the job has no slots. `realign` is the part of the
    period that a phase may begin late. With `once` only the first iteration waits for its slot. Later ones
    keep their own pace until one is further than `realign` from its slot, early or late (CASSINI thesis
    4.4.2, step 3).
    """

    epoch_ns: int
    shift_ns: int
    period_ns: int
    realign: float = REALIGN_THRESHOLD
    once: bool = False

    def keeps(self, other: Schedule | None) -> bool:
        """Whether `other` has the same slots, up to the small corrections of a host's clock."""
        if other is None or (self.period_ns, self.once) != (other.period_ns, other.once):
            return False
        if self.period_ns <= 0:
            return True
        apart = (self.epoch_ns + self.shift_ns - other.epoch_ns - other.shift_ns) % self.period_ns
        return min(apart, self.period_ns - apart) <= REALIGN_THRESHOLD * self.period_ns


UNSCHEDULED = Schedule(0, 0, 0)
"""The schedule of a job without slots."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What a communication phase that is ready does: it waits `delay_ns`, then begins `drift_ns` after its
    slot. `realigned`: it would have begun too late, and waits for the next slot."""

    delay_ns: int = 0
    drift_ns: int = 0
    realigned: bool = False


def next_slot(now: int, schedule: Schedule, error_ns: int = 0, *, kept: bool = False) -> Slot:
    """The slot of a communication phase that is ready at fabric time `now`, known to +- `error_ns`.

    A phase that is at its slot, or late by at most `realign` of the period, begins at once. Any other waits
    for the next slot (CASSINI thesis 4.4.2, step 3). With a schedule of `once` that was `kept` since the
    last iteration, a phase that is early by at most that much begins at once too. A host whose clock error
    is larger than the tolerance cannot keep slots, so its phases begin at once.
    """
    period = schedule.period_ns
    own_pace = schedule.once and kept
    tolerance = (
        schedule.realign if own_pace or not schedule.once else min(schedule.realign, REALIGN_THRESHOLD)
    )
    if period <= 0 or error_ns > tolerance * period:
        return Slot()
    offset = now - schedule.epoch_ns - schedule.shift_ns
    if offset < 0 and not own_pace:
        return Slot(-offset)
    offset %= period
    if offset <= tolerance * period:
        return Slot(0, offset)
    if own_pace:
        early = period - offset
        return Slot() if early <= tolerance * period else Slot(early, 0, True)
    # In the first half of the period the phase counts as late for the slot before, so it has lost that slot.
    return Slot(period - offset, 0, offset < period / 2)
