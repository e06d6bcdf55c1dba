# SPDX-License-Identifier: Apache-2.0
"""What the REST API can do with a controller, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from controller.northbound.circle_routes import CircleOperations
from controller.northbound.cut_routes import CutOperations
from controller.northbound.drain_routes import DrainOperations
from controller.northbound.history_routes import HistoryOperations
from controller.northbound.job_routes import JobOperations
from controller.northbound.placement_routes import PlacementOperations
from controller.northbound.plan_routes import PlanOperations
from controller.northbound.policy_routes import PolicyOperations
from controller.northbound.table_routes import TableOperations
from controller.northbound.what_if_routes import WhatIfOperations


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of a controller. None: this controller does not lead, and the routes answer 503."""

    plans: PlanOperations | None = None
    placements: PlacementOperations | None = None
    drains: DrainOperations | None = None
    policy: PolicyOperations | None = None
    jobs: JobOperations | None = None
    circles: CircleOperations | None = None
    tables: TableOperations | None = None
    history: HistoryOperations | None = None
    cuts: CutOperations | None = None
    what_if: WhatIfOperations | None = None
