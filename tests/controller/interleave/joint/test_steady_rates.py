# SPDX-License-Identifier: Apache-2.0
"""Short bursts of a higher level: where the levels below see their mean, and what that is worth."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.fluid_arrays import fluid_arrays
from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, JointFlow, JointJob, Step
from controller.interleave.joint.sharing_groups import sharing_groups_of
from controller.interleave.joint.steady_rates import SENT, LeveledStream, steady_rates

MS, M, G = 1_000_000, 1_000_000, 1_000_000_000
FIRST, SECOND = 0, 1
QUEUES = {FIRST: True, SECOND: True}
CAPACITY = {FIRST: 0.025, SECOND: 0.025}
EFFORT = Effort((1, 2, 3), 30)


def stream(level: int, links: tuple[int, ...], **more: object) -> LeveledStream:
    values: dict[str, object] = {"flows": 1, "rate": 0.025, "burst": 17.0 * MS, "mean": 0.006, "free": True}
    return LeveledStream(level=level, links=links, **(values | more))  # type: ignore[arg-type]


TOP = stream(0, (SECOND,))
LOW = (stream(1, (FIRST, SECOND), flows=6), stream(1, (FIRST,), flows=2))


def test_flows_that_wait_in_another_queue_too_see_the_mean_of_a_short_burst() -> None:
    assert steady_rates((TOP, *LOW), CAPACITY, QUEUES)[0] == 0.006


@pytest.mark.parametrize(
    ("streams", "queues"),
    [
        ((replace(TOP, burst=60.0 * MS), *LOW), QUEUES),
        ((replace(TOP, free=False), *LOW), QUEUES),
        ((replace(TOP, rate=0.03), *LOW), QUEUES),
        ((TOP, *LOW, stream(1, (SECOND,))), QUEUES),
        ((TOP, *LOW), {FIRST: True, SECOND: False}),
        ((TOP, *LOW), {FIRST: False, SECOND: True}),
    ],
    ids=[
        "long burst",
        "slots or MLTCP",
        "stopped itself",
        "one queue only",
        "in a NIC",
        "the other is a NIC",
    ],
)
def test_else_they_see_what_is_sent(streams: tuple[LeveledStream, ...], queues: dict[int, bool]) -> None:
    assert steady_rates(streams, CAPACITY, queues)[0] == SENT


def instance(bps: int) -> tuple[Instance, Choice]:
    """`top` bursts on the second link, where six jobs follow that share the first link with three others."""
    jobs = (
        JointJob("top", 32.0, (Step(17 * MS, bps, 53 * MS),), (JointFlow(1.0, ((SECOND,),)),)),
        *(
            JointJob(f"both{i}", 2.0, (Step(30 * MS, bps, 95 * MS),), (JointFlow(1.0, ((FIRST, SECOND),)),))
            for i in range(6)
        ),
        *(
            JointJob(f"one{i}", 2.0, (Step(12 * MS, bps, 95 * MS),), (JointFlow(1.0, ((FIRST,),)),))
            for i in range(3)
        ),
    )
    return Instance(jobs, (bps, bps), 0.01, queues=(True, True)), Choice(
        (0,) * 10, (0,) + (1,) * 9, (UNSCHEDULED,) * 10, (False,) * 10
    )


def first_link(bps: int) -> float:
    """The part of the time in which the first link is used."""
    given, choice = instance(bps)
    lengths = Evaluator(given).lengths(choice, EFFORT).mean(axis=0)
    assert lengths[0] == pytest.approx(70 * MS, rel=0.01)
    return float((30 * MS / lengths[1:7]).sum() + (12 * MS / lengths[7:]).sum())


def test_the_first_link_stays_busy_only_where_windows_outlast_the_burst() -> None:
    """At 25 Mbit/s a window takes 14 ms to send, at 50 Gbit/s 7 us. CNPs take 2 % of the link."""
    assert first_link(25 * M) > 0.88
    assert first_link(50 * G) < 0.83


def test_the_kernel_gives_the_reference_to_the_last_bit_with_steady_rates() -> None:
    pytest.importorskip("numba")
    rng = random.Random(5)
    given, choice = instance(25 * M)
    seen = 0
    for _ in range(4):
        levels = tuple(rng.choice((1, 1, 2)) for _ in range(9))
        drawn = replace(choice, level=(0, *levels))
        (group,) = sharing_groups_of(given, drawn)
        seen += int((fluid_arrays(given, group).steady != SENT).sum())
        kernel = Evaluator(given, work_done=10**6).lengths(drawn, EFFORT)
        assert np.array_equal(kernel, Evaluator(given, plain=True).lengths(drawn, EFFORT))
    assert seen >= 4
