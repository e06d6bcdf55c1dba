# SPDX-License-Identifier: Apache-2.0
"""The windows over which sessions are compared, against cases worked by hand."""

from __future__ import annotations

import pytest

from polyrhythm.fabric.presence import Presence
from polyrhythm.run.figures import MeasuredIteration
from polyrhythm.run.windows import (
    SessionTimes,
    Window,
    common_windows,
    figures_in,
    session_times,
    utilisation_in,
)

MS = 1_000_000
ORIGIN = 100


def job(
    start_ms: int,
    period_ms: int,
    count: int,
    *,
    first: int | None = 0,
    left: bool = False,
    compute_ms: int = 0,
) -> tuple[list[MeasuredIteration], Presence]:
    """A job of two workers with equal iterations. Times count from the origin."""
    begin = start_ms + ORIGIN
    records = [
        MeasuredIteration(
            rank,
            index - (first or 0),
            (begin + index * period_ms) * MS,
            (begin + (index + 1) * period_ms) * MS,
            communication_ns=0,
            ecn_marks=rank,
            retransmits=1,
            compute_ns=compute_ms * MS,
        )
        for rank in (0, 1)
        for index in range(count)
    ]
    left_ns = (begin + count * period_ms) * MS if left else None
    return records, Presence(begin * MS, left_ns, None, first)


def session(ended_ms: int, **jobs: tuple[list[MeasuredIteration], Presence]) -> SessionTimes:
    return session_times(
        {name: records for name, (records, _) in jobs.items()},
        {name: presence for name, (_, presence) in jobs.items()},
        (ended_ms + ORIGIN) * MS,
        warmup=2,
    )


def spans(windows: tuple[Window, ...]) -> list[tuple[float, float | None, str]]:
    return [
        (w.start_ns / MS, None if w.end_ns is None else w.end_ns / MS, "".join(sorted(w.jobs)))
        for w in windows
    ]


def test_both_are_compared_from_the_same_time_on() -> None:
    # Under the policy 4 iterations were profiling, then 2 are warm-up: 600 ms. Under ECMP job a was slower.
    policy = session(1000, a=job(0, 100, 10, first=4), b=job(0, 100, 10, first=4))
    ecmp = session(2000, a=job(0, 200, 10, first=2), b=job(0, 150, 12, first=2))
    windows = common_windows([policy, ecmp])
    assert spans(windows) == [(800, None, "ab")]
    assert windows[0].warm
    assert figures_in(policy, windows, "a").iterations_ms == (100, 100)
    assert figures_in(ecmp, windows, "a").iterations_ms == (200,) * 6
    # The iteration from 750 to 900 ms begins before the window.
    assert figures_in(ecmp, windows, "b").iterations_ms == (150,) * 6
    assert figures_in(ecmp, windows, "b").ecn_marks_per_iteration == 1
    assert figures_in(ecmp, windows, "b").retransmits_per_iteration == 2


def test_only_times_with_the_same_jobs_count() -> None:
    # The visitor comes at 1,000 ms. It leaves at 2,000 ms under the policy, and at 3,000 ms under ECMP.
    policy = session(4000, a=job(0, 100, 40), v=job(1000, 100, 10, left=True))
    ecmp = session(5000, a=job(0, 200, 25), v=job(1000, 200, 10, left=True))
    windows = common_windows([policy, ecmp])
    # Warm: a after 400 ms, the visitor after 400 ms of its own. From 2,000 to 3,000 ms the jobs differ.
    assert spans(windows) == [(400, 1000, "a"), (1400, 2000, "av"), (3000, None, "a")]
    assert len(figures_in(ecmp, windows, "a").iterations_ms) == 3 + 3 + 10
    assert len(figures_in(ecmp, windows, "v").iterations_ms) == 3


def test_a_short_visit_counts_with_its_warm_up() -> None:
    policy = session(1000, a=job(0, 100, 10), v=job(200, 100, 2, left=True, first=None))
    ecmp = session(1000, a=job(0, 100, 10), v=job(200, 100, 2, left=True, first=None))
    windows = common_windows([policy, ecmp])
    assert spans(windows) == [(0, 200, "a"), (200, 400, "av"), (400, None, "a")]
    assert not any(window.warm for window in windows)
    assert figures_in(policy, windows, "v").iterations_ms == (100, 100)


def test_a_job_that_finishes_nothing_counts_with_the_time_that_it_waited() -> None:
    empty: list[MeasuredIteration] = []
    policy = session(5000, a=job(0, 100, 50), b=(empty, Presence(ORIGIN * MS, None, None, None)))
    ecmp = session(5000, a=job(0, 200, 25), b=job(0, 200, 25))
    windows = common_windows([policy, ecmp])
    assert figures_in(policy, windows, "b").iterations_ms == (5000,)
    assert utilisation_in(policy, windows, {"a": 1, "b": 1}) == 0


def test_a_job_that_starves_after_a_good_start_counts_with_its_last_iteration_too() -> None:
    policy = session(9000, a=job(0, 100, 90), b=job(0, 100, 5))
    windows = common_windows([policy, session(9000, a=job(0, 200, 45), b=job(0, 200, 45))])
    assert figures_in(policy, windows, "b").iterations_ms == (100, 8500)


def test_utilisation_is_weighted_by_gpu_time() -> None:
    # Alone for 1,000 ms, job a computes half of the time; the visitor a quarter.
    shared = session(
        2000,
        a=job(0, 100, 20, compute_ms=50),
        v=job(1000, 200, 5, compute_ms=50),
    )
    windows = common_windows([shared])
    assert spans(windows) == [(200, 1000, "a"), (1400, None, "av")]
    # 2 GPUs for 800 ms at 1/2; 2 + 6 GPUs for 600 ms at (2 x 1/2 + 6 x 1/4) / 8.
    expected = (2 * 800 * 0.5 + 8 * 600 * 2.5 / 8) / (2 * 800 + 8 * 600)
    assert utilisation_in(shared, windows, {"a": 2, "v": 6}) == pytest.approx(expected)
