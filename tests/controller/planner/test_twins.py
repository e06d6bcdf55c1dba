# SPDX-License-Identifier: Apache-2.0
"""Twins: jobs whose measured profiles differ by less than their confidence get one profile and one kind of plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop_rig import MS, RATE, job

from controller.model import Confidence, Job, Measurement, Phase, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.planner.twins import twin_profiles
from topo.generate import leaf_spine

FABRIC = leaf_spine(2, 1, 4, host_bps=RATE, fabric_bps=RATE)


def measured(name: str, hosts: list[str], period: int, up: int, half_width: float | None) -> Job:
    """A job measured to +- `half_width` ms."""
    width = None if half_width is None else round(half_width * MS)
    known = None if width is None else Confidence(width, ((width, width),))
    own = job(name, hosts, period, up)
    return replace(own, measured=Measurement(6, up * MS, (period - up) * MS, None, "iterations", known))


def test_noisy_twins_share_slots_and_not_levels() -> None:
    """305 and 287 ms for what is one period fit no common period, and became two levels."""
    twins = (measured("a", ["h1", "h5"], 305, 140, 12), measured("b", ["h2", "h6"], 287, 132, 12))
    assert twin_profiles(twins) == {"b": "a"}
    made = plan(PlanInput(FABRIC, twins, POLICIES["polyrhythm"], 0))
    assert made.jobs["a"].period_ns == made.jobs["b"].period_ns
    assert made.jobs["a"].period_ns is not None
    assert made.jobs["a"].level == made.jobs["b"].level
    assert "planned with the profile of its twin a" in made.jobs["b"].why
    assert "twin" not in made.jobs["a"].why


def test_declared_profiles_of_twins_may_differ_a_little() -> None:
    """Each was measured on its own: with 203.44 and 202.96 ms one of two twins got a lower level."""
    a, b, c = (
        replace(
            job(n, ["h1", "h5"], 203, 114), profile=Profile(round(t * MS), (Phase(0, round(u * MS), RATE),))
        )
        for n, t, u in (("a", 203.44, 114.08), ("b", 202.96, 113.96), ("c", 209.0, 114.08))
    )
    assert twin_profiles((a, b, c)) == {"b": "a"}


def test_declared_periods_that_were_corrected_differ_by_what_the_corrections_are_known_to() -> None:
    a, b = (job(n, ["h1", "h5"], period, 120) for n, period in (("a", 266), ("b", 260)))
    assert twin_profiles((a, b)) == {}
    assert twin_profiles((replace(a, corrected_half_width_ns=4 * MS), b)) == {"b": "a"}
    assert twin_profiles((replace(a, corrected_half_width_ns=2 * MS), b)) == {}


@pytest.mark.parametrize(
    "other",
    [
        measured("b", ["h2", "h6"], 287, 132, 3),
        measured("b", ["h2", "h6"], 280, 132, None),
        replace(measured("b", ["h2", "h6"], 305, 140, 12), gpus=4),
        replace(measured("b", ["h2", "h6"], 300, 140, 12), model="another"),
        replace(measured("b", ["h2", "h6"], 300, 140, 12), sender="reno"),
        replace(
            measured("b", ["h2", "h6"], 305, 140, 12),
            profile=Profile(305 * MS, (Phase(0, 140 * MS, RATE // 2),)),
        ),
        job("b", ["h2", "h6"], 287, 132),
        replace(job("b", ["h2", "h6"], 287, 132), profile=Profile(0, ())),
    ],
)
def test_jobs_that_differ_are_no_twins(other: Job) -> None:
    assert twin_profiles((measured("a", ["h1", "h5"], 305, 140, 8), other)) == {}


def test_policies_of_papers_take_profiles_as_they_are() -> None:
    twins = (measured("a", ["h1", "h5"], 305, 140, 12), measured("b", ["h2", "h6"], 287, 132, 12))
    made = plan(PlanInput(FABRIC, twins, POLICIES["crux"], 0))
    assert "twin" not in made.jobs["b"].why
