# SPDX-License-Identifier: Apache-2.0
"""A contended iteration among six, or noise on all, changes no profile by 5 %."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from control_rig import RATE_BPS, job
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.measure.iteration import from_iterations
from controller.measure.selection import Sample
from controller.measure.series import Series
from controller.model.job import Job, Profile
from controller.planner import POLICIES, PlanInput, plan
from topo.generate import leaf_spine

MS = 1_000_000
BIN_NS = 5 * MS
ITERATIONS = 6
TOPOLOGY = leaf_spine(2, 1, 2, host_bps=RATE_BPS, fabric_bps=RATE_BPS)
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


def kinds(one: Job, other: Job) -> tuple[tuple[bool, int], ...]:
    """Of each job whether its plan has slots, and its level."""
    made = plan(PlanInput(TOPOLOGY, (one, other), POLICIES["polyrhythm"], epoch_ns=0))
    return tuple((made.jobs[j.name].period_ns is not None, made.jobs[j.name].level) for j in (one, other))


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


@settings(max_examples=6, deadline=None)
@given(patterns(), st.integers(0, ITERATIONS - 1), st.floats(1.0, 3.0))
def test_two_such_jobs_keep_the_kind_of_their_plan(
    pattern: tuple[float, list[Span]], index: int, pause: float
) -> None:
    period, spans = pattern
    a, b = twins()
    clean = [measured(j, period, spans, Contention()) for j in (a, b)]
    hit = [clean[0], measured(b, period, spans, Contention(index, 1.0, pause * period))]
    assert kinds(*hit) == kinds(*clean)
