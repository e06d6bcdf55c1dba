# SPDX-License-Identifier: Apache-2.0
"""`ilp`: the exact optimum by HiGHS, with the optional extra `ilp`."""

from __future__ import annotations

import importlib.util
import os
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from controller.routing.algorithms.base import MAX_SEARCHED, Options
from controller.routing.components import components
from controller.routing.fabric import Candidates, Fabric, Ints, LeafDemand, UnsuitableError


def installed() -> bool:
    """Whether HiGHS is there; looking does not import it."""
    return importlib.util.find_spec("highspy") is not None


def ilp(fabric: Fabric, demand: LeafDemand, options: Options) -> Ints:
    """Choices that make the largest relative load as small as can be, or the best found in `limit_s`.

    Variables: how many of a pair's flows of one weight take each of its paths (they are alike), and the
    largest load t. Minimise t; every group of flows is placed; every link carries at most t capacities.
    Parts of the demand that cannot meet are solved side by side (the paper's 3.4.3).

    Raises:
        UnsuitableError: highspy is not installed, or no assignment was found in time.
    """
    if not installed():
        raise UnsuitableError("ilp needs HiGHS: install polyrhythm[ilp]")
    if len(demand) > MAX_SEARCHED:
        raise UnsuitableError(f"ilp takes at most {MAX_SEARCHED} flows")
    result = np.full(len(demand), -1, dtype=np.int32)
    parts = components(fabric, demand)
    # HiGHS lets the interpreter go while it solves; the largest part begins first.
    with ThreadPoolExecutor(max_workers=min(len(parts), os.cpu_count() or 1) or 1) as pool:
        largest = sorted(parts, key=len, reverse=True)
        solved = pool.map(lambda part: one_part(fabric, demand.take(part), options), largest)
        for part, choice in zip(largest, solved, strict=True):
            result[part] = choice
    return result


def one_part(fabric: Fabric, demand: LeafDemand, options: Options) -> Ints:
    """The choices of flows that meet only one another."""
    if demand.weight is not None and len(demand):
        # HiGHS has absolute tolerances: with weights of 1e11 bit/s it ends with poor assignments.
        demand = replace(demand, weight=demand.weight / demand.weight.max())
    ways = fabric.candidates(demand)
    groups: dict[tuple[int, float], list[int]] = defaultdict(list)
    for f, (pair, weight) in enumerate(zip(ways.pair.tolist(), demand.weights.tolist(), strict=True)):
        if ways.first[pair + 1] > ways.first[pair]:
            groups[pair, weight].append(f)
    result = np.full(len(demand), -1, dtype=np.int32)
    if not groups:
        return result
    placed = ways.first[ways.pair + 1] > ways.first[ways.pair]
    counts = _highs(fabric, ways, groups, _least(fabric, demand.take(placed)), options)
    at = 0
    for (pair, _), flows in groups.items():
        start, end = int(ways.first[pair]), int(ways.first[pair + 1])
        result[flows] = np.repeat(ways.choice[start:end], counts[at : at + end - start])
        at += end - start
    return result


def _least(fabric: Fabric, demand: LeafDemand) -> float:
    """The bound in the model's units where all flows and all links are alike, else 0: HiGHS need not find
    out by branching that less is impossible."""
    rates, weights = fabric.capacity[fabric.capacity > 0], demand.weights
    alike = rates.min() == rates.max() and weights.min() == weights.max()
    return fabric.bound(demand) * float(weights[0]) if alike else 0.0


def _highs(
    fabric: Fabric,
    ways: Candidates,
    groups: dict[tuple[int, float], list[int]],
    least: float,
    options: Options,
) -> Ints:
    """How many flows of each group take each path, in the order of groups and paths; the largest relative
    load, in units of the fastest link, is at least `least`."""
    import highspy

    class QuietHighs(highspy.Highs):
        """highspy enables callbacks as it makes a model, and the first one of a process prints the version,
        which would be in the midst of what a command prints."""

        def enableCallbacks(self) -> None:  # noqa: N802
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()  # type: ignore[no-untyped-call]

    model: Any = QuietHighs()  # type: ignore[no-untyped-call]
    model.setOptionValue("time_limit", options.limit_s)
    model.setOptionValue("random_seed", options.seed)
    capacity = fabric.capacity
    unit = float(capacity[capacity > 0].max())
    upper: list[float] = []
    on: dict[int, list[tuple[int, float]]] = defaultdict(list)
    sums: list[tuple[int, int, int]] = []
    for (pair, weight), flows in groups.items():
        begin = len(upper)
        for row in range(int(ways.first[pair]), int(ways.first[pair + 1])):
            for link in ways.links[row]:
                if link >= 0:
                    on[int(link)].append((len(upper), weight * unit / capacity[link]))
            upper.append(float(len(flows)))
        sums.append((begin, len(upper), len(flows)))
    t = len(upper)
    model.addVars(t + 1, np.array([*(0.0 for _ in upper), least]), np.array([*upper, np.inf]))
    model.changeColCost(t, 1.0)
    model.changeColsIntegrality(
        t, np.arange(t, dtype=np.int32), np.full(t, int(highspy.HighsVarType.kInteger), dtype=np.uint8)
    )
    for begin, end, total in sums:
        index = np.arange(begin, end, dtype=np.int32)
        model.addRow(float(total), float(total), end - begin, index, np.ones(end - begin))
    for terms in on.values():
        index = np.array([*(i for i, _ in terms), t], dtype=np.int32)
        value = np.array([*(w for _, w in terms), -1.0])
        model.addRow(-np.inf, 0.0, len(index), index, value)
    model.run()
    if model.getInfo().primal_solution_status != 2:
        raise UnsuitableError(f"HiGHS found no assignment in {options.limit_s:g} s")
    counts: Ints = np.rint(np.array(model.getSolution().col_value[:t])).astype(np.int32)
    return counts
