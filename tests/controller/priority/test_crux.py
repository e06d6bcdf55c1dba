# SPDX-License-Identifier: Apache-2.0
"""CRUX's intensity and correction factor: the paper's two examples and a plain simulation."""

from __future__ import annotations

import random

import pytest
from preempt_rig import preempt

from controller.priority.crux import Contender, contention, correction, rank, traffic_time

EXAMPLE_1 = (Contender("1", 10e9, 2.0, 2.0, 2.0), Contender("2", 5e9, 1.0, 1.0, 1.0))
EXAMPLE_2 = (
    Contender("1", 10e9, 4.0, 1.0, 1.0, overlap_start=0.5),
    Contender("2", 30e9, 2.0, 3.0, 3.0, overlap_start=0.5),
)


def utilisation(high: Contender, low: Contender, gpus: dict[str, int]) -> float:
    uses = preempt(high, low, 12.0)
    busy = sum(gpus[j.name] * use.compute_s for j, use in zip((high, low), uses, strict=True))
    return busy / 12.0 / sum(gpus.values())


def test_example_1() -> None:
    one, two = EXAMPLE_1
    assert one.intensity == two.intensity == 5e9
    gpus = {"1": 10, "2": 10}
    assert utilisation(one, two, gpus) == pytest.approx(0.375)
    assert utilisation(two, one, gpus) == pytest.approx(5 / 12)
    first, second = preempt(one, two, 12.0)
    assert (first.traffic_s, second.traffic_s) == (6.0, 3.0)
    first, second = preempt(two, one, 12.0)
    assert (first.traffic_s, second.traffic_s) == (6.0, 4.0)
    assert correction(two, one) == pytest.approx(1.5, rel=2e-3)
    ranked = rank(EXAMPLE_1)
    assert [r.name for r in ranked] == ["2", "1"]
    assert ranked[1].correction == 1.0
    assert ranked[0].priority == pytest.approx(7.5e9, rel=2e-3)


def test_example_2() -> None:
    one, two = EXAMPLE_2
    assert one.intensity == two.intensity == 10e9
    assert 12.0 - preempt(one, two, 12.0)[1].compute_s == pytest.approx(7.0)
    assert 12.0 - preempt(two, one, 12.0)[0].compute_s == pytest.approx(6.0)
    # The printed factor is 0/0 here: it is 1, and the job with less compute to overlap goes first.
    assert correction(one, two) == 1.0
    assert [r.name for r in rank(EXAMPLE_2)] == ["2", "1"]


def tick(high: Contender, low: Contender, horizon: int) -> list[tuple[int, int]]:
    """The same two jobs in steps of one second: (traffic, compute) of each."""
    state = []
    for j in (high, low):
        compute = int(j.compute_s)
        before = int(compute * j.overlap_start)
        state.append({"c": before, "t": 0, "compute": compute, "before": before, "traffic": int(j.traffic_s)})
    sent, computed = [0, 0], [0, 0]
    for _ in range(horizon):
        for s in state:
            if s["c"] >= s["compute"] and s["t"] >= s["traffic"]:
                s["c"] = s["t"] = 0
        wants = [s["c"] >= s["before"] and s["t"] < s["traffic"] for s in state]
        for i, s in enumerate(state):
            if wants[i] and not (i == 1 and wants[0]):
                s["t"] += 1
                sent[i] += 1
            if s["c"] < s["compute"]:
                s["c"] += 1
                computed[i] += 1
    return list(zip(sent, computed, strict=True))


def test_preemption_equals_a_simulation_by_the_second() -> None:
    rng = random.Random(3)
    for _ in range(300):
        jobs = []
        for name in "ab":
            compute = rng.randrange(0, 9, 2)
            jobs.append(Contender(name, 1.0, compute, rng.randint(1, 6), 1.0, rng.choice([0.0, 0.5, 1.0])))
        horizon = rng.randint(1, 80)
        got = preempt(jobs[0], jobs[1], horizon)
        assert [(u.traffic_s, u.compute_s) for u in got] == tick(jobs[0], jobs[1], horizon)


def test_correction_is_clamped_and_defined_at_the_edges() -> None:
    heavy = Contender("heavy", 1.0, 0.0, 1.0, 9.0)
    light = Contender("light", 1.0, 99.0, 1.0, 1.0)
    assert correction(heavy, heavy) == 1.0
    for job, reference in ((heavy, light), (light, heavy)):
        assert 1 / 8 <= correction(job, reference) <= 8
    assert correction(Contender("a", 1.0, 0.0, 1.0, 1.0), Contender("b", 1.0, 0.0, 2.0, 1.0)) == 1.0
    with pytest.raises(ValueError, match="must take some time"):
        preempt(Contender("idle", 1.0, 0.0, 0.0, 0.0), heavy, 1.0)


def test_a_job_without_traffic_ranks_last() -> None:
    ranked = rank([Contender("mute", 1e15, 1.0, 0.0, 0.0), *EXAMPLE_1])
    assert ranked[-1].name == "mute"
    assert ranked[-1].intensity is None
    assert rank([]) == ()


def test_equal_jobs_rank_by_name() -> None:
    jobs = [Contender(n, 1e9, 1.0, 1.0, 1.0) for n in "cab"]
    assert [r.name for r in rank(jobs)] == ["a", "b", "c"]


def test_traffic_time_is_the_slowest_links() -> None:
    rates = {("a", "b"): 8_000, ("b", "c"): 80_000}
    assert traffic_time({("a", "b"): 1_000.0, ("b", "c"): 5_000.0}, rates) == 1.0
    assert traffic_time({}, rates) == 0.0


def test_contention_edges_go_from_high_to_low() -> None:
    ranked = rank(EXAMPLE_1)
    assert contention(ranked, [("1", "2")]) == {("2", "1"): 5e9}
