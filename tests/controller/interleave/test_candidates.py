# SPDX-License-Identifier: Apache-2.0
"""Algorithm 2: candidates ranked by compatibility."""

from __future__ import annotations

import random

import pytest
from circles import MS, C, up

from controller.interleave.candidates import rank
from controller.interleave.circle import SharedLink

UPS = {"a": (up(0, 12),), "b": (up(0, 12),), "c": (up(0, 12),), "d": (up(0, 20),)}
PERIODS = dict.fromkeys(UPS, 30 * MS)


def links(*groups: str) -> list[SharedLink]:
    return [SharedLink((f"l{i}", ""), C, {j: UPS[j] for j in group}) for i, group in enumerate(groups)]


CANDIDATES = [
    links("ad", "bc"),
    links("ab", "bc", "ca"),
    links("ab", "bc"),
    links("ad", "bd"),
    links("a", "b"),
]


def test_the_most_compatible_comes_first_and_loops_count_with_their_loss() -> None:
    found = rank(CANDIDATES, PERIODS)
    assert [r.index for r in found] == [2, 4, 0, 1, 3]
    by_index = {r.index: r for r in found}
    assert by_index[2].compatibility == by_index[4].compatibility == 1.0
    # a and d together want 32 of 30 ms; the other link fits.
    assert by_index[0].compatibility == pytest.approx(1 - 2 / 30 / 2)
    assert by_index[1].compatibility == pytest.approx(1 - 6 / 30 / 3, abs=1e-6)
    assert by_index[1].lost == pytest.approx(6 / 30 / 3, abs=1e-6)
    assert by_index[2].result.shifts["a"] == 0


def test_loops_are_discarded_where_the_thesis_does() -> None:
    assert [r.index for r in rank(CANDIDATES, PERIODS, loops=False)] == [2, 4, 0, 3]


def test_only_so_many_are_looked_at() -> None:
    assert [r.index for r in rank(CANDIDATES, PERIODS, most=2)] == [0, 1]
    assert rank([], PERIODS) == []
    with pytest.raises(ValueError, match="whole numbers from 1"):
        rank(CANDIDATES, PERIODS, most=0)


@pytest.mark.parametrize("fast", [False, True])
def test_threads_change_nothing(fast: bool) -> None:
    rng = random.Random(1)
    many = [links(*("".join(rng.sample("abcd", 3)) for _ in range(3))) for _ in range(8)]
    alone = rank(many, PERIODS, fast=fast)
    together = rank(many, PERIODS, workers=4, fast=fast)
    assert [(r.index, r.compatibility, r.result.shifts) for r in alone] == [
        (r.index, r.compatibility, r.result.shifts) for r in together
    ]
