# SPDX-License-Identifier: Apache-2.0
"""What an operator changes on a running controller, as inputs of the core."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.live.drained import Drained

if TYPE_CHECKING:
    from controller.live.core import Core

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DrainSet:
    """From now on this is drained, and nothing else."""

    drained: Drained


OperatorCommand = DrainSet


def carry_out(core: Core, command: OperatorCommand) -> None:
    """Change the state of a core as an operator asks."""
    core.links.drained = command.drained
    log.info("an operator has changed what is drained: %s", command.drained)
