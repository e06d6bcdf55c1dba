# SPDX-License-Identifier: Apache-2.0
"""Jobs in groups whose periods meet again."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from controller.interleave.period import LONGEST, repeating_groups

PERIODS = st.one_of(st.integers(1, 60).map(lambda ms: ms * 1_000_000), st.integers(1, 400_000_000))


@given(st.dictionaries(st.text(max_size=3), PERIODS, max_size=8), st.sampled_from((1, LONGEST, 1_000)))
def test_each_job_is_in_one_group_whose_periods_meet_again(periods: dict[str, int], most: int) -> None:
    groups = repeating_groups(periods, most)
    assert sorted(job for group in groups for job in group) == sorted(periods)
    for group in groups:
        own = [periods[job] for job in group]
        assert math.lcm(*own) <= most * max(own)
    if periods and math.lcm(*periods.values()) <= most * max(periods.values()):
        assert len(groups) == 1


def test_the_order_of_jobs_does_not_split_a_group() -> None:
    """Periods of 4 and 5 meet after four of the longer one, and 20 is their common multiple."""
    for periods in ({"a": 4, "b": 5, "c": 20}, {"c": 20, "b": 5, "a": 4}):
        assert len(repeating_groups(periods, 2)) == 1
