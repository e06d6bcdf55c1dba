# SPDX-License-Identifier: Apache-2.0
"""The evaluator's expected iterations against packets, and what strict priority may cost on packets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from host_bench import FRAME, MS, RATE
from one_link import OneLink, TrainingJob

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.instance import (
    UNSCHEDULED,
    Choice,
    Instance,
    JointFlow,
    JointJob,
    plain,
    steps_of,
)
from controller.model import Phase, Profile
from hostagent.host import measured_profile

Phases = tuple[tuple[float, float, float], ...]


@cache
def alone(phases: Phases) -> Profile:
    """The profile of a job that has the link for itself."""
    link = OneLink(1)
    job = TrainingJob(link, "job", 0, phases)
    link.run(round(5 * MS * sum(up + down for up, _, down in phases)))
    found = measured_profile(job.records, job.spec)
    return Profile(found.period_ns, tuple(Phase(p.start_ns, p.end_ns, p.rate_bps) for p in found.phases))


def on_one_cable(shapes: Sequence[Phases], queues: tuple[bool, ...] = ()) -> Instance:
    """Jobs that send both ways over the cable, with the profiles that they have alone."""
    both_ways = (JointFlow(1.0, ((0,),)), JointFlow(1.0, ((1,),)))
    return Instance(
        tuple(JointJob(f"job{i}", 1.0, steps_of(alone(p)), both_ways) for i, p in enumerate(shapes)),
        (RATE, RATE),
        queues=queues,
    )


def test_strict_priority_costs_no_more_than_the_time_of_higher_levels() -> None:
    """The bound is the response time of fixed priorities (Joseph and Pandya, 1986), in each iteration."""
    shapes = ((40.0, 160.0), (60.0, 160.0), (50.0, 190.0))
    link = OneLink(3)
    jobs = [
        TrainingJob(link, "abc"[i], i, ((up, 1.0, down),), level=i, start_ms=7.0 * i)
        for i, (up, down) in enumerate(shapes)
    ]
    link.run(5_000 * MS)
    for i, (job, (up, down)) in enumerate(zip(jobs, shapes, strict=True)):
        sends = own = up + 1.5
        while True:
            higher = sum(math.ceil(sends / (u + d)) * (u + 1.5) for u, d in shapes[:i])
            if own + higher <= sends:
                break
            sends = own + higher
        longest = max(r.end_ns - r.start_ns for r in job.records[1:]) / MS
        assert longest < sends + down + 4
        assert sum(qp.retransmits for qp in job.senders) <= len(job.records)


def test_a_job_that_two_higher_levels_starve_uses_every_gap() -> None:
    """a and b leave 20 of 260 ms. c needs 120, so it sends in at most seven of these gaps."""
    link = OneLink(3)
    jobs = [TrainingJob(link, "abc"[i], i, ((120.0, 1.0, 140.0),), level=i, start_ms=i) for i in range(3)]
    link.run(9_000 * MS)
    for job in jobs[:2]:
        assert job.mean_ms() == pytest.approx(261.5, abs=1.5)
    starved = jobs[2]
    assert max(r.end_ns - r.start_ns for r in starved.records) / MS < 7 * 262
    assert sum(qp.retransmits for qp in starved.senders) < 20 * len(starved.records)


@pytest.mark.parametrize(
    ("shapes", "levels", "slots"),
    [
        ([((90.0, 1.0, 60.0),), ((70.0, 1.0, 110.0),), ((50.0, 1.0, 80.0),)], (0, 0, 0), None),
        ([((60.0, 1.0, 90.0),), ((50.0, 1.0, 60.0), (40.0, 1.0, 50.0)), ((30.0, 1.0, 70.0),)], (1, 0, 2), None),
        ([((70.0, 1.0, 90.0),), ((70.0, 1.0, 90.0),), ((60.0, 1.0, 40.0),)], (0, 0, 1), [(165, 0), (165, 80), None]),
    ],
)  # fmt: skip
def test_the_evaluator_foretells_packets(
    shapes: list[Phases], levels: tuple[int, ...], slots: list[tuple[int, int] | None] | None
) -> None:
    count = len(shapes)
    kept = slots or [None] * count
    on_packets = np.zeros(count)
    for draw in range(2):
        link = OneLink(count, seed=draw)
        jobs = [
            TrainingJob(
                link, "abc"[i], i, phases, level=levels[i], start_ms=(31.0 * i + 43.0 * draw) % 100, slot=kept[i]
            )
            for i, phases in enumerate(shapes)
        ]  # fmt: skip
        link.run(5_000 * MS)
        on_packets += [job.mean_ms() / 2 for job in jobs]
    timings = tuple(UNSCHEDULED if s is None else (s[0] * MS, s[1] * MS) for s in kept)
    choice = Choice((0,) * 2 * count, levels, timings, (False,) * count)
    evaluator = Evaluator(on_one_cable(shapes), plain=True)
    expected = evaluator.lengths(choice, Effort((1, 2, 3, 4), 40))
    assert expected.mean(axis=0) / MS == pytest.approx(on_packets, rel=0.1)
    (used,) = evaluator.used(on_packets[None, :] * MS)
    assert evaluator.used(expected).mean() == pytest.approx(used, rel=0.05)


def test_a_message_of_a_little_more_than_a_window_waits_twice_for_the_windows_of_ten_jobs() -> None:
    """Two jobs send 43 packets, three more than a window. If these waited once, they would take 0.74 of the time."""
    frame = 8e3 * FRAME / RATE
    shapes: list[Phases] = [*[((43 * frame, 1.0, 30.0),)] * 2, *[((100 * frame, 1.0, 60.0),)] * 8]
    count = len(shapes)
    link = OneLink(count, queue_packets=1024)
    jobs = [
        TrainingJob(link, f"job{i}", i, phases, start_ms=(31.0 * i) % 100) for i, phases in enumerate(shapes)
    ]
    link.run(6_000 * MS)
    instance = on_one_cable(shapes, queues=(True, True))
    choice = plain(instance, (0,) * 2 * count)
    expected = Evaluator(instance, plain=True).lengths(choice, Effort((1, 2), 30)).mean(axis=0)
    assert expected / MS == pytest.approx([job.mean_ms() for job in jobs], rel=0.1)
