# SPDX-License-Identifier: Apache-2.0
"""How plans are shown."""

import pytest

from controller.model import FlowPlan, Plan, PolicyReference
from controller.model.flow_plans import flows_of_job
from controller.northbound import render
from controller.planner import POLICIES
from polyrhythm.api import plan_scenario
from polyrhythm.scenario import load_scenario, scenario_path


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        ("ecmp", None),
        ("spray", ("spray_in_turn", None, None)),
        ("dlb", ("move_flowlets", 44319, 8192)),
    ],
)
def test_what_switches_spread_is_shown(policy: str, shown: tuple[str, int | None, int | None] | None) -> None:
    plan = plan_scenario(load_scenario(scenario_path("collide")), POLICIES[policy], 1)
    found = render.plan(plan).spread
    assert [(s.action, s.gap_us, s.half_life_us) for s in found] == ([shown] if shown else [])


def test_a_flow_is_shown_with_the_job_that_its_name_begins_with() -> None:
    """A flow of one of several queue pairs has a further "/" in its name."""
    flows = {name: FlowPlan(name, None, None, 10, "") for name in ("j/h1>h2/0", "j/h1>h2/1", "k/h1>h2")}
    plan = Plan(1, PolicyReference("p"), 0, flows, {}, ())
    assert [f.job for f in render.plan(plan).flows] == ["j", "j", "k"]
    assert [f.flow for f in flows_of_job(flows, "j")] == ["j/h1>h2/0", "j/h1>h2/1"]
