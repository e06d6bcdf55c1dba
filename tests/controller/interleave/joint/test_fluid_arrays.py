# SPDX-License-Identifier: Apache-2.0
"""What links carry in the fluid model: all of it, or less where packets wait."""

from __future__ import annotations

import pytest

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.fair_rates import CONTROL, MOST_CONTROL
from controller.interleave.joint.instance import Instance, JointFlow, JointJob, Step, plain

MS = 1_000_000
EFFORT = Effort((1, 2), 40)


def sending(name: str, rate: int, path: tuple[int, ...], up: float) -> JointJob:
    """A job that sends `up` of 100 ms over the links of `path`."""
    return JointJob(name, 1.0, (Step(up * MS, rate, (100 - up) * MS),), (JointFlow(1.0, (path,)),))


def lengths(rates: tuple[int, ...], capacity: int, *, up: float = 60.0, queue: bool = True) -> list[float]:
    """The iteration of jobs that send `up` of 100 ms at these rates over one link, in ms, without jitter."""
    jobs = tuple(sending(f"job{i}", rate, (0,), up) for i, rate in enumerate(rates))
    instance = Instance(jobs, (capacity,), 0.0, queues=(queue,))
    found = Evaluator(instance).lengths(plain(instance, (0,) * len(jobs)), EFFORT)
    return [float(ns) / MS for ns in found.mean(axis=0)]


@pytest.mark.parametrize("mbps", [24, 333, 51_000])
def test_jobs_that_a_link_just_carries_lose_nothing(mbps: int) -> None:
    """Four jobs fill it together. One of them meets a fifth on another link, so that these are simulated."""
    rate = mbps * 250_000
    paths = ((0,), (0,), (0,), (0, 1), (1,))
    jobs = tuple(sending(f"job{i}", rate, path, 60.0) for i, path in enumerate(paths))
    instance = Instance(jobs, (4 * rate, rate), 0.0, queues=(True, True))
    found = Evaluator(instance).lengths(plain(instance, (0,) * len(jobs)), EFFORT).mean(axis=0) / MS
    assert found[:3] == pytest.approx([100.0] * 3, rel=1e-9)
    assert min(found[3:]) > 115


def test_where_packets_wait_control_packets_take_their_part_of_the_link() -> None:
    """Eight jobs always fill the link, so their iterations are in proportion to its rate."""
    at = 25_000_000
    without, found = (lengths((at,) * 8, at, queue=queue)[0] for queue in (False, True))
    assert without == pytest.approx(480, rel=0.02)
    assert found == pytest.approx(without / (1 - CONTROL), rel=0.002)


def test_at_a_real_rate_they_take_little() -> None:
    at = 50_000_000_000
    without, found = (lengths((at,) * 8, at, queue=queue)[0] for queue in (False, True))
    assert found == pytest.approx(without / (1 - MOST_CONTROL / 50), rel=0.0005)
