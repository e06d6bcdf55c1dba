# SPDX-License-Identifier: Apache-2.0
"""The schedulers of placements by name: Dally, its variants, and those that it is compared with.

No source defines these rivals fully. Each module says its rule, what the source says, and what is our
reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.placement.offers import OfferPolicy
from controller.placement.schedulers.dally import dally, dally_consolidated, dally_manual, dally_no_wait
from controller.placement.schedulers.gandiva import Gandiva
from controller.placement.schedulers.hived import HiveD
from controller.placement.schedulers.muri import Muri
from controller.placement.schedulers.pollux import Pollux
from controller.placement.schedulers.themis import Themis
from controller.placement.schedulers.tiresias import Tiresias


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """What the sources leave open. `lease_s`: the time for which GPUs are given. `history`: the auto-tuner's
    history limit in leases. `seed`: of random choices.

    Chosen: a lease of 2 h, because the authors' shortest timers of 6 and 12 leases are then the paper's
    default timers of 12 and 24 h; a history of 24 leases, two days.
    """

    lease_s: float = 7_200.0
    history: float = 24.0
    seed: int = 1


SCHEDULERS: Mapping[str, Callable[[SchedulerOptions], OfferPolicy]] = {
    "gandiva": lambda options: Gandiva(options.seed),
    "tiresias": lambda options: Tiresias(options.seed),
    "dally-manual": lambda options: dally_manual(options.lease_s),
    "dally-nowait": lambda options: dally_no_wait(options.lease_s),
    "dally-consolidated": lambda options: dally_consolidated(options.lease_s),
    "dally": lambda options: dally(options.lease_s, options.history),
    "themis": lambda options: Themis(),
    "pollux": lambda options: Pollux(),
    "hived": lambda options: HiveD(),
    "muri": lambda options: Muri(),
}

SHARING = ("muri",)
"""Those that let several jobs share GPUs, which needs a simulation that knows of it (`sim.isolated`)."""


def scheduler_named(name: str, options: SchedulerOptions | None = None) -> OfferPolicy:
    """A fresh scheduler. Raises ValueError with the legal names for another."""
    if name not in SCHEDULERS:
        raise ValueError(f"{name!r} is no scheduler; legal: {', '.join(SCHEDULERS)}")
    return SCHEDULERS[name](options or SchedulerOptions())
