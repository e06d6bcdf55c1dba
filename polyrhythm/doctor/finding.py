# SPDX-License-Identifier: Apache-2.0
"""What a check of the doctor needs, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from controller.process.config import FabricDescription, FabricFile
from hostagent.config import Config

State = Literal["ok", "problem", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `what` is what was seen; `remedy` what to do, of a problem."""

    check: str
    state: State
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What the doctor looks at; None or empty: it was not given.

    `agent` is the configuration of this host's agent, `addresses` the RoCE addresses of the hosts by name,
    `interface` the network interface of RoCE, `web` the address of the controller's REST API, `policy` the
    name of the policy that should be in force.
    """

    fabric: FabricDescription | None = None
    fabric_file: FabricFile | None = None
    fabric_folder: Path = Path()
    agent: Config | None = None
    addresses: Mapping[str, str] | None = None
    interface: str = ""
    web: str = ""
    token: str = ""
    web_ca: Path | None = None
    policy: str = ""


class UncheckedError(Exception):
    """A check cannot be made here; the message says why."""


class ProblemError(Exception):
    """A check has found a problem: what it is, and what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def agent_of(deployment: Deployment) -> Config:
    """The agent's configuration. Raises UncheckedError."""
    if deployment.agent is None:
        raise UncheckedError("it needs the configuration of this host's agent: --agent FILE")
    return deployment.agent


def fabric_of(deployment: Deployment) -> FabricDescription:
    """The fabric's description. Raises UncheckedError."""
    if deployment.fabric is None:
        raise UncheckedError("it needs the description of the fabric: --fabric FILE")
    return deployment.fabric


def listed(items: list[str], most: int = 5) -> str:
    """The first items, and how many more there are."""
    more = len(items) - most
    return "; ".join(items[:most]) + (f"; and {more} more" if more > 0 else "")
