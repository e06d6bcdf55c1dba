# SPDX-License-Identifier: Apache-2.0
"""What an operator changes on a running controller, as inputs of the core."""

from __future__ import annotations

from dataclasses import dataclass

from controller.live.drained import Drained
from controller.model.job import Job
from controller.planner.policy import Policy
from controller.planner.registry import registered_policy


@dataclass(frozen=True, slots=True)
class DrainSet:
    """From now on this is drained, and nothing else."""

    drained: Drained


@dataclass(frozen=True, slots=True)
class ChosenPolicy:
    """A registered policy by its name, and the options that differ from those it is registered with."""

    name: str
    options: tuple[tuple[str, bool | int | float | str | None], ...] = ()

    def policy(self) -> Policy:
        """The policy itself. Raises PolicyError if it is not installed, or has no such options."""
        return registered_policy(self.name).with_options(dict(self.options))


@dataclass(frozen=True, slots=True)
class PolicySet:
    """From now on plans are made by `policy`, which was `chosen`; None: it is the one of the start again."""

    policy: Policy
    chosen: ChosenPolicy | None


@dataclass(frozen=True, slots=True)
class JobRequested:
    """A job begins, or the requested job of its name is described anew. Its agents need not announce it."""

    job: Job


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job has ended, whoever declared it."""

    name: str


OperatorCommand = DrainSet | PolicySet | JobRequested | JobEnded
