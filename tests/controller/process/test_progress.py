# SPDX-License-Identifier: Apache-2.0
"""How long a step has run, and why there is no plan."""

import pytest

from controller.process.progress import Progress


def test_a_step_counts_while_it_runs() -> None:
    now = [10.0]
    progress = Progress(lambda: now[0])
    assert progress.step_s == 0
    with progress.step():
        now[0] += 12
        assert progress.step_s == 12
    now[0] += 100
    assert progress.step_s == 0


@pytest.mark.parametrize(("error", "words"), [(ValueError("no path"), "no path"), (KeyError(), "KeyError")])
def test_a_plan_that_fails_has_a_reason(error: Exception, words: str) -> None:
    progress = Progress()
    assert progress.no_plan(error) == progress.plan_failure == words


def test_only_plans_that_were_made_count_with_their_time() -> None:
    now = [0.0]
    progress = Progress(lambda: now[0])
    with progress.planning():
        now[0] += 0.05
    with pytest.raises(ValueError, match="no"), progress.planning():
        raise ValueError("no")
    progress.no_plan(ValueError("no"))
    assert progress.plans.count == 1
    assert dict(progress.plans.cumulative())["0.1"] == 1
    assert dict(progress.plans.cumulative())["0.03"] == 0
    assert progress.plan_failures == 1
