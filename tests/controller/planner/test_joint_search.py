# SPDX-License-Identifier: Apache-2.0
"""MLTCP for single jobs: only if all their NICs support it, if it gains, and sent to their agents."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_rig import RATE, job, joint

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.sharing_groups import legal
from controller.model import Job
from controller.planner import POLICIES, PlanInput, diff, explain, plan
from controller.planner.joint_search import MLTCP_MIN_GAIN
from controller.planner.loop.objective import NEAR
from controller.wire.senders import SENDERS
from topo.generate import leaf_spine

ONE_LEVEL = POLICIES["polyrhythm"].with_options({"levels": 1})
FABRIC = leaf_spine(2, 1, 3, host_bps=RATE, fabric_bps=RATE)
HOSTS = frozenset(h.name for h in FABRIC.hosts)


def pair() -> tuple[Job, ...]:
    """One period is less than half of the other: no time-shifts separate the two jobs."""
    return job("long", ["h1", "h4"], 632, 214), job("short", ["h2", "h5"], 296, 136, gpus=8)


def close_pair() -> tuple[Job, ...]:
    """The same, but the evaluator expects only 1 % of MLTCP."""
    return job("long", ["h1", "h4"], 548, 194), job("short", ["h2", "h5"], 255, 131, gpus=8)


def inputs(hosts: frozenset[str] = HOSTS) -> PlanInput:
    return PlanInput(FABRIC, pair(), ONE_LEVEL, 0, seed=1, mltcp_hosts=hosts)


def test_where_no_shift_and_no_level_helps_the_search_takes_mltcp() -> None:
    made = plan(inputs())
    assert {j.sender for j in made.jobs.values()} == {"mltcp-dcqcn"}
    assert "mltcp-dcqcn senders" in explain(made)
    assert "the best without MLTCP" in made.jobs["long"].why
    without = joint(inputs(frozenset())).found
    found = joint(inputs()).found
    assert found is not None
    assert without is not None
    assert found.utilisation > without.utilisation * (1 + MLTCP_MIN_GAIN)
    # Under seeds that the search has not seen, too.
    unseen = Effort((9_001, 9_002, 9_003), 60)
    evaluator = Evaluator(joint(inputs()).instance, plain=True)
    ours, theirs = (evaluator.utilisation(f.choice, unseen).mean() for f in (found, without))
    assert ours > theirs * 1.01
    assert plan(inputs()) == made


def test_mltcp_that_gains_little_is_not_taken_and_not_kept() -> None:
    """A plan in force with MLTCP, for jobs that have changed since, counts no more than any other."""
    asked = replace(inputs(), jobs=close_pair())
    assert {j.sender for j in plan(asked).jobs.values()} == {"job"}
    before = plan(inputs())
    assert {j.sender for j in plan(replace(asked, previous=before)).jobs.values()} == {"job"}


def test_jobs_that_share_a_nic_are_not_switched_to_mltcp() -> None:
    """A NIC serves its queue pairs in turn and marks nothing, so weights would have no effect."""
    long, _ = pair()
    jobs = (long, job("short", ["h1", "h5"], 296, 136, gpus=8), job("other", ["h3", "h6"], 296, 136))
    instance = joint(replace(inputs(), jobs=jobs)).instance
    assert {p.name for p in instance.jobs if p.mltcp_capable} == {"other"}


def test_it_comes_to_rest_and_is_taken_back_where_a_nic_cannot() -> None:
    made = plan(inputs())
    for _ in range(3):
        last, made = made, plan(replace(inputs(), previous=made))
    assert diff(last, made) == ()
    back = plan(replace(inputs(HOSTS - {"h5"}), previous=made))
    assert back.jobs["short"].sender == "job"
    assert any(line.startswith("job short: sender mltcp-dcqcn -> job") for line in diff(made, back))


def test_a_job_that_the_search_switches_to_mltcp_keeps_its_congestion_control() -> None:
    own = {"long": "reno", "short": "mltcp-dctcp"}
    jobs = tuple(replace(j, sender=own[j.name]) for j in pair())
    made = plan(replace(inputs(), jobs=jobs))
    assert {j.job: j.sender for j in made.jobs.values()} == {"long": "mltcp-reno", "short": "mltcp-dctcp"}
    # The plan in force counts as one with MLTCP, whatever the congestion control is.
    again = plan(replace(inputs(), jobs=jobs, previous=made))
    assert diff(made, again) == ()


@pytest.mark.parametrize(("sender", "canonical"), [(s, s) for s in SENDERS] + [("mltcp", "mltcp-dcqcn")])
def test_a_policy_that_names_a_sender_has_the_last_word(sender: str, canonical: str) -> None:
    named = ONE_LEVEL.with_options({"sender": sender})
    assert named == ONE_LEVEL.with_options({"sender": canonical})
    made = plan(replace(inputs(), policy=named))
    assert {j.sender for j in made.jobs.values()} == {canonical}


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.sets(st.sampled_from(sorted(HOSTS))), st.integers(1, 3), st.integers(0, 99))
def test_no_job_weighs_on_a_nic_that_cannot(hosts: set[str], levels: int, seed: int) -> None:
    jobs = (*pair(), job("third", ["h3", "h6"], 300 + seed, 90))
    policy = ONE_LEVEL.with_options({"levels": levels})
    asked = PlanInput(FABRIC, jobs, policy, 0, seed=seed, mltcp_hosts=frozenset(hosts))
    made = plan(asked)
    for j in jobs:
        assert made.jobs[j.name].sender == "job" or set(j.hosts) <= hosts
    searched = joint(asked)
    found = searched.found
    assert found is not None
    assert legal(searched.instance, found.choice)
    theirs = max(found.baselines["as composed"], found.baselines["cassini"])
    assert found.refused is not None or found.utilisation >= theirs * (1 - NEAR)
