# SPDX-License-Identifier: Apache-2.0
"""The compiled kernels of routing. Import them only where they run: they bring Numba along."""

from controller.routing.kernels.anneal import anneal
from controller.routing.kernels.colour import balanced, laminar
from controller.routing.kernels.fill import maxmin
from controller.routing.kernels.greedy import greedy_by_owner, greedy_candidates, greedy_unit, greedy_weighted
from controller.routing.kernels.kempe import arrive, arrive_all, leave, seat_all
from controller.routing.kernels.relief import relieve
from controller.routing.kernels.scan import find_ports
from controller.routing.kernels.use import use_of_links

__all__ = [
    "anneal",
    "arrive",
    "arrive_all",
    "balanced",
    "find_ports",
    "greedy_by_owner",
    "greedy_candidates",
    "greedy_unit",
    "greedy_weighted",
    "laminar",
    "leave",
    "maxmin",
    "relieve",
    "seat_all",
    "use_of_links",
]
