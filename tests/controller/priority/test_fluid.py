# SPDX-License-Identifier: Apache-2.0
"""What assignments are worth: the exact progress of jobs on links, and fairness under a cap."""

import random

import numpy as np
import pytest
from preempt_rig import preempt

from controller.priority.fairness import Outcome, evaluate, fair_assignment, pareto
from controller.priority.fluid import Fluid, fluid_of, progress, usual_horizon
from controller.priority.jobs import LinkJob
from controller.priority.methods import Setting

RATE = {"l": 8.0, "m": 8.0}
EXAMPLE_1 = [LinkJob("1", 10, 10e9, 2.0, {"l": 2.0}), LinkJob("2", 10, 5e9, 1.0, {"l": 1.0})]
EXAMPLE_2 = [LinkJob("1", 2, 10e9, 4.0, {"l": 1.0}, 0.5), LinkJob("2", 12, 30e9, 2.0, {"l": 3.0}, 0.5)]


@pytest.mark.slow
@pytest.mark.parametrize("plain", [True, False])
def test_figures_11_and_12(plain: bool) -> None:
    fluid = fluid_of(EXAMPLE_1, RATE)
    computed, sent = progress(fluid, [0, 1], 12.0, plain=plain)
    assert computed.sum() / 24 == pytest.approx(0.375)
    assert (sent * fluid.traffic).tolist() == pytest.approx([6.0, 3.0])
    computed, sent = progress(fluid, [1, 0], 12.0, plain=plain)
    assert computed.sum() / 24 == pytest.approx(5 / 12)
    assert (sent * fluid.traffic).tolist() == pytest.approx([4.0, 6.0])
    fluid = fluid_of(EXAMPLE_2, RATE)
    assert 12 - progress(fluid, [0, 1], 12.0, plain=plain)[0][1] == pytest.approx(7.0)
    assert 12 - progress(fluid, [1, 0], 12.0, plain=plain)[0][1] == pytest.approx(6.0)


@pytest.mark.parametrize("plain", [True, False])
def test_two_jobs_on_a_link_are_as_preemption_has_them(plain: bool) -> None:
    rng = random.Random(8)
    for _ in range(60):
        jobs = [
            LinkJob(n, 1, 1.0, rng.randrange(0, 9, 2), {"l": rng.randint(1, 6)}, rng.choice([0.0, 0.5, 1.0]))
            for n in "ab"
        ]
        horizon = rng.randint(1, 80)
        want = preempt(jobs[0].contender(RATE), jobs[1].contender(RATE), horizon)
        fluid = fluid_of(jobs, RATE)
        computed, sent = progress(fluid, [0, 1], horizon, plain=plain)
        assert computed.tolist() == pytest.approx([u.compute_s for u in want])
        assert (sent * fluid.traffic).tolist() == pytest.approx([u.traffic_s for u in want])


def test_kernel_equals_reference() -> None:
    pytest.importorskip("numba")
    rng = np.random.default_rng(2)
    for count in [1, 2, 3, 5, 6, 12]:
        for _ in range(6):
            seconds = rng.random((count, 4)) * (rng.random((count, 4)) < 0.5)
            fluid = Fluid(rng.random(count), rng.random(count), seconds)
            level = rng.integers(0, 3, count)
            for kernel, plain in zip(
                progress(fluid, level, 20.0), progress(fluid, level, 20.0, plain=True), strict=True
            ):
                assert kernel.tolist() == pytest.approx(plain.tolist(), abs=1e-6)


@pytest.mark.parametrize("plain", [True, False])
def test_equals_share_max_min_and_the_lower_takes_what_is_left(plain: bool) -> None:
    always = np.zeros(3)
    # a on l, b on both, c on m with half of its speed: level by level and in step.
    seconds = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    fluid = Fluid(always, always, seconds)
    assert progress(fluid, [0, 0, 0], 1000.0, plain=plain)[1].tolist() == pytest.approx([500.0] * 3)
    assert progress(fluid, [1, 0, 1], 1000.0, plain=plain)[1].tolist() == pytest.approx([0, 1000, 0])
    assert progress(fluid, [0, 1, 1], 1000.0, plain=plain)[1].tolist() == pytest.approx([1000, 0, 1000])
    thirds = Fluid(always, always, np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.5]]))
    assert progress(thirds, [0, 0, 0], 300.0, plain=plain)[1].tolist() == pytest.approx([100.0] * 3)


@pytest.mark.parametrize("plain", [True, False])
def test_jobs_without_traffic_or_compute(plain: bool) -> None:
    fluid = Fluid(np.array([1.0, 0.0, 0.0]), np.array([1.0, 0.0, 0.0]), np.array([[0.0], [2.0], [0.0]]))
    computed, sent = progress(fluid, [0, 1, 2], 10.0, plain=plain)
    assert computed.tolist() == pytest.approx([10.0, 0.0, 0.0])
    assert sent[1:].tolist() == pytest.approx([5.0, 0.0])
    assert usual_horizon(Fluid(np.zeros(1), np.zeros(1), np.zeros((1, 0)))) == 0.0


UNFAIR = [
    LinkJob("big", 64, 64e12, 1.0, {"l": 1.0}),
    LinkJob("mid", 8, 5e12, 0.6, {"l": 0.9}),
    LinkJob("small", 8, 1e12, 0.5, {"l": 0.5}),
]


def test_the_cap_is_kept_where_it_can_be_and_costs_utilisation() -> None:
    free = fair_assignment(UNFAIR, RATE, 1.0, Setting(levels=3))
    assert free.met
    assert free.outcome.worst > 0.6
    capped = fair_assignment(UNFAIR, RATE, 0.6, Setting(levels=3))
    assert capped.met
    assert capped.outcome.worst <= 0.6
    assert max(capped.outcome.weight.values()) > 1 or set(capped.outcome.level.values()) == {0}
    assert capped.outcome.utilisation < free.outcome.utilisation
    assert capped.outcome == evaluate(UNFAIR, RATE, capped.assignment.level, capped.outcome.weight)


def test_a_cap_that_nothing_keeps_gets_the_nearest_and_says_so() -> None:
    got = fair_assignment(UNFAIR, RATE, 0.0, Setting(levels=2))
    assert not got.met
    assert got.outcome.worst == min(o.worst for o in got.frontier)


def test_the_frontier_has_nothing_that_another_beats() -> None:
    frontier = fair_assignment(UNFAIR, RATE, 0.5).frontier
    assert len(frontier) >= 2
    worst, used = [o.worst for o in frontier], [o.utilisation for o in frontier]
    assert worst == sorted(worst)
    assert used == sorted(used)
    assert len(set(used)) == len(used)
    poor = Outcome(0.0, {"big": 1.0}, {}, {})
    assert pareto([*frontier, poor]) == frontier


def test_nothing_to_be_unfair_about() -> None:
    alone = fair_assignment(UNFAIR[:1], RATE, 0.0)
    assert alone.met
    assert alone.outcome.worst == 0.0
    assert fair_assignment([], RATE, 0.0).frontier[0].utilisation == 0.0
    with pytest.raises(ValueError, match="must be in"):
        fair_assignment(UNFAIR, RATE, 1.5)
