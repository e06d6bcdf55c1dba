# SPDX-License-Identifier: Apache-2.0
"""How plans are shown."""

import pytest

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
