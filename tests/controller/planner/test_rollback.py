# SPDX-License-Identifier: Apache-2.0
"""An earlier plan comes back only if it fits the jobs and the fabric of today."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from control_rig import job

from controller.model.job import Job
from controller.model.plan import Plan
from controller.planner import PlanInput, plan
from controller.planner.registry import POLICIES
from controller.planner.rollback import RollbackError, rolled_back
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10**8, fabric_bps=10**8)
A, B = job("a", "h1", "h3"), job("b", "h2", "h4")
EARLIER = plan(PlanInput(TOPOLOGY, (A, B), POLICIES["polyrhythm"], 0))


def back(*jobs: Job, earlier: Plan = EARLIER, **more: Any) -> Plan:
    """EARLIER for these jobs, after plan 8."""
    inputs = PlanInput(TOPOLOGY, jobs, POLICIES["polyrhythm"], 10**12, previous=replace(EARLIER, version=8))
    return rolled_back(earlier, replace(inputs, **more))


def test_the_same_jobs_get_the_same_decisions_under_a_new_number() -> None:
    again = back(A, B)
    assert again.version == 9
    assert (again.flows, again.jobs, again.pins, again.epoch_ns) == (
        EARLIER.flows,
        EARLIER.jobs,
        EARLIER.pins,
        EARLIER.epoch_ns,
    )


def test_jobs_that_have_left_are_left_out() -> None:
    again = back(A)
    assert set(again.jobs) == {"a"}
    assert set(again.flows) == {flow.name for flow in A.flows}
    assert all(set(link.jobs) == {"a"} or len(link.jobs) > 1 for link in again.links)


def test_it_is_refused_where_it_does_not_fit() -> None:
    with pytest.raises(RollbackError, match="has no job c, which is present"):
        back(A, job("c", "h1", "h4"))
    with pytest.raises(RollbackError, match="has no flow a/h1>h4"):
        back(job("a", "h1", "h4"))
    path = EARLIER.flows["a/h1>h3"].path
    assert path is not None
    with pytest.raises(RollbackError, match=f"over {path[2]}, which is down"):
        back(A, down_switches=frozenset({path[2]}))
    one, other = sorted(path[1:3])
    with pytest.raises(RollbackError, match="which is down"):
        back(A, down_links=frozenset({(one, other)}))


def test_a_job_of_the_same_name_with_another_period_gets_no_slots_of_the_earlier_one() -> None:
    slots = {name: replace(known, period_ns=A.profile.period_ns) for name, known in EARLIER.jobs.items()}
    earlier = replace(EARLIER, jobs=slots)
    assert back(A, B, earlier=earlier).jobs == slots
    slower = replace(A, profile=replace(A.profile, period_ns=2 * A.profile.period_ns))
    with pytest.raises(RollbackError, match="for job a, whose period is"):
        back(slower, B, earlier=earlier)


def test_a_path_over_a_cable_that_the_fabric_has_no_more_is_refused() -> None:
    path = EARLIER.flows["a/h1>h3"].path
    assert path is not None
    rest = tuple(link for link in TOPOLOGY.links if {link.a, link.b} != set(path[1:3]))
    with pytest.raises(RollbackError, match=f"uses {path[1]}-{path[2]}, which the fabric does not have"):
        back(A, B, topology=replace(TOPOLOGY, links=rest))
    other = leaf_spine(2, 1, 2, host_bps=10**8, fabric_bps=10**8)
    with pytest.raises(RollbackError, match="uses spine2, which the fabric does not have"):
        back(A, B, topology=other)


def test_slots_begin_at_once_if_the_earlier_clock_was_ahead() -> None:
    """After the controller's host has started again, its clock begins anew."""
    assert back(A, B).epoch_ns == EARLIER.epoch_ns
    assert back(A, B, earlier=replace(EARLIER, epoch_ns=10**15)).epoch_ns == 10**12
