# SPDX-License-Identifier: Apache-2.0
"""The loop of time and space: its fluid by hand and against the kernel, and that it never loses."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from instance_rig import MS, G, random_choice, random_instance

from controller.interleave.circle import SharedLink, score
from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.fluid import plain_lengths, start_of
from controller.interleave.joint.fluid_arrays import fluid_arrays
from controller.interleave.joint.instance import (
    UNSCHEDULED,
    Choice,
    Instance,
    JobTiming,
    JointFlow,
    JointJob,
    Step,
    plain,
)
from controller.interleave.joint.longer_periods import longer_period_timings, overlapping_timings
from controller.interleave.joint.sharing_groups import sharing_groups_of
from controller.interleave.joint.time_sharing import PathCosts, TimeSharing, arrange_paths
from controller.interleave.joint.timings import shared_links
from controller.interleave.link_sharing import SLACK
from controller.planner.loop.initial_plans import single_mechanism_plans
from controller.planner.loop.search import SearchLimits, SearchResult, solve

QUICK = SearchLimits(
    evaluations=60, quick=Effort((1,), 12), thorough=Effort((2, 3), 30), arranged_sets=1, exchanges=200
)


def player(
    name: str, up: float, compute: float, *ways: tuple[int, ...], rate: int = 50, weight: float = 1
) -> JointJob:
    step = Step(round(up * MS), rate * G, round(compute * MS))
    return JointJob(name, weight, (step,), (JointFlow(1.0, tuple(ways)),))


def lengths(instance: Instance, choice: Choice) -> list[float]:
    """Mean iterations in ms over many iterations, by the plain reference."""
    found = Evaluator(instance, plain=True).lengths(choice, Effort((5,), 400))
    return [float(t) / MS for t in found[0]]


def test_two_jobs_of_one_link_by_hand() -> None:
    instance = Instance((player("a", 60, 40, (0,)), player("b", 60, 40, (0,))), (50 * G,))
    alone = plain(instance, (0, 0))
    # Fair sharing keeps the offset d of the starts: d alone, 2 (60 - d) at half the rate, d alone, compute.
    offset = abs(start_of(5, 0, 100) - start_of(5, 1, 100))
    assert 0 < offset < 60
    assert lengths(instance, alone) == pytest.approx([160 - offset] * 2)
    # The job of the highest rank is not disturbed.
    first = replace(alone, level=(0, 1))
    got = lengths(instance, first)
    assert got[0] == pytest.approx(100)
    # The other has gaps of 40 ms: it sends in two, computes in the next, and begins again in the third.
    assert got[1] == pytest.approx(200, rel=0.01)
    easy = Instance((player("a", 40, 60, (0,)), player("b", 40, 60, (0,))), (50 * G,))
    sharing_in_time = Choice((0, 0), (0, 0), ((100 * MS, 0), (100 * MS, 50 * MS)), (False, False))
    assert lengths(easy, sharing_in_time) == pytest.approx([100, 100])
    # 6 ms late is more than 5 % of the period: every other slot is lost.
    late = replace(sharing_in_time, timings=((94 * MS, 0), UNSCHEDULED))
    assert lengths(easy, late)[0] == pytest.approx(188, rel=0.01)


def test_who_does_not_fit_takes_longer_turns() -> None:
    pair = (player("a", 60, 50, (0,)), player("b", 60, 50, (0,)))
    instance = Instance(pair, (50 * G,), slowest=1.5)
    (timings,) = longer_period_timings(instance, (0, 0), (0, 1))
    assert [r[0] / MS for r in timings] == pytest.approx([120.24, 120.24])
    sharing_in_time = replace(plain(instance, (0, 0)), timings=timings)
    assert lengths(instance, sharing_in_time) == pytest.approx([120.24] * 2)
    assert sum(lengths(instance, plain(instance, (0, 0)))) > 250
    # Not allowed to be so slow, nobody is held; twice a round for one is found too.
    assert not list(longer_period_timings(replace(instance, slowest=1.05), (0, 0), (0, 1)))
    uneven = Instance((player("a", 20, 80, (0,)), player("b", 70, 120, (0,))), (50 * G,), slowest=1.5)
    (timings,) = longer_period_timings(uneven, (0, 0), (0, 1))
    assert [r[0] / MS for r in timings] == pytest.approx([100.2, 200.4])
    solved = solve(instance, {"ecmp": (0, 0)}, mltcp=False, limits=QUICK, plain=True, fast=False)
    assert any("longer periods" in step for step in (solved.start, *solved.steps))
    assert solved.utilisation > 1.1 * max(solved.baselines.values())


def test_up_to_ten_jobs_of_a_link_share_it_in_time() -> None:
    def offered(count: int) -> list[tuple[JobTiming, ...]]:
        jobs = tuple(player(f"j{k}", 20, 100, (0,)) for k in range(count))
        instance = Instance(jobs, (50 * G,), slowest=2.0)
        return list(longer_period_timings(instance, (0,) * count, range(count)))

    for timings in (offered(10)[0], offered(11)[0][:10]):
        assert [period / MS for period, _ in timings] == pytest.approx([200.4] * 10)
        assert [shift / MS for shift in sorted(shift for _, shift in timings)] == pytest.approx(
            [20 * k for k in range(10)], abs=0.5
        )
    # Of eleven the last one has no slots.
    assert {timings[10] for timings in offered(11)} == {UNSCHEDULED}


def test_three_jobs_between_three_hosts_send_one_after_another() -> None:
    """Each link has room for its two jobs, but of the three jobs each two share a link."""
    ring = tuple(player(name, 50, 50, way) for name, way in (("a", (0, 1)), ("b", (1, 2)), ("c", (0, 2))))
    instance = Instance(ring, (50 * G,) * 3, slowest=1.6)
    (timings, *_) = longer_period_timings(instance, (0, 0, 0), (0, 1, 2))
    assert [r[0] / MS for r in timings] == pytest.approx([150.3] * 3)
    assert lengths(instance, replace(plain(instance, (0, 0, 0)), timings=timings)) == pytest.approx(
        [150.3] * 3
    )


def test_jobs_with_few_gpus_leave_turns_to_others_if_there_are_not_enough_for_all() -> None:
    jobs = (player("a", 60, 40, (0,), weight=8), player("b", 60, 40, (0,)), player("c", 60, 40, (0,)))
    instance = Instance(jobs, (50 * G,), slowest=2.5)
    (all_turns, *_) = longer_period_timings(instance, (0, 0, 0), (0, 1, 2))
    assert [r[0] / MS for r in all_turns] == pytest.approx([180.36] * 3)
    (fewer, *_) = longer_period_timings(instance, (0, 0, 0), (0, 1, 2), uneven=True)
    assert [r[0] / MS for r in fewer] == pytest.approx([120.24, 240.48, 240.48])
    assert lengths(instance, replace(plain(instance, (0, 0, 0)), timings=fewer)) == pytest.approx(
        [120.24, 240.48, 240.48]
    )
    # Where none may be so slow, or all have their turns anyway, nothing is offered.
    assert not list(longer_period_timings(replace(instance, slowest=2.0), (0, 0, 0), (0, 1, 2), uneven=True))
    easy = Instance(tuple(player(name, 30, 70, (0,)) for name in "abc"), (50 * G,), slowest=2.5)
    assert not list(longer_period_timings(easy, (0, 0, 0), (0, 1, 2), uneven=True))


def test_longer_turns_fit_every_link() -> None:
    rng = random.Random(11)
    found = 0
    for _ in range(30):
        instance = replace(random_instance(rng, rng.choice((2, 3, 4, 5, 10))), slowest=rng.choice([1.2, 2.0]))
        ways = tuple(rng.randrange(2) for _ in instance.flows)
        ranking = rng.sample(range(len(instance.jobs)), len(instance.jobs))
        for timings in longer_period_timings(instance, ways, ranking, uneven=rng.random() < 0.5):
            found += 1
            held = {p.name: r for p, r in zip(instance.jobs, timings, strict=True) if r != UNSCHEDULED}
            assert len(held) > 1
            for p in instance.jobs:
                period = held.get(p.name, (p.alone_ns, 0))[0]
                assert p.alone_ns <= period <= instance.slowest * p.alone_ns
            for link in shared_links(instance, ways):
                demands = {j: d for j, d in link.demands.items() if j in held}
                kept = SharedLink(link.name, link.rate_bps, demands)
                periods, shifts = ({j: held[j][i] for j in demands} for i in (0, 1))
                if len(demands) > 1:
                    assert score(kept, periods, shifts, slack=SLACK) >= 0.99
    assert found > 20


def test_bursts_that_fit_no_gap_overlap_a_little() -> None:
    """Two bursts of 76 ms each with gaps of 63 and 67 ms: no period below 432 ms keeps two such jobs apart."""
    steps = (Step(76 * MS, 50 * G, 63 * MS), Step(76 * MS, 50 * G, 67 * MS))
    pair = tuple(JointJob(name, 1, steps, (JointFlow(1.0, ((0,),)),)) for name in "ab")
    instance = Instance(pair, (50 * G,), jitter=0.01, slowest=2.0)
    together = replace(plain(instance, (0, 0)), timings=((432 * MS, 0), (432 * MS, 0)))
    assert lengths(instance, together) == pytest.approx([432, 432], rel=0.01)
    best = min(
        max(lengths(instance, replace(together, timings=timings)))
        for timings in overlapping_timings(instance, (0, 0))
    )
    assert 304 < best < 325
    solved = solve(instance, {"ecmp": (0, 0)}, mltcp=False, limits=QUICK, plain=True, fast=False)
    assert "slots that overlap" in solved.start
    assert solved.utilisation > 1.05 * max(solved.baselines.values())


def test_overlapping_timings_are_no_longer_than_allowed() -> None:
    rng = random.Random(12)
    found = 0
    for _ in range(40):
        instance = replace(random_instance(rng, rng.randint(2, 5)), slowest=rng.choice([1.2, 2.0]))
        ways = tuple(rng.randrange(2) for _ in instance.flows)
        for timings in overlapping_timings(instance, ways):
            found += 1
            for p, (period, shift) in zip(instance.jobs, timings, strict=True):
                if (period, shift) != UNSCHEDULED:
                    assert p.alone_ns <= period <= instance.slowest * p.alone_ns * 1.001
                    assert 0 <= shift < period
    assert found > 20


def test_other_links_do_not_matter_and_mltcp_takes_turns() -> None:
    apart = Instance((player("a", 60, 40, (0,)), player("b", 60, 40, (1,))), (50 * G,) * 2)
    assert lengths(apart, plain(apart, (0, 0))) == [100, 100]
    easy = Instance((player("a", 40, 60, (0,)), player("b", 40, 60, (0,))), (50 * G,), jitter=0.01)
    fair = plain(easy, (0, 0))
    mltcp = replace(fair, mltcp=(True, True))
    assert max(lengths(easy, mltcp)) < 102


@pytest.mark.parametrize("seed", range(3))
def test_iterations_of_a_minute_come_to_an_end(seed: int) -> None:
    """Late in a run of an hour a double holds no time as short as the last bits take."""
    rng = random.Random(seed)
    short = player("short", rng.uniform(300, 500), 70, (0,), rate=rng.randint(300, 400))
    long = player("long", rng.uniform(40_000, 46_000), 300, (0,), rate=rng.randint(300, 400))
    instance = Instance((short, long), (400 * G,), 0.01)
    choice, effort = replace(plain(instance, (0, 0)), level=(0, 1)), Effort((1,), 80)
    (got,) = Evaluator(instance, plain=True).lengths(choice, effort)
    assert got[0] == pytest.approx(short.alone_ns, rel=0.01)
    assert got[1] > long.alone_ns
    assert np.array_equal(got, Evaluator(instance).lengths(choice, effort)[0])


def test_the_kernel_is_the_reference_to_the_last_bit() -> None:
    pytest.importorskip("numba")
    rng = random.Random(3)
    for _ in range(25):
        instance = random_instance(rng, rng.randint(1, 5))
        choice = random_choice(rng, instance)
        evaluator, effort = Evaluator(instance), Effort((1, 2), 15)
        for part in sharing_groups_of(instance, choice):
            if part.undisturbed:
                continue
            fast = evaluator.of_group(part, effort)
            slow = Evaluator(instance, plain=True).of_group(part, effort)
            assert np.array_equal(fast, slow)


def test_lengths_never_fall_below_alone() -> None:
    rng = random.Random(4)
    for _ in range(10):
        instance = random_instance(rng, 4, jitter=0.0)
        choice = random_choice(rng, instance)
        for part in sharing_groups_of(instance, choice):
            own = [float(instance.jobs[j].alone_ns) for j in part.jobs]
            found = plain_lengths(fluid_arrays(instance, part), part.jobs, (1,), own, 20 * max(own))
            assert (found[0] >= np.array(own) * (1 - 1e-9)).all()


def test_board_counts_what_it_moves() -> None:
    rng = random.Random(5)
    instance = random_instance(rng, 4)
    time_sharing = TimeSharing(instance)
    costs = PathCosts(instance, (0,) * len(instance.flows), time_sharing)
    for f in range(len(instance.flows)):
        before, change = costs.cost, costs.change(((f, 1),))
        assert costs.cost == pytest.approx(before)
        costs.take(((f, 1),))
        assert costs.cost == pytest.approx(before + change)
        assert costs.cost == pytest.approx(PathCosts(instance, costs.path_choice, time_sharing).cost)
    first = (0,) * len(instance.flows)
    kept = arrange_paths(instance, first, time_sharing, exchanges=200)
    assert PathCosts(instance, kept, time_sharing).cost <= PathCosts(instance, first, time_sharing).cost


def found(instance: Instance, seed: int = 0) -> SearchResult:
    ways = tuple(seed % 2 for _ in instance.flows)
    return solve(instance, {"ecmp": ways}, limits=QUICK, plain=True, fast=False, seed=seed)


@pytest.mark.slow
def test_it_is_never_worse_than_any_mechanism_alone_and_says_what_it_did() -> None:
    rng = random.Random(6)
    better = 0
    for seed in range(4):
        instance = random_instance(rng, 3, jitter=0.01)
        ours = found(instance, seed)
        assert ours == found(instance, seed)
        evaluator = Evaluator(instance, plain=True)
        assert float(evaluator.utilisation(ours.choice, QUICK.thorough).mean()) == pytest.approx(
            ours.utilisation
        )
        named = dict(
            single_mechanism_plans(instance, {"ecmp": tuple(seed % 2 for _ in instance.flows)}, mltcp=True)
        )
        for name, choice in named.items():
            value = float(evaluator.utilisation(choice, QUICK.thorough).mean())
            assert ours.baselines[name] == pytest.approx(value)
            assert ours.utilisation >= value
        better += ours.utilisation > max(ours.baselines.values()) * 1.01
        assert ours.evaluations <= QUICK.evaluations + 60
    assert better >= 1


def test_it_joins_paths_and_turns_where_neither_is_enough() -> None:
    """Two links, four jobs: two fit together on each, but only with the right partner and in turns."""
    both = ((0,), (1,))
    jobs = (
        player("a", 40, 60, *both),
        player("b", 60, 60, *both),
        player("c", 40, 60, *both),
        player("d", 60, 60, *both),
    )
    instance = Instance(jobs, (50 * G,) * 2, jitter=0.002)
    start = (0, 0, 1, 1)
    ours = solve(instance, {"ecmp": start}, limits=QUICK, plain=True, fast=False)
    assert max(ours.baselines.values()) < 0.9 * ours.bound
    assert ours.utilisation > 0.98 * ours.bound
    ways = ours.choice.path_choice
    assert ways[0] == ways[2] != ways[1] == ways[3]
