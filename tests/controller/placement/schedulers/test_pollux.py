# SPDX-License-Identifier: Apache-2.0
"""What Pollux is known for: jobs grow and shrink with the load, and one that does not scale gets few GPUs."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.placement.machines import FreePool, Machines
from controller.placement.offers import PlacedJob, offer_round
from controller.placement.schedulers.pollux import Pollux, progress, shares

SCALES = tuple(progress(gpus) for gpus in range(1, 9))
STALLS = (1.0, 1.2, 1.25, 1.25, 1.25, 1.25, 1.25, 1.25)


def elastic(name: str, arrived: float, goodput: tuple[float, ...] = SCALES, demand: int = 4) -> PlacedJob:
    return PlacedJob(name, demand, 100.0, arrived=arrived, goodput=goodput)


def test_the_job_that_scales_gets_the_gpus() -> None:
    assert shares({"stalls": STALLS, "scales": SCALES}, 8) == {"stalls": 2, "scales": 6}
    assert shares({"a": SCALES, "b": SCALES}, 8) == {"a": 4, "b": 4}
    assert shares({"a": SCALES, "b": SCALES, "c": SCALES}, 2) == {"a": 1, "b": 1, "c": 0}


@given(
    st.lists(st.lists(st.floats(0.01, 1), min_size=1, max_size=5), min_size=1, max_size=3), st.integers(1, 7)
)
def test_where_goodput_is_concave_no_shares_are_better(steps: list[list[float]], gpus: int) -> None:
    goodput = {}
    for number, gains in enumerate(steps):
        ordered = sorted(gains, reverse=True)
        goodput[str(number)] = [sum(ordered[: k + 1]) for k in range(len(ordered))]
    found = shares(goodput, gpus)
    assert sum(found.values()) <= gpus
    if gpus < len(goodput):
        return
    share = max(1, gpus // len(goodput))
    equal = {n: g[min(share, len(g)) - 1] for n, g in goodput.items()}

    def cost(counts: tuple[int, ...]) -> float:
        return sum(equal[n] / g[c - 1] for (n, g), c in zip(goodput.items(), counts, strict=True))

    every = product(*(range(1, len(g) + 1) for g in goodput.values()))
    best = min(cost(counts) for counts in every if sum(counts) <= gpus)
    assert cost(tuple(found.values())) == pytest.approx(best)


def test_a_job_grows_into_an_idle_cluster_and_shrinks_when_another_comes() -> None:
    pool, policy = FreePool(Machines.uniform(2, 4, 1)), Pollux()
    first = elastic("first", 0.0)
    changes = offer_round(policy, 0.0, [first], [], pool)
    first.allocation = changes["first"]
    assert first.allocation is not None
    assert len(first.allocation) == 8
    second = elastic("second", 1.0)
    assert offer_round(policy, 1.0, [second], [], pool) == {}
    changes = offer_round(policy, 2.0, [second], [first], pool)
    assert {name: len(found or ()) for name, found in changes.items()} == {"first": 4, "second": 4}
    assert pool.total == 0


def test_gpus_stay_where_others_would_gain_little() -> None:
    pool, policy = FreePool(Machines.uniform(1, 7, 1)), Pollux()
    jobs = [elastic("a", 0.0), elastic("b", 1.0)]
    assert shares({"a": SCALES, "b": SCALES}, 7) == {"a": 4, "b": 3}
    for job, machines in zip(jobs, ((0, 1, 2), (3, 4, 5, 6)), strict=True):
        job.allocation, job.demand = tuple((m, 1) for m in machines), len(machines)
        pool.take(job.allocation)
    assert offer_round(policy, 1.0, [], jobs, pool) == {}


def test_a_job_of_unknown_goodput_keeps_the_number_that_it_asks_for() -> None:
    pool = FreePool(Machines.uniform(1, 8, 1))
    fixed = PlacedJob("fixed", 3, 100.0)
    changes = offer_round(Pollux(), 0.0, [fixed, elastic("b", 1.0)], [], pool)
    assert {name: len(found or ()) for name, found in changes.items()} == {"fixed": 3, "b": 5}
