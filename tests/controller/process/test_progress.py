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
