# SPDX-License-Identifier: Apache-2.0
"""How late an iteration may begin after its slot before it waits for the next one.

Waiting costs the job the rest of the period. Beginning at once costs it nothing more, but its bursts may then
overlap those of other jobs, until the slots of all have moved later (`controller/live/slot_drift.py`). The
evaluator of plans counts with the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Name = TypeVar("Name")
"""What jobs are called: by name, or by number."""
LATEST = 0.5
"""The most tolerance, as a part of the period. A phase later than that is nearer to its next slot."""
TOUCH = 0.01
"""Bursts that overlap by up to this part of the period only touch. Chosen: half of the slack of the plans."""
REST = 2
"""Slots that have moved by x do not move again for this many times x: a job that waits for its slot comes
nearer to it, however late the others are. Chosen: the least whole number that does it."""
SETTLE_NS = 5_000_000
"""Nor do they move for so long. Chosen: agents have them after the control delay
(1 ms in the embedded fabric), and packets in the queues are gone after a few more."""


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that is held to slots. Times in ns.

    `bursts` are start and end of its Up phases, from the slot on.
    """

    period_ns: int
    shift_ns: int
    bursts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SlotTolerance(Generic[Name]):
    """How late an iteration of a job may begin.

    Up to `gap_ns` its bursts reach no burst of another job. Beyond the part `latest` of its period it waits
    for its next slot. `group` are the jobs whose slots depend on one another, with the job itself.
    """

    gap_ns: int
    latest: float
    group: frozenset[Name]


def later_by(late: float, gap: float) -> float:
    """By how much slots move later for a job that begins `late` after its slot: it is then late by half of
    its gap.
    """
    return late - gap / 2


def slot_tolerances(
    held: Mapping[Name, HeldJob], sharing: Iterable[Sequence[Name]]
) -> Mapping[Name, SlotTolerance[Name]]:
    """How late each job may begin; without those that no lateness makes worse. `sharing` names the jobs on
    each link.

    A job may always be late by the smallest gap between one of its bursts and the next burst of another job
    on a link that both use. If it is later than the gap by x, the slots of all move later, so that each of n
    other jobs waits for x once. The job waits for its next slot if n x is more than the rest of the period.
    """
    links = [tuple(name for name in names if name in held) for names in sharing]
    groups = _groups(held, links)
    found = {}
    for name, own in held.items():
        others = {j for names in links if name in names for j in names} - {name}
        gaps = [gap for other in others if (gap := _gap(own, held[other])) is not None]
        if gaps:
            gap = min(gaps)
            latest = gap + (own.period_ns - gap) / (len(gaps) + 1)
            found[name] = SlotTolerance(gap, min(LATEST, latest / own.period_ns), groups[name])
    return found


def _groups(held: Iterable[Name], links: Iterable[Sequence[Name]]) -> Mapping[Name, frozenset[Name]]:
    """For each job those that share a link with it, with one of these, and so on, and itself."""
    groups = {name: frozenset([name]) for name in held}
    for names in links:
        joined = frozenset().union(*(groups[name] for name in names))
        groups.update(dict.fromkeys(joined, joined))
    return groups


def _gap(own: HeldJob, other: HeldJob) -> int | None:
    """The time (ns) by which a job may be late without a burst of it reaching one of another job's.

    None if bursts of the two overlap already, or if one of them sends nothing: being late changes little.
    """
    # The bursts of two periods meet at all distances that differ by multiples of their common divisor.
    apart = math.gcd(own.period_ns, other.period_ns)
    gaps = []
    for start, end in own.bursts:
        for other_start, other_end in other.bursts:
            after = (other_start + other.shift_ns - start - own.shift_ns) % apart
            gap = after - (end - start)
            overlap = max(-gap, after + other_end - other_start - apart)
            if overlap > TOUCH * apart:
                return None
            gaps.append(max(0, gap))
    return min(gaps, default=None)
