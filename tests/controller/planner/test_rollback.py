# SPDX-License-Identifier: Apache-2.0
"""An earlier plan comes back only if it fits the jobs and the fabric of today."""

from __future__ import annotations

import pytest
from control_rig import job

from controller.planner import PlanInput, plan
from controller.planner.registry import POLICIES
from controller.planner.rollback import RollbackError, rolled_back
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10**8, fabric_bps=10**8)
A, B = job("a", "h1", "h3"), job("b", "h2", "h4")
EARLIER = plan(PlanInput(TOPOLOGY, (A, B), POLICIES["polyrhythm"], 0))


def test_the_same_jobs_get_the_same_decisions_under_a_new_number() -> None:
    again = rolled_back(EARLIER, (A, B), 9)
    assert again.version == 9
    assert (again.flows, again.jobs, again.pins, again.epoch_ns) == (
        EARLIER.flows,
        EARLIER.jobs,
        EARLIER.pins,
        EARLIER.epoch_ns,
    )


def test_jobs_that_have_left_are_left_out() -> None:
    again = rolled_back(EARLIER, (A,), 9)
    assert set(again.jobs) == {"a"}
    assert set(again.flows) == {flow.name for flow in A.flows}
    assert all(set(link.jobs) == {"a"} or len(link.jobs) > 1 for link in again.links)


def test_it_is_refused_where_it_does_not_fit() -> None:
    with pytest.raises(RollbackError, match="has no job c, which is present"):
        rolled_back(EARLIER, (A, job("c", "h1", "h4")), 9)
    with pytest.raises(RollbackError, match="has no flow a/h1>h4"):
        rolled_back(EARLIER, (job("a", "h1", "h4"),), 9)
    path = EARLIER.flows["a/h1>h3"].path
    assert path is not None
    with pytest.raises(RollbackError, match=f"over {path[2]}, which is down"):
        rolled_back(EARLIER, (A,), 9, (), (path[2],))
    link = tuple(sorted(path[1:3]))
    with pytest.raises(RollbackError, match="which is down"):
        rolled_back(EARLIER, (A,), 9, (link,))  # type: ignore[arg-type]
