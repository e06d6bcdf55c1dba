# SPDX-License-Identifier: Apache-2.0
"""Slow jobs are shortened for an evaluation: little changes, and the work is bounded."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from instance_rig import MS, G, random_instance

from controller.interleave.joint import evaluator as under_test
from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import Instance, JointFlow, JointJob, Step, plain
from controller.interleave.joint.time_scales import shortening


def job(name: str, period_ms: float, up: float) -> JointJob:
    step = Step(round(up * period_ms * MS), 50 * G, round((1 - up) * period_ms * MS))
    return JointJob(name, 1.0, (step,), (JointFlow(1.0, ((0,),)),))


def test_only_gaps_are_shortened_and_scheduled_jobs_are_not() -> None:
    assert shortening([100, 250, 7_000], [False] * 3) == [1.0, 1.0, 1.0]
    factors = shortening([10, 20_000, 12, 10_000], [False] * 4)
    assert factors[0] == factors[2] == 1.0
    # Both slow jobs are shortened alike, to at most 32 iterations of the next faster job.
    assert factors[1] == factors[3] <= 32 * 12 / 10_000
    assert factors[1] >= 8 * 12 / 10_000
    assert shortening([10, 20_000, 12, 10_000], [False, False, False, True]) == [1.0] * 4


@pytest.mark.parametrize("seed", range(4))
def test_the_means_are_those_of_the_whole_evaluation(seed: int) -> None:
    rng = random.Random(seed)
    fast = [job(f"fast{i}", 10 * rng.uniform(1, 2), rng.uniform(0.2, 0.4)) for i in range(2)]
    slow = job("slow", 4_000 * rng.uniform(1, 2), rng.uniform(0.3, 0.6))
    instance = Instance((*fast, slow), (50 * G,), 0.01)
    choice, effort = plain(instance, (0, 0, 0)), Effort((1, 2), 12)
    short, whole = Evaluator(instance), Evaluator(instance)
    got = short.lengths(choice, effort)
    with patch.object(under_test, "shortening", lambda own, fixed: [1.0] * len(own)):
        expected = whole.lengths(choice, effort)
    assert got.mean(axis=0) == pytest.approx(expected.mean(axis=0), rel=0.1)
    assert float(short.used(got).mean()) == pytest.approx(float(whole.used(expected).mean()), rel=0.03)
    assert short.work_done < 0.1 * whole.work_done


def test_jobs_of_like_periods_are_evaluated_as_they_are() -> None:
    rng = random.Random(5)
    for _ in range(10):
        own = [float(j.alone_ns) for j in random_instance(rng, 4).jobs]
        assert shortening(own, [False] * 4) == [1.0] * 4
