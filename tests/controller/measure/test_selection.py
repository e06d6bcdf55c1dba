# SPDX-License-Identifier: Apache-2.0
"""Which iterations of a measurement count."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controller.measure.selection import SETTLE_NS, Sample, counting

MS = 1_000_000


def samples(lengths_ms: list[float], ranks: int = 2) -> list[Sample]:
    """Iterations that follow one another, of which 100 ms are communication."""
    found, at = [], 0
    for index, length in enumerate(lengths_ms):
        end = at + round(length * MS)
        found += [
            Sample(r, index, at, end, 0, 100 * MS, end - at - 100 * MS, 10**6, 1.0) for r in range(ranks)
        ]
        at = end
    return found


def indices(kept: tuple[Sample, ...]) -> list[int]:
    return [s.index for s in kept if s.rank == 0]


def test_iterations_that_are_alike_all_count() -> None:
    every = samples([260, 261, 259, 260, 262, 258])
    assert counting(every, ()) == tuple(every)
    assert counting([], ()) == ()


def test_an_iteration_that_overlaps_a_change_of_the_plan_does_not_count() -> None:
    every = samples([260] * 6)
    assert indices(counting(every, [300 * MS])) == [0, 2, 3, 4, 5]
    # The change has its effect a little later: the iteration that begins with it is disturbed too.
    assert indices(counting(every, [260 * MS])) == [0, 2, 3, 4, 5]
    assert indices(counting(every, [260 * MS - SETTLE_NS])) == [1, 2, 3, 4, 5]
    assert counting(every, [130 * MS + 260 * MS * k for k in range(6)]) == ()


def test_an_iteration_of_another_shape_does_not_count() -> None:
    every = samples([260] * 6)
    for odd in (
        replace(every[4], end_ns=every[4].end_ns + 60 * MS, communication_ns=160 * MS),
        replace(every[4], communication_ns=130 * MS),
        replace(every[4], bytes_sent=1_100_000),
    ):
        assert indices(counting([*every[:4], odd, *every[5:]], ())) == [0, 1, 3, 4, 5]


@given(st.lists(st.floats(0.95, 1.05), min_size=6, max_size=20))
def test_noise_of_five_per_cent_leaves_most_iterations(factors: list[float]) -> None:
    kept = indices(counting(samples([260 * f for f in factors]), ()))
    assert 2 * len(kept) >= len(factors)


@given(st.lists(st.floats(101, 10_000), min_size=1, max_size=12))
def test_some_iteration_always_counts(lengths: list[float]) -> None:
    assert counting(samples(lengths), ())
