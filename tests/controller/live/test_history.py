# SPDX-License-Identifier: Apache-2.0
"""The history: what it keeps, at which resolution, within which bounds; and through a store."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.live.history import (
    TIERS,
    History,
    S,
    StoredBucket,
    from_stored,
    job_column,
    link_column,
    to_stored,
)
from controller.live.stored_history import StoredHistory
from controller.store.interface import Kind
from controller.store.records import decode, encode

SHORT = ((S, 3), (10 * S, 4))


def filled(seconds: int, tiers: tuple[tuple[int, int], ...] = SHORT) -> History:
    history = History(tiers)
    for t in range(seconds):
        history.add_iteration(t * S, "a", 100.0 + t)
        history.add_links(t * S, np.array([t % 10 / 10, np.nan]), np.array([2.0, np.nan]))
    return history


def test_the_finest_buckets_that_reach_back_answer() -> None:
    history = filled(25)
    step, found = history.buckets(22 * S, 25 * S)
    assert (step, [b.start_ns // S for b in found]) == (S, [22, 23, 24])
    assert job_column(found, "a").mean == (122.0, 123.0, 124.0)
    assert job_column(found, "b").mean == (None,) * 3
    step, found = history.buckets(0, 25 * S)
    assert (step, [b.start_ns // S for b in found]) == (10 * S, [0, 10, 20])
    assert job_column(found, "a").low[1] == 110.0
    assert job_column(found, "a").high[1] == 119.0
    assert link_column(found, 0, marks=False).mean[0] == 45.0
    assert link_column(found, 0, marks=True).mean[0] == 2.0
    assert link_column(found, 1, marks=False).mean == (None,) * 3, "not measured, and not 0"
    assert link_column(found, 1, marks=True).mean == (None,) * 3


def test_a_young_history_answers_a_whole_day_by_its_finest_buckets() -> None:
    step, found = filled(3).buckets(0, 10**18)
    assert (step, len(found)) == (S, 3)


@given(st.lists(st.integers(0, 10**13), max_size=60), st.integers(0, 10**13), st.integers(0, 10**13))
def test_it_is_bounded_and_in_order_whatever_the_times(times: list[int], a: int, b: int) -> None:
    history = History(SHORT)
    for t in sorted(times):
        history.add_iteration(t, "a", 1.0)
    step, found = history.buckets(min(a, b), max(a, b))
    starts = [bucket.start_ns for bucket in found]
    assert starts == sorted(set(starts))
    assert len(found) <= 5
    assert all(s + step > min(a, b) and s < max(a, b) for s in starts)


def test_a_bucket_comes_back_from_the_store_as_it_was() -> None:
    history = filled(12)
    (bucket,) = history.take_finished()
    assert history.take_finished() == []
    stored = decode(encode(to_stored(bucket, 5_000)), StoredBucket, "it")
    back = from_stored(stored, 5_000, 2)
    assert back is not None
    assert back.links is not None
    assert bucket.links is not None
    assert (back.start_ns, back.step_ns, back.iterations) == (
        bucket.start_ns,
        bucket.step_ns,
        bucket.iterations,
    )
    assert all(
        np.array_equal(getattr(back.links, n), getattr(bucket.links, n))
        for n in ("mean", "low", "high", "marks")
    )
    other = from_stored(stored, 5_000, 3)
    assert other is not None
    assert other.links is None, "another fabric has other links"


def test_the_store_keeps_a_day_and_damaged_records_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    step, day = TIERS[-1][0], 86_400 * S
    history = History()
    for t in range(0, 3 * step, step):
        history.add_iteration(t, "a", 1.0)
    buckets = history.take_finished()
    assert len(buckets) == 2
    offset = 10 * day
    fresh = StoredHistory({}, 0, offset, 4, same_fabric=True)
    records = fresh.changes(buckets)
    assert {kind for kind, _ in records} == {Kind.HISTORY}
    stored = {key: encode(value) for (_, key), value in records.items()}
    stored["bad"] = b"{"
    again = StoredHistory(stored, 3 * step, offset, 4, same_fabric=True)
    assert [b.start_ns for b in again.restored] == [0, step]
    assert again.changes(()) == {(Kind.HISTORY, "bad"): None}
    assert "history bad is not readable" in caplog.text
    late = StoredHistory(stored, day + 2 * step, offset, 4, same_fabric=True)
    assert late.restored == [], "older than a day"
    assert set(late.changes(()).values()) == {None}
    other = StoredHistory(stored, 0, offset, 4, same_fabric=False)
    assert other.restored == []
    assert len(other.changes(())) == 3


def test_what_is_restored_answers_for_its_time() -> None:
    history = History(SHORT)
    history.restore(filled(25).buckets(0, 25 * S)[1])
    history.add_iteration(41 * S, "a", 7.0)
    step, found = history.buckets(0, 50 * S)
    assert (step, [b.start_ns // S for b in found]) == (10 * S, [0, 10, 20, 40])
    assert math.isclose(job_column(found, "a").mean[-1] or 0, 7.0)
