# SPDX-License-Identifier: Apache-2.0
"""Plans under which switches spread the packets of jobs."""

import pickle

import pytest

from controller.model.plan import SpreadClass, Spreading
from controller.planner import POLICIES
from polyrhythm.api import plan_scenario
from polyrhythm.scenario import load_scenario, scenario_path


def planned(policy):
    return plan_scenario(load_scenario(scenario_path("collide")), POLICIES[policy], 1)


@pytest.mark.parametrize(
    ("policy", "spreading", "why"),
    [
        ("spray", Spreading("spray_in_turn"), "its packets are sprayed over all ports in turn"),
        ("dlb", Spreading("move_flowlets", 44319, 13), "after a pause of 44319 us it moves to the port"),
    ],
)
def test_the_plan_says_which_dscps_are_spread(policy, spreading, why):
    plan = planned(policy)
    dscps = {job.dscp for job in plan.jobs.values()}
    assert plan.spread == tuple(SpreadClass(dscp, spreading) for dscp in sorted(dscps))
    assert plan.pins == ()
    for flow in plan.flows.values():
        assert flow.path is None
        assert why in flow.why
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_other_policies_spread_nothing():
    assert planned("ecmp").spread == planned("routing").spread == ()
