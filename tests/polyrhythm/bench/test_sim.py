# SPDX-License-Identifier: Apache-2.0
"""`polyrhythm bench sim`: the two weeks under a policy."""

import pytest

from polyrhythm.bench.sim import two_weeks

pytest.importorskip("numba")


def test_the_two_weeks_end_under_a_policy_and_say_what_they_took() -> None:
    found = two_weeks("crux", 12, 1)
    assert found["finished"] == 12
    assert found["iterations"] > found["iterations_skipped"] > 0
    assert found["cpu_s"] >= 0
    assert 10 < found["mib"] < 4096
    again = two_weeks("crux", 12, 1)
    assert {k: found[k] for k in ("events", "iterations")} == {k: again[k] for k in ("events", "iterations")}
