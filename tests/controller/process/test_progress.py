# SPDX-License-Identifier: Apache-2.0
"""How long a step has run, and why there is no plan."""

import pytest

from controller.live.notices import JobArrived, JobLeft
from controller.model import Job, Profile
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


def test_a_job_counts_once_when_the_first_plan_with_it_is_in_force() -> None:
    now = [0.0]
    progress = Progress(lambda: now[0])
    here, gone = (Job(name, "m", 1, (), Profile(1, ()), 0.0, ()) for name in ("here", "gone"))
    progress.noticed([JobArrived(0, here), JobArrived(0, gone)])
    now[0] = 0.2
    progress.in_force(["other"])
    assert progress.jobs.count == 0
    progress.noticed([JobLeft(0, gone)])
    progress.in_force(["here", "gone"])
    now[0] = 0.9
    progress.in_force(["here", "gone"])
    assert progress.jobs.count == 1
    assert dict(progress.jobs.cumulative())["0.3"] == 1


def test_the_time_of_writes_counts() -> None:
    now = [0.0]
    progress = Progress(lambda: now[0])
    with progress.writing():
        now[0] += 0.04
    assert dict(progress.writes.cumulative())["0.05"] == 1
