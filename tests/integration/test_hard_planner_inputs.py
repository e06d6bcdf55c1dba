# SPDX-License-Identifier: Apache-2.0
"""Inputs that are hard on the search: each gets a plan after little work, no job starves, and `why` says so."""

from __future__ import annotations

import random

import pytest
from loop_rig import MS, RATE

from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.fluid import Between
from controller.interleave.joint.fluid_arrays import Floats
from controller.interleave.joint.sharing_groups import SharingGroup
from controller.model import Flow, Job, Phase, Profile
from controller.planner import POLICIES, PlanInput, plan
from topo.generate import leaf_spine

OURS = POLICIES["polyrhythm"]
MOST_WORK = 2_000_000
"""The most work of the evaluator for one plan. The compiled loops do about a million a second."""
Shape = tuple[float, float]
"""Period and Up phase in ms."""
HARD: dict[str, tuple[Shape, ...]] = {
    "forty equal jobs": ((260, 120),) * 40,
    "one job sends all the time": ((200, 200), (200, 80)),
    "two jobs send all the time": ((200, 200), (200, 200)),
    "one of three jobs sends all the time": ((200, 200), (150, 80), (310, 120)),
    "a thousand times slower": ((10, 5), (10_000, 5_000)),
    "a thousand times slower, which fits": ((10, 3), (10_000, 4)),
    "two fast jobs and a slow one": ((10, 5), (12, 5), (10_000, 5_000)),
    "a hundred thousand times slower": ((1, 0.5), (100_000, 50_000)),
    "a hundred thousand times slower, which fits": ((1, 0.3), (100_000, 0.5)),
    "periods of all sizes": tuple((10 * 1.9**k, 4 * 1.9**k) for k in range(10)),
    "fast and slow jobs": tuple((10 + k, 4) for k in range(5)) + tuple((9_000 + k, 3_000) for k in range(5)),
    "profiles measured at a jitter of half the compute time": tuple(
        (80 + 120 * random.Random(k).uniform(0.5, 1.5), 80) for k in range(6)
    ),
}


def job(number: int, jobs: int, period_ms: float, up_ms: float) -> Job:
    """A job between one host of each of two leaves."""
    name, (a, b) = f"j{number:02}", (f"h{number + 1}", f"h{jobs + number + 1}")
    period, up = round(period_ms * MS), round(up_ms * MS)
    size = max(2048, RATE * up // 8_000_000_000)
    flows = tuple(Flow(f"{name}/{s}>{d}", name, s, d, size) for s, d in ((a, b), (b, a)))
    return Job(name, "model", 2, (a, b), Profile(period, (Phase(0, up, RATE),)), 1e12, flows)


@pytest.mark.parametrize("case", HARD)
def test_hard_inputs_are_planned_with_little_work_and_nobody_starves(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = 0
    compute = Evaluator._compute

    def counted(self: Evaluator, group: SharingGroup, effort: Effort, between: Between) -> Floats:
        nonlocal work
        before = self.work_done
        found = compute(self, group, effort, between)
        work += self.work_done - before
        return found

    monkeypatch.setattr(Evaluator, "_compute", counted)
    shapes = HARD[case]
    fabric = leaf_spine(2, 1, len(shapes), host_bps=RATE, fabric_bps=RATE)
    jobs = tuple(job(i, len(shapes), *shape) for i, shape in enumerate(shapes))
    made = plan(PlanInput(fabric, jobs, OURS, 0, seed=1))
    assert work <= MOST_WORK
    for j in made.jobs.values():
        assert "evaluated plans" in j.why or "one level for all, so that no job starves" in j.why
        if j.floor_ns is not None:
            assert j.expected_ns is not None
            assert j.expected_ns <= j.floor_ns
    if all(j.floor_ns is None for j in made.jobs.values()):
        assert {j.level for j in made.jobs.values()} == {0}
        assert all(j.period_ns is None for j in made.jobs.values())


def test_equal_jobs_that_the_spines_divide_unevenly_are_treated_alike() -> None:
    """Over 8 draws of ECMP one of 39 equal jobs is much faster than the others by chance, and no plan keeps that
    for it. So every plan breaks a limit: that is no reason to let 10 of 20 jobs on a link starve."""
    fabric = leaf_spine(2, 2, 39, host_bps=RATE, fabric_bps=RATE)
    jobs = tuple(job(i, 39, 260, 120) for i in range(39))
    made = plan(PlanInput(fabric, jobs, OURS, 0, seed=1))
    by_paths: dict[tuple[object, ...], set[tuple[int, int | None]]] = {}
    for j in jobs:
        paths = tuple(made.flows[f.name].path[2] for f in j.flows)  # type: ignore[index]
        planned = made.jobs[j.name]
        by_paths.setdefault(paths, set()).add((planned.level, planned.period_ns))
    assert all(len(ways) == 1 for ways in by_paths.values())
    assert "no evaluated plan is without harm" in made.jobs["j08"].why
