# SPDX-License-Identifier: Apache-2.0
"""Plans under which switches spread the packets of jobs."""

import pickle
from dataclasses import replace

import pytest

from controller.model.plan import SpreadClass, Spreading
from controller.planner import POLICIES, PlanInput, PolicyError, plan
from polyrhythm.api import plan_scenario
from polyrhythm.scenario import load_scenario, scenario_path
from polyrhythm.scenario.build import with_any_order


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


def orderless(name="collide", hosts=None):
    """A shipped scenario whose NICs, or those of `hosts`, take packets in any order."""
    scenario = load_scenario(scenario_path(name))
    return replace(scenario, topology=with_any_order(scenario.topology, hosts or scenario.topology.host))


def test_the_default_policy_sprays_where_nics_take_any_order_and_uplinks_suffice():
    plan = plan_scenario(orderless(), POLICIES["polyrhythm"], 1)
    dscps = sorted({job.dscp for job in plan.jobs.values()})
    assert plan.spread == tuple(SpreadClass(dscp, Spreading("spray_in_turn")) for dscp in dscps)
    assert all("packets sprayed over all ports" in job.why for job in plan.jobs.values())
    # The paths stay: a switch without the table forwards by them.
    assert all(flow.path for flow in plan.flows.values())


@pytest.mark.parametrize(
    ("scenario", "policy"),
    [
        (orderless(hosts=["h1", "h2", "h3", "h5", "h6", "h7"]), POLICIES["polyrhythm"]),
        (orderless("two_vgg19"), POLICIES["polyrhythm"]),
        (orderless(), POLICIES["crux"]),
        (orderless(), POLICIES["polyrhythm"].with_options({"spray": False})),
    ],
    ids=["two NICs keep order", "the uplink is short", "a published policy", "switched off"],
)
def test_elsewhere_it_does_not(scenario, policy):
    plan = plan_scenario(scenario, policy, 1)
    assert plan.spread == ()
    assert not any("sprayed" in job.why for job in plan.jobs.values())


def test_without_a_spine_it_goes_back_to_paths():
    scenario = orderless()
    inputs = PlanInput(
        scenario.topology,
        tuple(w.job for w in scenario.workloads),
        POLICIES["polyrhythm"],
        0,
        elephant_bytes=scenario.elephant_bytes,
    )
    assert plan(inputs).spread
    assert plan(replace(inputs, down_switches=frozenset({"spine1"}))).spread == ()


def test_spray_is_true_or_false():
    with pytest.raises(PolicyError, match="spray is 1; legal: True or False"):
        POLICIES["polyrhythm"].with_options({"spray": 1})
