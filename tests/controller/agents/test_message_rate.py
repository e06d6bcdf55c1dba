# SPDX-License-Identifier: Apache-2.0
"""How fast the messages of one agent are read, on a clock of the test."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.agents.message_rate import MessageRate


@given(st.lists(st.floats(0, 3), min_size=1, max_size=300), st.integers(1, 50))
def test_no_second_has_more_than_its_messages_and_the_saved_ones(pauses: list[float], per_s: int) -> None:
    now = 0.0
    rate = MessageRate(per_s, lambda: now)
    read = []
    for pause in pauses:
        now += pause
        delay = rate.delay_s()
        assert 0 <= delay <= 1 / per_s + 1e-9
        now += delay
        read.append(now)
    for i, first in enumerate(read):
        assert sum(first <= at < first + 1 for at in read[i:]) <= 2 * per_s + 1


def test_messages_below_the_rate_never_wait() -> None:
    now = 0.0
    rate = MessageRate(10, lambda: now)
    for _ in range(100):
        now += 0.1
        assert rate.delay_s() == 0
