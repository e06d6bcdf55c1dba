# SPDX-License-Identifier: Apache-2.0
"""Whether the machine carries a scenario in real time: by how long its jobs take when each is alone, and how
much of the machine's CPU time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyrhythm.scenario import Scenario

Profiles = Mapping[str, Mapping[str, Any]]
"""By job: `period_ns` and `phases`, as a session with each job alone reports them."""

TOO_SLOW = 1.1
"""A job whose iteration alone takes so many times what it should gets a note. Chosen: the agents' own work
lengthens the iterations of the shipped scenarios by 1 or 2 %."""

RAISE_AT = 1.04
"""From this on a larger scale is tried, which is less traffic. Chosen: jobs that are alone load the machine
less than all together."""

MOST_LOAD = 0.65
"""The part of the machine's CPU time that all jobs together may take. Above it a larger scale is tried.
Chosen: a virtual machine runs several times slower for 0.1 to 0.3 s now and then, while its host does other
work. With 0.75 that made iterations late by up to half of their period, with 0.5 by up to a third. One
measurement may be 0.15 too high."""

RAISE = 2.0
"""By what the scale is multiplied. Chosen: half the packets."""

MOST_RAISES = 3

_HELPS = 0.97
"""A larger scale helps if the slowest job then takes at most so much of what it took. Chosen: jobs whose own
flows share a link take as long at any scale, but for noise of 1 or 2 %."""

_UNLOADS = 0.9
"""It also helps if the load is at most so much of what it was, and no job takes clearly more: TCP may, whose
window is a few packets. Chosen: half the packets save a fifth or more, unless other programs make most of
the load."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How the machine carries a scenario.

    `job` is the one that alone takes the most `times` what it should ("", 0.0: no job has a profile). `load`
    is the part of the machine's CPU time that all jobs together would take (`load_together`).
    """

    job: str
    times: float
    load: float

    @property
    def too_slow(self) -> bool:
        """Whether a larger scale is worth a try."""
        return self.times >= RAISE_AT or self.load > MOST_LOAD

    def __str__(self) -> str:
        if self.times >= RAISE_AT:
            return f"alone {self.job} takes {self.times:.2f} times what it should"
        return f"all jobs together would take {100 * self.load:.0f}% of its CPU time"


def pace(scenario: Scenario, profiles: Profiles, load: float) -> Pace:
    """How the machine carries a scenario whose jobs have these profiles when each is alone, and this load.

    A job should take its nominal period, and longer by the headers of what it sends.
    """
    found = _times(scenario, profiles)
    name = max(found, key=found.__getitem__, default="")
    return Pace(name, found.get(name, 0.0), load)


def larger_scale_helps(before: Pace, after: Pace) -> bool:
    """Whether the slowest job takes clearly less than at the scale before, or as much, and all jobs take less
    CPU time.
    """
    if after.load <= _UNLOADS * before.load:
        return _HELPS * after.times <= before.times
    return after.times <= _HELPS * before.times


def _times(scenario: Scenario, profiles: Profiles) -> dict[str, float]:
    headers = scenario.frame_bytes / scenario.packet_bytes - 1
    return {
        w.job.name: profiles[w.job.name]["period_ns"]
        / (w.job.profile.period_ns + headers * w.job.profile.up_ns)
        for w in scenario.workloads
        if w.job.name in profiles
    }


def slow_machine(scenario: Scenario, profiles: Profiles) -> list[str]:
    """A note on each job whose measured profile says that the machine is too slow for the scenario.

    Its Up phases are then long and its rate is low, so that the jobs may not even contend for a link.
    """
    nominal = {w.job.name: w.job.profile.period_ns for w in scenario.workloads}
    return [
        f"the machine is too slow for this scenario, so the figures say little: alone {job} takes "
        f"{profiles[job]['period_ns'] / 1e6:.0f} ms instead of {nominal[job] / 1e6:.0f}; "
        f"end other work or raise --scale"
        for job, times in _times(scenario, profiles).items()
        if times > TOO_SLOW
    ]
