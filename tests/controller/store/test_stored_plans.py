# SPDX-License-Identifier: Apache-2.0
"""Plans in the history: read back as they were; one that is broken is refused by its number.

Random plans are in tests/controller/planner/test_flow_columns.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from control_rig import job

from controller.planner import PlanInput, plan
from controller.planner.registry import POLICIES
from controller.store.interface import StoredPlan, StoreRefusedError
from controller.store.stored_plans import PlanEncoder, plan_of
from topo.generate import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, host_bps=10**8, fabric_bps=10**8)


def stored() -> StoredPlan:
    made = plan(PlanInput(TOPOLOGY, (job("a", "h1", "h3"), job("b", "h2", "h4")), POLICIES["polyrhythm"], 0))
    found = PlanEncoder().stored(7, made)
    assert plan_of(found) == made
    return found


def broken(body: dict[str, Any], what: str) -> None:
    row = body["columns"]["jobs"]["b"]["rows"][0]
    match what:
        case "a switch that is none":
            row[-1] = [10_000]
        case "a kept flow that is none":
            body["columns"]["kept"]["b"] = [10_000]
        case "a row too short":
            del row[-1]
        case "a port that is none":
            row[4] = 1 << 40
        case "kept flows of no job":
            body["columns"]["kept"]["c"] = [0]


@pytest.mark.parametrize(
    "what",
    [
        "a switch that is none",
        "a kept flow that is none",
        "a row too short",
        "a port that is none",
        "kept flows of no job",
    ],
)
def test_a_broken_plan_is_refused_by_its_number(what: str) -> None:
    found = stored()
    body = json.loads(found.body)
    broken(body, what)
    with pytest.raises(
        StoreRefusedError, match=f"plan {found.version}.* is not readable: .*restore a backup"
    ):
        plan_of(replace(found, body=json.dumps(body).encode()))
