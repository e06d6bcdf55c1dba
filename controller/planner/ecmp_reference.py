# SPDX-License-Identifier: Apache-2.0
"""The iterations that the evaluator expects under plain ECMP: what a plan's losses are measured against."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.fluid import Floats
from controller.interleave.joint.instance import plain
from controller.planner.demand import Demands
from controller.planner.search_instance import instance_of
from controller.routing.ecmp import draw_port
from controller.routing.paths import Path, path_of, paths

DRAWS = 8
"""How many draws of source ports and start offsets are averaged. Chosen."""
_FIRST_SEED = 301
"""Seed of the first draw of offsets. Chosen: the search uses none of these seeds."""


def ecmp_lengths(
    demands: Demands, flows: Sequence[str], iterations: int, most_work: int, *, fast: bool
) -> Mapping[str, float] | None:
    """The mean iteration of each job in ns under plain ECMP: all jobs on one level, no slots, no MLTCP.

    It is the evaluator's mean over DRAWS draws of source ports and start offsets, each of `iterations`
    iterations of the longest job. `flows` names the elephants that have a path. None if that takes more than
    `most_work` of the evaluator's work. `fast` uses the compiled loops.
    """
    drawn = [{name: _drawn(demands, name, k) for name in flows} for k in range(DRAWS)]
    candidates = {name: tuple(dict.fromkeys(draw[name] for draw in drawn)) for name in flows}
    instance = instance_of(demands, candidates)
    evaluator = Evaluator(instance, plain=not fast)
    efforts = [Effort((_FIRST_SEED + k,), iterations) for k in range(DRAWS)]
    choices = [plain(instance, tuple(candidates[name].index(draw[name]) for name in flows)) for draw in drawn]
    if sum(evaluator.cost(c, e) for c, e in zip(choices, efforts, strict=True)) > most_work:
        return None
    found: Floats = np.mean(
        [evaluator.lengths(c, e)[0] for c, e in zip(choices, efforts, strict=True)], axis=0
    )
    return {job.name: float(ns) for job, ns in zip(instance.jobs, found, strict=True)}


def _drawn(demands: Demands, flow: str, draw: int) -> Path:
    """The path of a flow under one draw: by its source port, or any path where the hash is unknown."""
    x, f = demands.inputs, demands.elephant[flow]
    found = path_of(x.topology, demands.forwarding, f.src, f.dst, draw_port(flow, x.seed + draw))
    if found:
        return found
    every = paths(x.topology, demands.forwarding, f.src, f.dst)
    return random.Random(zlib.crc32(flow.encode()) * DRAWS + draw).choice(every) if every else ()
