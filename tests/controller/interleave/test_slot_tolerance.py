# SPDX-License-Identifier: Apache-2.0
"""A late iteration waits for its next slot only where going on would cost the others more than waiting costs it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.interleave.slot_tolerance import LATEST, HeldJob, slot_tolerances
from hostagent.job_library.polyrhythm_job.schedule import Schedule, next_slot

PERIOD = 400
Parts = list[tuple[int, int]]


def row(parts: Parts) -> dict[int, HeldJob]:
    """Jobs whose bursts follow one another on a link, each as (burst, gap after it), on a circle of PERIOD."""
    held, at = {}, 0
    for number, (burst, gap) in enumerate(parts):
        held[number] = HeldJob(PERIOD, at, ((0, burst),))
        at += burst + gap
    return held


def reaches(held: dict[int, HeldJob], job: int, late: int) -> bool:
    """Whether the burst of a job that begins `late` lies on a burst of another one, instant by instant."""
    used = {
        (other.shift_ns + t) % PERIOD
        for name, other in held.items()
        if name != job
        for t in range(other.bursts[0][1])
    }
    own = held[job]
    return any((own.shift_ns + late + t) % PERIOD in used for t in range(own.bursts[0][1]))


@given(st.lists(st.tuples(st.integers(5, 60), st.integers(0, 80)), min_size=2, max_size=6))
def test_who_waits_would_have_cost_the_others_more(parts: Parts) -> None:
    while sum(burst + gap for burst, gap in parts) > PERIOD:
        parts = [(max(1, burst // 2), gap // 2) for burst, gap in parts]
    held = row(parts)
    found = slot_tolerances(held, [tuple(held)])
    for job in held:
        gap = next(late for late in range(PERIOD) if reaches(held, job, late + 1))
        schedule = Schedule(0, held[job].shift_ns, PERIOD, found[job].latest)
        for late in range(int(LATEST * PERIOD)):
            slot = next_slot(held[job].shift_ns + late, schedule)
            # Up to the gap it reaches nobody. After that the slots of all others move.
            at_once, waiting = (len(held) - 1) * max(0, late - gap), PERIOD - late
            if at_once != waiting:
                assert (slot.delay_ns == 0) == (at_once < waiting), (late, gap)
            assert slot.delay_ns in (0, waiting)


def test_a_job_nearer_to_its_next_slot_waits_for_it() -> None:
    """Whether it is late or early for the next one cannot be told from the time."""
    held = row([(50, 150), (50, 150)])
    (tolerance,) = {t.latest for t in slot_tolerances(held, [(0, 1)]).values()}
    assert tolerance == LATEST
    assert next_slot(201, Schedule(0, 0, PERIOD, tolerance)).delay_ns == 199
