# SPDX-License-Identifier: Apache-2.0
"""MLTCP as a fluid against the thesis' convergence and its closed form; its increase rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.interleave.mltcp_fluid import FluidJob, offsets, run
from hostagent.nic.mltcp import SHAPES, linear

RISING = [name for name in SHAPES if not name.startswith("2-")]


def pair(start: float, up: float = 100, compute: float = 150, jitter: float = 0) -> list[FluidJob]:
    return [FluidJob(0, up, compute, jitter), FluidJob(start, up, compute, jitter)]


def test_convergence_of_the_thesis() -> None:
    found = offsets(run(pair(20), linear, 5))
    assert found == pytest.approx([20, 66.7, 94.1, 99.2, 99.9], rel=0.01)


@settings(max_examples=30, deadline=None)
@given(st.floats(1, 99), st.floats(0.2, 5), st.floats(0.1, 1))
def test_one_iteration_is_the_closed_form(start: float, slope: float, intercept: float) -> None:
    found = offsets(run(pair(start), lambda r: slope * r + intercept, 2, step_ms=0.05))
    shift = slope * start * (100 - start) / (100 * intercept + slope * start)
    assert found[1] == pytest.approx(start + shift, rel=2e-3, abs=0.02)


@pytest.mark.parametrize("name", SHAPES)
def test_rising_shapes_take_turns_and_falling_ones_do_not(name: str) -> None:
    last = offsets(run(pair(20), SHAPES[name], 15))[-1]
    if name in RISING:
        assert last == pytest.approx(100, abs=0.5)
    else:
        assert last < 1


def test_even_shares_leave_jobs_as_they_are() -> None:
    assert offsets(run(pair(20), None, 6)) == pytest.approx([20] * 6, abs=0.01)


def test_noise_moves_jobs_that_begin_together_apart() -> None:
    assert offsets(run(pair(0), linear, 30))[-1] == pytest.approx(0, abs=1e-6)
    apart = abs(offsets(run(pair(0, jitter=1), linear, 30, seed=2))[-1])
    assert 90 <= min(apart, 250 - apart) <= 125


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 200), st.floats(10, 100), st.floats(0, 200))
def test_the_link_is_never_idle_nor_overfull(start: float, up: float, compute: float) -> None:
    spans = run([FluidJob(0, up, compute), FluidJob(start, up * 0.7, compute)], linear, 4)
    events = sorted(
        (t, change, job)
        for job in (0, 1)
        for span in spans[job]
        for t, change in zip(span, (1, -1), strict=True)
    )
    # While jobs send, exactly the link's rate goes through: per busy stretch, bytes equal its length.
    end = min(done[-1][1] for done in spans)
    busy = begin = 0.0
    open_, sent = 0, 0.0
    for t, change, job in events:
        if t > end + 1e-6:
            break
        if open_ == 0:
            begin, sent = t, 0.0
        open_ += change
        if change < 0:
            sent += up if job == 0 else up * 0.7
        if open_ == 0:
            busy = t - begin
            assert busy == pytest.approx(sent, rel=1e-6)
    assert end > 0


def test_shapes_go_from_a_quarter_to_two_or_back() -> None:
    for name, shape in SHAPES.items():
        ends = (0.25, 2.0) if name in RISING else (2.0, 0.25)
        assert (shape(0.0), shape(1.0)) == pytest.approx(ends)
        steps = [shape(k / 50) for k in range(51)]
        assert steps == sorted(steps, reverse=name not in RISING)
