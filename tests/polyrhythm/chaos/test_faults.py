# SPDX-License-Identifier: Apache-2.0
"""The faults depend on seed and number alone, and every kind comes up."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.chaos import chosen, percentile
from polyrhythm.chaos.faults import KINDS, fault
from polyrhythm.chaos.injection import _ACTIONS


def test_every_kind_is_carried_out() -> None:
    assert _ACTIONS.keys() == KINDS.keys()


@given(st.integers(0, 2**32), st.integers(0, 10_000))
def test_a_fault_can_be_repeated(seed: int, number: int) -> None:
    assert chosen(seed, number, 1, None) == [fault(seed, number)]
    assert fault(seed, number).rng().random() == fault(seed, number).rng().random()


@given(st.integers(0, 2**32), st.integers(0, 20))
def test_each_turn_has_every_kind_once(seed: int, turn: int) -> None:
    count = len(KINDS)
    faults = chosen(seed, turn * count, count, None)
    assert Counter(f.kind for f in faults) == Counter(KINDS.keys())
    assert [f.number for f in faults] == list(range(turn * count, (turn + 1) * count))


def test_only_faults_of_the_kinds_that_are_asked_for() -> None:
    faults = chosen(3, 5, 4, ["flood", "garbage"])
    assert {f.kind for f in faults} == {"flood", "garbage"}
    assert min(f.number for f in faults) >= 5


def test_the_percentile_is_one_of_the_values() -> None:
    assert percentile([], 0.99) == 0.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(i) for i in range(1, 101)], 0.99) == 99.0
