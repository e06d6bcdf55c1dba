# SPDX-License-Identifier: Apache-2.0
"""A job for which no plan can be made costs the other jobs no plan."""

from __future__ import annotations

from collections.abc import Collection

from control_rig import job
from hypothesis import given
from hypothesis import strategies as st

from controller.live.messages import SendRefusal
from controller.live.unplannable_jobs import UnplannableJobs

NAMES = [f"job{i}" for i in range(8)]
JOBS = {name: job(name, f"h{2 * i}", f"h{2 * i + 1}") for i, name in enumerate(NAMES)}


def planned_until_rest(found: UnplannableJobs, names: Collection[str], bad: Collection[str]) -> set[str]:
    """Plan as the control loop does; a plan with a bad job fails. Returns the jobs of the last plan."""
    planned: set[str] = set()
    jobs = [JOBS[n] for n in names]
    for _ in range(4 * len(NAMES)):
        wanted = {j.name for j in found.plannable(jobs)}
        if wanted & set(bad):
            assert found.failed(jobs, planned, "it broke") is not None
        else:
            planned = wanted
            if not found.made():
                return planned
    raise AssertionError("it does not come to rest")


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_the_bad_jobs_are_left_out_and_no_other(names: set[str], bad: set[str]) -> None:
    found = UnplannableJobs()
    assert planned_until_rest(found, sorted(names), bad) == names - bad
    assert found.reasons == dict.fromkeys(names & bad, "it broke")


def test_its_agents_hear_of_it_and_a_job_that_left_may_come_again() -> None:
    found = UnplannableJobs()
    told = found.failed([JOBS["job0"]], (), "it broke")
    words = "job job0 is left out of all plans, and its flows go by ECMP: it broke"
    assert told == [SendRefusal("h0", words), SendRefusal("h1", words)]
    found.forget("job0")
    assert found.plannable([JOBS["job0"]]) == (JOBS["job0"],)


def test_jobs_that_were_planned_before_are_not_the_reason() -> None:
    assert UnplannableJobs().failed([JOBS["job0"]], {"job0"}, "it broke") is None
