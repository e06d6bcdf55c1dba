# SPDX-License-Identifier: Apache-2.0
"""Other outcomes of a round of offers: of the same rank, different, and with no GPU twice."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from controller.placement.candidate_rounds import candidate_rounds
from controller.placement.machines import FreePool, Machines


@given(st.integers(0, 10**6), st.integers(1, 10))
def test_candidates_give_each_job_what_the_scheduler_gave_it_and_no_gpu_twice(seed: int, most: int) -> None:
    random = Random(seed)
    machines = Machines.uniform(random.randint(1, 4), random.randint(1, 4), random.randint(1, 4))
    pool, own = FreePool(machines), {}
    for name in "abcdef":
        found = random.choice([pool.closest, lambda n: pool.scattered(n, random)])(random.randint(1, 6))
        if found is not None:
            pool.take(found)
            own[name] = found
    granted = {n: a for n, a in own.items() if n in "abc"}
    kept = {n: a for n, a in own.items() if n in "de"}
    others, before = own.get("f", ()), list(pool.free)
    rounds = candidate_rounds(granted, kept, pool, most=most, seed=seed)
    assert pool.free == before
    assert rounds[0] == {**kept, **granted}
    assert len(rounds) <= most
    assert len({tuple(sorted(r.items())) for r in rounds}) == len(rounds)
    for outcome in rounds:
        used = Counter(dict(others))
        for name, allocation in outcome.items():
            used.update(dict(allocation))
            assert sum(n for _, n in allocation) == sum(n for _, n in own[name])
            assert machines.tier(allocation) <= machines.tier(own[name])
            assert len(allocation) <= len(own[name])
        assert all(used[m] <= gpus for m, gpus in enumerate(machines.gpus))


def test_a_round_that_gave_nothing_has_one_outcome() -> None:
    assert candidate_rounds({}, {}, FreePool(Machines.uniform(2, 2, 2))) == [{}]


def test_gpus_that_two_jobs_could_exchange_are_exchanged() -> None:
    pool = FreePool(Machines.uniform(2, 2, 1))
    granted = {"a": ((0, 1), (1, 1)), "b": ((2, 1), (3, 1))}
    for allocation in granted.values():
        pool.take(allocation)
    rounds = candidate_rounds(granted, {}, pool)
    assert rounds == [granted, {"a": granted["b"], "b": granted["a"]}]
