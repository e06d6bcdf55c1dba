# SPDX-License-Identifier: Apache-2.0
"""A job for which no plan can be made costs the other jobs no plan."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from control_rig import job
from hypothesis import given
from hypothesis import strategies as st

from controller.live.messages import SendRefusal
from controller.live.unplannable_jobs import LONGEST_RETRY_NS, PLAN_AGAIN_NS, RETRY_NS, UnplannableJobs
from controller.model.job import Flow

NAMES = [f"job{i}" for i in range(8)]
JOBS = {name: job(name, f"h{2 * i}", f"h{2 * i + 1}") for i, name in enumerate(NAMES)}


def planned_until_rest(
    found: UnplannableJobs, names: Collection[str], bad: Collection[str], planned: Collection[str] = ()
) -> set[str]:
    """Plan as the control loop does; a plan with a bad job fails. Returns the jobs of the last plan."""
    jobs = [JOBS[n] for n in names]
    for _ in range(8 * len(NAMES)):
        wanted = {j.name for j in found.plannable(jobs)}
        if not wanted & set(bad):
            planned = wanted
            if not found.made(wanted):
                return set(planned)
        elif found.failed(0, jobs, planned, "it broke") is None:
            assert found.due(PLAN_AGAIN_NS) == (True, ())
    raise AssertionError("it does not come to rest")


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_the_bad_jobs_are_left_out_and_no_other(names: set[str], bad: set[str], planned: set[str]) -> None:
    found = UnplannableJobs()
    assert planned_until_rest(found, sorted(names), bad, planned) == names - bad
    assert found.reasons == dict.fromkeys(names & bad, "it broke")
    # They are tried again later, and come back once they can be planned.
    wanted, back = found.due(RETRY_NS)
    assert wanted == bool(back)
    assert set(back) == names & bad
    assert planned_until_rest(found, sorted(names), (), names - bad) == names
    assert found.next_timer_ns is None


def test_the_job_with_the_most_flows_is_suspected_first() -> None:
    found = UnplannableJobs()
    flows = tuple(Flow(f"job0/{i}", "job0", "h0", "h1", 1) for i in range(9))
    jobs = [replace(JOBS["job0"], flows=flows), JOBS["job1"], JOBS["job2"]]
    assert found.failed(0, jobs, ["job1"], "too slow") == []
    assert found.plannable(jobs) == tuple(jobs[1:])


def test_a_job_that_fails_again_waits_twice_as_long() -> None:
    found = UnplannableJobs()
    now_ns = 0
    for pause_ns in (RETRY_NS, 2 * RETRY_NS, 4 * RETRY_NS):
        assert found.failed(now_ns, [JOBS["job0"]], (), "it broke")
        assert found.made(()) is False
        assert found.next_timer_ns == now_ns + pause_ns
        assert found.due(now_ns + pause_ns - 1) == (False, ())
        now_ns += pause_ns
        assert found.due(now_ns) == (True, ("job0",))
    for _ in range(20):
        found.failed(now_ns, [JOBS["job0"]], (), "it broke")
        last = now_ns
        now_ns = found.next_timer_ns or 0
        found.due(now_ns)
    assert now_ns - last == LONGEST_RETRY_NS


def test_its_agents_hear_of_it_and_a_job_that_left_may_come_again() -> None:
    found = UnplannableJobs()
    told = found.failed(0, [JOBS["job0"]], (), "it broke")
    words = "job job0 is left out of all plans, and its flows go by ECMP: it broke"
    assert told == [SendRefusal("h0", words), SendRefusal("h1", words)]
    found.forget("job0")
    assert found.plannable([JOBS["job0"]]) == (JOBS["job0"],)
    assert found.next_timer_ns is None


def test_a_plan_of_known_jobs_that_fails_is_made_again_before_one_is_suspected() -> None:
    found = UnplannableJobs()
    jobs = [JOBS["job0"], JOBS["job1"]]
    assert found.failed(0, jobs, ["job0", "job1"], "the worker was killed") is None
    assert found.plannable(jobs) == tuple(jobs)
    assert found.due(PLAN_AGAIN_NS) == (True, ())
    assert found.made(["job0", "job1"]) is False
    assert found.next_timer_ns is None
    assert found.failed(0, jobs, ["job0", "job1"], "killed again, much later") is None


def test_a_new_job_is_not_blamed_for_what_breaks_the_others() -> None:
    found = UnplannableJobs()
    names = ["job0", "job1", "job2"]
    assert planned_until_rest(found, names, ["job0"], ["job0", "job1"]) == {"job1", "job2"}
    assert found.reasons == {"job0": "it broke"}
