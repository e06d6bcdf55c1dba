# SPDX-License-Identifier: Apache-2.0
"""Slots of the joint search as a schedule: who keeps step with whom, and the score of a link."""

from __future__ import annotations

import pytest

from controller.interleave.circle import SharedLink
from controller.interleave.joint.instance import UNSCHEDULED
from controller.model import Phase
from controller.planner.searched_slots import searched_schedule

MS = 1_000_000
G = 10**9


def a_link(*jobs: str, up_ms: int = 50) -> SharedLink:
    return SharedLink(("x", "y"), 50 * G, {j: (Phase(0, up_ms * MS, 50 * G),) for j in jobs})


def test_jobs_keep_step_if_their_periods_meet_again_soon() -> None:
    timings = {"a": (200 * MS, 0), "b": (100 * MS, 50 * MS), "c": UNSCHEDULED, "d": (150 * MS, 0)}
    made = searched_schedule(timings, [a_link("a", "b", "c", "d")], ["c"])
    assert {j: s.group for j, s in made.slots.items()} == {"a": 0, "b": 0, "d": 0}
    assert list(made.reasons) == ["c"]


def test_periods_that_never_meet_again_take_no_memory_and_are_groups_of_their_own() -> None:
    """The common multiple of these periods in ns is some months long: no circle holds it."""
    timings = {
        "a": (121_712_820, 0),
        "b": (121_712_820, 60 * MS),
        "c": (119_214_529, 0),
        "d": (119_214_529, 55 * MS),
    }
    made = searched_schedule(timings, [a_link("a", "b", "c", "d", up_ms=20)], [])
    assert {j: s.group for j, s in made.slots.items()} == {"a": 0, "b": 0, "c": 1, "d": 1}
    (fit,) = made.fits
    # Two pairs send for a third of the time each, and meet by chance: in a ninth of it both do.
    share = 40 / 121.712820 * 40 / 119.214529
    assert fit.score == pytest.approx(1 - share)
    assert fit.jobs == ("a", "b", "c", "d")


def test_one_job_of_a_group_on_a_link_with_another_group_keeps_its_slots() -> None:
    timings = {"a": (121_712_820, 0), "c": (119_214_529, 0)}
    made = searched_schedule(timings, [a_link("a", "c")], [])
    assert set(made.slots) == {"a", "c"}
