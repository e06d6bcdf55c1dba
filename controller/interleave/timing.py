# SPDX-License-Identifier: Apache-2.0
"""The protocol of a policy's timing, and the built-in timings: when each job communicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from controller.interleave.cassini import shift_once
from controller.interleave.circle import SharedLink
from controller.interleave.slot_schedule import SlotSchedule, schedule_slots
from controller.wire.senders import SENDERS, canonical_sender

FREE_CHOICE = "job"
"""Each job's own choice of congestion control."""
SENDER_CHOICES = (FREE_CHOICE, *SENDERS)
"""What a plan may set as the congestion control of the jobs' senders."""


def sender_choice(name: str) -> str:
    """The canonical form of a choice. Raises ValueError, with the legal ones, for any other text."""
    if name == FREE_CHOICE:
        return name
    try:
        return canonical_sender(name)
    except ValueError as error:
        raise ValueError(f"{error}, {FREE_CHOICE}") from None


@dataclass(frozen=True, slots=True)
class TimingProblem:
    """The directed links that several measured jobs use, with each job's demand, and the jobs' periods in ns.

    `order` names the jobs, the most urgent first. `previous` holds (period, shift) in ns by job, counted
    from the new plan's epoch. A link counts as full where demand exceeds its rate by more than `slack`.
    """

    links: tuple[SharedLink, ...]
    periods: Mapping[str, int]
    order: tuple[str, ...]
    previous: Mapping[str, tuple[int, int]]
    slack: float
    seed: int


@runtime_checkable
class Timing(Protocol):
    """When each job communicates. Subclass it as a frozen dataclass whose fields are the timing's options.

    The properties have defaults, which a subclass overrides by a field or a property of the same name.
    """

    def schedule(self, problem: TimingProblem) -> SlotSchedule:
        """A period and a time-shift for the jobs that get one; all others run at their own pace."""

    @property
    def sender(self) -> str:
        """The congestion control that the plan sets on all jobs' senders: one of SENDER_CHOICES."""
        return FREE_CHOICE

    @property
    def sets_shifts(self) -> bool:
        """False for a timing that shifts no job."""
        return True

    @property
    def holds_slots(self) -> bool:
        """Whether every iteration of a scheduled job starts in its slot, so that two jobs can count on
        sharing a link in time when paths are chosen."""
        return False


@dataclass(frozen=True)
class _SenderTiming(Timing):
    """A timing with the option `sender`."""

    sender: str = FREE_CHOICE

    def __post_init__(self) -> None:
        # The canonical form, so that two names of one congestion control make equal policies.
        object.__setattr__(self, "sender", sender_choice(self.sender))


@dataclass(frozen=True)
class OwnPace(_SenderTiming):
    """Shifts no job."""

    def schedule(self, problem: TimingProblem) -> SlotSchedule:
        """An empty schedule: no job has a slot."""
        return SlotSchedule({}, {}, (), ())

    @property
    def sets_shifts(self) -> bool:
        """Every job runs at its own pace."""
        return False


@dataclass(frozen=True)
class Circles(_SenderTiming):
    """Jobs that gain by sharing links in time keep to slots in every iteration; loops are allowed."""

    def schedule(self, problem: TimingProblem) -> SlotSchedule:
        """Slots for the jobs that all fit (`schedule_slots`)."""
        return schedule_slots(
            problem.links,
            problem.periods,
            list(problem.order),
            previous=problem.previous,
            slack=problem.slack,
            seed=problem.seed,
        )

    @property
    def holds_slots(self) -> bool:
        """Each iteration starts in its slot."""
        return True


@dataclass(frozen=True)
class Cassini(_SenderTiming):
    """CASSINI as published: every job of a full link is shifted once and then runs at its own pace."""

    def schedule(self, problem: TimingProblem) -> SlotSchedule:
        """One shift a job (`shift_once`)."""
        return shift_once(
            problem.links,
            problem.periods,
            previous=problem.previous,
            slack=problem.slack,
            seed=problem.seed,
        )
