# SPDX-License-Identifier: Apache-2.0
"""When the measured steps of jobs that report begin."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest

from polyrhythm.paper.real_training import runs
from polyrhythm.paper.real_training.cluster import Rank, TrainingCluster
from topo.mininet import MininetError


class Warming:
    """A rank that takes a step whenever somebody looks."""

    def __init__(self, steps: int, ends_at: int = 10**9) -> None:
        self.steps, self.ends_at, self.told = steps, ends_at, 0

    def warm_up_steps(self) -> int:
        self.steps += 1
        if self.steps > self.ends_at:
            raise MininetError("a rank ended with 1")
        return self.steps

    def end_warm_up(self, number: int) -> None:
        self.told = number


class Planning:
    """A cluster that says `why` for some looks."""

    def __init__(self, why: list[str]) -> None:
        self.why, self.looks = why, 0

    def unplanned(self, jobs: Collection[str], *, slots: bool) -> str:
        assert (sorted(jobs), slots) == (["a", "b"], True)
        self.looks += 1
        return self.why[min(self.looks, len(self.why)) - 1]


def warm_up(planning: Planning, ranks: dict[str, list[Warming]]) -> Any:
    return runs._warm_up(cast(TrainingCluster, planning), cast("dict[str, list[Rank]]", ranks), True)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_LOOK_S", 0.0)


def test_the_measured_steps_begin_when_the_plan_is_in_force() -> None:
    ranks = {"a": [Warming(3), Warming(4)], "b": [Warming(30), Warming(30)]}
    planning = Planning(["the profile of job a is not measured"] * 5 + [""])
    most, why = warm_up(planning, ranks)
    assert (planning.looks, why) == (6, "")
    for each in ranks.values():
        # The ranks of a job end together, and after the step that any of them is in.
        (told,) = {rank.told for rank in each}
        assert told >= max(rank.steps for rank in each) + 2
        assert told <= most
    assert ranks["a"][0].told < ranks["b"][0].told


def test_without_a_plan_they_begin_after_a_time_and_the_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LONGEST_WARM_UP_S", 0.05)
    ranks = {"a": [Warming(0)], "b": [Warming(0)]}
    _, why = warm_up(Planning(["the plan gives job b no slots"]), ranks)
    assert why == "the plan gives job b no slots"
    assert all(rank.told for each in ranks.values() for rank in each)


def test_a_rank_that_fails_meanwhile_is_an_error() -> None:
    ranks = {"a": [Warming(0, ends_at=3)], "b": [Warming(0)]}
    with pytest.raises(MininetError, match="ended with 1"):
        warm_up(Planning(["job a has not joined"]), ranks)
