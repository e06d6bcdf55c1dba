# SPDX-License-Identifier: Apache-2.0
"""Token buckets, on a clock of the test."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.wire.token_bucket import TokenBucket


@given(st.lists(st.floats(0, 3), min_size=1, max_size=300), st.integers(1, 50))
def test_no_second_has_more_than_its_messages_and_the_saved_ones(pauses: list[float], per_s: int) -> None:
    now = 0.0
    rate = TokenBucket(per_s, lambda: now)
    read = []
    for pause in pauses:
        now += pause
        delay = rate.delay_s()
        assert 0 <= delay <= 1 / per_s + 1e-9
        now += delay
        read.append(now)
    for i, first in enumerate(read):
        assert sum(first <= at < first + 1 for at in read[i:]) <= 2 * per_s + 1


def test_several_tokens_wait_for_all_of_them() -> None:
    rate = TokenBucket(10, lambda: 0.0)
    assert rate.delay_s(10) == 0
    assert rate.delay_s(25) == 2.5


def test_messages_below_the_rate_never_wait() -> None:
    now = 0.0
    rate = TokenBucket(10, lambda: now)
    for _ in range(100):
        now += 0.1
        assert rate.delay_s() == 0


@given(st.lists(st.floats(0, 3), min_size=1, max_size=300), st.integers(1, 50))
def test_what_is_refused_takes_no_token(pauses: list[float], per_s: int) -> None:
    now = 0.0
    rate = TokenBucket(per_s, lambda: now)
    passed: list[float] = []
    for pause in pauses:
        now += pause
        wait = rate.refusal_s()
        if wait == 0:
            passed.append(now)
        else:
            assert wait <= 1 / per_s + 1e-9
    for i, first in enumerate(passed):
        assert sum(first <= at < first + 1 for at in passed[i:]) <= 2 * per_s
