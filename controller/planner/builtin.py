# SPDX-License-Identifier: Apache-2.0
"""The built-in policies. pyproject.toml registers them as any other package registers its own."""

from __future__ import annotations

from controller.interleave.timing import Cassini, Circles, OwnPace
from controller.planner.policy import Policy
from controller.priority.priorities import Crux, Intensity, Sincronia, Taccl, Varys
from controller.routing.routings import (
    Annealing,
    Auto,
    Ecmp,
    Greedy,
    Ilp,
    LeastCongested,
    Optimal,
    PublishedAnnealing,
)
from controller.routing.spreading import Flowlets, Spray

_CRUX_PATHS = LeastCongested(order="intensity")

ECMP = Policy("ecmp")
POLYRHYTHM = Policy(
    "polyrhythm",
    LeastCongested(order="intensity", balance=True, spray=True),
    Crux(),
    Circles(),
    joint_search=True,
    max_slowdown=1.5,
)
ROUTING = Policy("routing", LeastCongested(balance=True))
CRUX = Policy("crux", _CRUX_PATHS, Crux())
CRUX_FAIR = Policy("crux-fair", _CRUX_PATHS, Crux(loss_cap=0.4))
CRUX_PS_PA = Policy("crux-ps-pa", _CRUX_PATHS, Crux(compress=False))
CRUX_PA = Policy("crux-pa", Ecmp(), Crux(compress=False))
INTENSITY = Policy("intensity", _CRUX_PATHS, Intensity())
TACCL = Policy("taccl", LeastCongested(order="distance"), Taccl())
SINCRONIA = Policy("sincronia", Ecmp(), Sincronia())
VARYS = Policy("varys", Ecmp(), Varys())
CIRCLES = Policy("circles", Ecmp(), timing=Circles())
CASSINI = Policy("cassini", Ecmp(), timing=Cassini())
MLTCP = Policy("mltcp", Ecmp(), timing=OwnPace(sender="mltcp-dcqcn"))
SPRAY = Policy("spray", Spray())
DLB = Policy("dlb", Flowlets())

# One array algorithm each: what `polyrhythm route --algorithm` runs on a list of flows.
GREEDY = Policy("greedy", Greedy())
OPTIMAL = Policy("optimal", Optimal())
AUTO = Policy("auto", Auto())
ANNEALING = Policy("annealing", Annealing())
PUBLISHED_ANNEALING = Policy("annealing-published", PublishedAnnealing())
ILP = Policy("ilp", Ilp())
