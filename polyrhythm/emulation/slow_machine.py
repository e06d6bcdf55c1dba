# SPDX-License-Identifier: Apache-2.0
"""Whether the machine carries a scenario in real time: by what its jobs take when each is alone."""

from __future__ import annotations

from collections.abc import Mapping
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

RAISE = 2.0
"""By what the scale is multiplied. Chosen: half the packets."""

MOST_RAISES = 3

_HELPS = 0.97
"""A larger scale helps if the slowest job then takes at most so much of what it took. Chosen: jobs whose own
flows share a link take as long at any scale, but for noise of 1 or 2 %."""


def slowest(scenario: Scenario, profiles: Profiles) -> tuple[str, float]:
    """The job that alone takes the most times what it should, and how many times; ("", 0.0) without profiles.

    It should take its nominal period, and longer by the headers of what it sends.
    """
    found = _times(scenario, profiles)
    name = max(found, key=found.__getitem__, default="")
    return name, found.get(name, 0.0)


def _times(scenario: Scenario, profiles: Profiles) -> dict[str, float]:
    headers = scenario.frame_bytes / scenario.packet_bytes - 1
    return {
        w.job.name: profiles[w.job.name]["period_ns"]
        / (w.job.profile.period_ns + headers * w.job.profile.up_ns)
        for w in scenario.workloads
        if w.job.name in profiles
    }


def larger_scale_helps(before: float, after: float) -> bool:
    """Whether the slowest job takes clearly less than at the scale before."""
    return after <= _HELPS * before


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
