# SPDX-License-Identifier: Apache-2.0
"""The iterations that the evaluator expects under plain ECMP: what a plan's losses are measured against."""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import Choice, plain
from controller.planner.demand import Demands
from controller.planner.drawn_paths import DRAWS, drawn_ways
from controller.planner.search_instance import instance_of
from controller.routing.cable_links import Way
from controller.routing.paths import paths
from topo.graph import Topology

SEEN = 3
"""The draws of ECMP that an operator compares a plan with. Chosen: those of `polyrhythm paper battery`."""
REFERENCE_WORK = 30_000
"""The most work where the levels of many jobs are searched. Chosen: with a third of the iterations 50 plans
for 46 jobs were the same."""
FEWEST_ITERATIONS = 4
"""The iterations of the longest job that an evaluation has there, however long it takes. Chosen."""
_FIRST_SEED = 301
"""Seed of the first draw of offsets. Chosen: the search uses none of these seeds."""
_MOST_KEPT = 8
"""How many references are kept, those used last. Chosen: as many as searches, in `loop/known_searches.py`."""


@dataclass(frozen=True, slots=True)
class EcmpLengths:
    """The iteration of each job under plain ECMP: the `mean` over DRAWS draws in ns, and the standard `error`
    of it, as a part of the mean, against a mean of SEEN other draws."""

    mean: Mapping[str, float]
    error: Mapping[str, float]


_known: deque[tuple[Topology, tuple[object, ...], EcmpLengths]] = deque(maxlen=_MOST_KEPT)
"""Topology, `EcmpReference._key` and result. Topologies are compared by identity."""


@dataclass(frozen=True)
class EcmpReference:
    """The iterations of the jobs under plain ECMP: all jobs on one level, no slots, no MLTCP.

    It is the evaluator's mean over DRAWS draws of source ports and start offsets, each of `iterations`
    iterations of the longest job; of fewer, but at least FEWEST_ITERATIONS, where these would take more than
    `work` of the evaluator. `flows` names the elephants that have a path.
    """

    demands: Demands
    flows: tuple[str, ...]
    iterations: int
    work: int | None = None

    def lengths(self) -> EcmpLengths:
        """The iteration of each job. Most jobs that come to a cluster, or leave it, have no flows, and then
        the plan before has asked for the same."""
        topology, key = self.demands.inputs.topology, self._key
        for fabric, asked, found in tuple(_known):
            if fabric is topology and asked == key:
                return found
        found = self._computed()
        _known.appendleft((topology, key, found))
        return found

    @property
    def _key(self) -> tuple[object, ...]:
        """What the iterations depend on beside the topology. Profiles and flows are the same objects from
        plan to plan, so to compare two keys is quick."""
        x, profiles = self.demands.inputs, self.demands.profiles
        senders = {f.job for f in self.demands.elephants}
        return (
            self.flows,
            (self.iterations, self.work),
            (x.down_links, x.down_switches, x.seed, x.elephant_bytes, x.mltcp_hosts),
            (x.policy.timing.sender, x.policy.priority.levels),
            tuple(
                (j.name, j.gpus, profiles[j.name], j.flows, j.pcie_link, j.pcie_bps, j.hosts)
                for j in x.jobs
                if j.name in senders or j.pcie_link
            ),
        )

    def _computed(self) -> EcmpLengths:
        evaluator = self._evaluator
        efforts = [replace(self._effort, seeds=(_FIRST_SEED + draw,)) for draw in range(DRAWS)]
        each = [evaluator.lengths(c, e)[0] for c, e in zip(self._choices, efforts, strict=True)]
        draws = np.array(each)
        mean = draws.mean(axis=0)
        error = draws.std(axis=0, ddof=1) / mean * (1 / DRAWS + 1 / SEEN) ** 0.5
        names = [j.name for j in self._evaluator.instance.jobs]
        return EcmpLengths(
            dict(zip(names, mean.tolist(), strict=True)), dict(zip(names, error.tolist(), strict=True))
        )

    @property
    def cost(self) -> int:
        """About how much work of the evaluator it takes, from the first draw."""
        return self._cost(self._effort)

    @cached_property
    def _effort(self) -> Effort:
        """The effort for the first draw."""
        wanted = Effort((_FIRST_SEED,), self.iterations)
        if self.work is None:
            return wanted
        return wanted.within(self.work, self._cost(wanted), FEWEST_ITERATIONS)

    def _cost(self, effort: Effort) -> int:
        return DRAWS * self._evaluator.cost(self._choices[0], effort)

    @cached_property
    def _ways(self) -> list[dict[str, Way]]:
        """The links of each flow, by draw: by its source port, or any path where the hash is unknown."""
        x = self.demands.inputs
        draws = drawn_ways(self.demands, self.flows)
        for k, found in enumerate(draws):
            for name in [name for name, way in found.items() if not way]:
                flow = self.demands.elephant[name]
                if every := paths(x.topology, self.demands.forwarding, flow.src, flow.dst):
                    path = random.Random(zlib.crc32(name.encode()) * DRAWS + k).choice(every)
                    found[name] = self.demands.cable_links.way(path, None)
        return draws

    @cached_property
    def _candidates(self) -> Mapping[str, tuple[Way, ...]]:
        return {name: tuple(dict.fromkeys(draw[name] for draw in self._ways)) for name in self.flows}

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(instance_of(self.demands, self._candidates))

    @cached_property
    def _choices(self) -> list[Choice]:
        instance, of = self._evaluator.instance, self._candidates
        return [plain(instance, tuple(of[f].index(draw[f]) for f in self.flows)) for draw in self._ways]
