# SPDX-License-Identifier: Apache-2.0
"""Why the next plan is wanted, where neither jobs, profiles, policy nor the fabric's condition tell."""

from __future__ import annotations

CONNECTIONS = "other queue pairs or connections of flows"
LEARNED = "probes have learned how switches hash"
MISROUTED = "flows took other paths than their switches' hash predicts"
MEASUREMENT = "a measurement of a profile began or ended"
ITERATIONS = "iterations lasted otherwise than planned"
LEFT_OUT = "jobs were left out of the plan, or are tried again"
ROLLBACK = "rollback to plan"
SEARCH = "a longer search than that of the plan before"


def rollback_to(version: int) -> str:
    """The cause of a plan that is an earlier one."""
    return f"{ROLLBACK} {version}"


class PlanCauses:
    """Causes, from the moment when a plan is wanted until one made after that moment is in force."""

    def __init__(self) -> None:
        self._wanted: dict[str, None] = {}
        self._taken: dict[str, None] = {}

    def add(self, cause: str, wanted: bool = True) -> bool:
        """`wanted`: whether this cause wants a plan. Returns it."""
        if wanted:
            self._wanted[cause] = None
        return wanted

    def input_taken(self) -> None:
        """A plan is made now, because of what was wanted so far."""
        self._taken |= self._wanted
        self._wanted = {}

    def in_force(self) -> tuple[str, ...]:
        """A plan has come into force: what it was made for, in the order in which it was wanted."""
        taken, self._taken = tuple(self._taken), {}
        return taken
