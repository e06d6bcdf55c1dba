# SPDX-License-Identifier: Apache-2.0
"""The figures of the report, against cases worked by hand."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrhythm.run.figures import (
    JobFigures,
    MeasuredIteration,
    geometric_speedup,
    gpu_utilisation,
    jain_index,
    job_figures,
    pooled,
    speedup,
    worst_job,
)

MS = 1_000_000


def records(*ends_ms: list[float], marks: int = 0) -> list[MeasuredIteration]:
    """One worker per argument: the ends of its iterations."""
    made = []
    for rank, ends in enumerate(ends_ms):
        start = 0.0
        for index, end in enumerate(ends):
            made.append(MeasuredIteration(rank, index, round(start * MS), round(end * MS), 0, marks, 1))
            start = end
    return made


def test_an_iteration_ends_with_its_last_worker() -> None:
    figures = job_figures(records([100, 210, 300], [101, 200, 330], marks=3), warmup=1, iterations=2)
    assert figures.iterations_ms == pytest.approx((109, 120))
    assert figures.mean_ms == pytest.approx(114.5)
    assert figures.ecn_marks_per_iteration == 6
    assert figures.retransmits_per_iteration == 2


def test_unfinished_iterations_are_not_made_up() -> None:
    with pytest.raises(ValueError, match="iteration 2"):
        job_figures(records([100, 200, 300], [100, 200]), warmup=1, iterations=2)


def test_p99_is_interpolated() -> None:
    figures = JobFigures(tuple(float(x) for x in range(1, 101)), 0, 0)
    assert figures.p99_ms == pytest.approx(99.01)


def test_utilisation_weighs_jobs_by_their_gpus() -> None:
    jobs = {"a": JobFigures((150.0, 250.0), 0, 0), "b": JobFigures((100.0,), 0, 0)}
    # (8 x 100 / 200 + 2 x 70 / 100) / (8 + 2)
    assert gpu_utilisation({"a": 8, "b": 2}, {"a": 100, "b": 70}, jobs) == pytest.approx(0.54)


def test_a_slow_job_does_not_decide_the_utilisation_of_all() -> None:
    # As long as job a computes half of the time, job b of the same size, which starves, cannot hide it.
    jobs = {"a": JobFigures((200.0,) * 50, 0, 0), "b": JobFigures((60_000.0,) * 50, 0, 0)}
    assert gpu_utilisation({"a": 4, "b": 4}, {"a": 100, "b": 100}, jobs) == pytest.approx(0.2508, abs=1e-4)


def test_who_loses_and_how_fair_it_is() -> None:
    def figures(a: float, b: float) -> dict[str, JobFigures]:
        return {"a": JobFigures((a,), 0, 0), "b": JobFigures((b,), 0, 0)}

    alone, ecmp, ours = figures(100, 100), figures(200, 200), figures(100, 300)
    assert worst_job(ecmp, ours) == ("b", 1.5)
    assert worst_job(ecmp, figures(100, 150)) == ("b", 0.75)
    assert geometric_speedup(ecmp, ours) == pytest.approx((2 * 2 / 3) ** 0.5)
    assert jain_index(alone, ecmp) == pytest.approx(1)
    # Throughputs 1 and 1/3.
    assert jain_index(alone, ours) == pytest.approx((4 / 3) ** 2 / (2 * 10 / 9))


def test_speedup_is_the_mean_of_the_jobs_ratios() -> None:
    base = {"a": JobFigures((300.0,), 0, 0), "b": JobFigures((100.0,), 0, 0)}
    ours = {"a": JobFigures((200.0,), 0, 0), "b": JobFigures((100.0,), 0, 0)}
    assert speedup(base, ours, "mean_ms") == pytest.approx(1.25)


def test_draws_are_pooled() -> None:
    both = pooled([JobFigures((1.0, 2.0), 4, 1), JobFigures((3.0,), 2, 3)])
    assert both == JobFigures((1.0, 2.0, 3.0), 3.0, 2.0)


@given(
    st.lists(st.tuples(st.integers(1, 32), st.floats(1, 500), st.floats(1, 900)), min_size=2, max_size=8),
    st.randoms(),
)
def test_the_order_of_the_jobs_changes_no_digit(jobs: list[tuple[int, float, float]], random: Random) -> None:
    """The jobs of a window are a set of names, whose order is another one in each process."""
    names = [f"j{n}" for n in range(len(jobs))]
    figures = {
        name: JobFigures((compute + up,), 0, 0) for name, (_, compute, up) in zip(names, jobs, strict=True)
    }
    compute_ms = {name: compute for name, (_, compute, _) in zip(names, jobs, strict=True)}
    gpus = {name: count for name, (count, _, _) in zip(names, jobs, strict=True)}
    alone = {name: JobFigures((compute_ms[name],), 0, 0) for name in names}
    mixed = random.sample(names, len(names))
    other = {name: figures[name] for name in mixed}
    assert gpu_utilisation(gpus, compute_ms, other) == gpu_utilisation(gpus, compute_ms, figures)
    assert jain_index(alone, other) == jain_index(alone, figures)
