# SPDX-License-Identifier: Apache-2.0
"""One simulation of a sweep is the one that `polyrhythm sim` runs."""

from dataclasses import replace

import pytest

from polyrhythm.paper.resumable import mark
from polyrhythm.simulated_workload import ClusterOptions, SimulatedWorkload, load_workload, settings_of
from polyrhythm.sweep.point import (
    SOURCES,
    OtherProgramError,
    Point,
    inputs_digest,
    measure,
    task_of,
)
from sim.output import summary
from sim.scheduler import scheduler_named
from sim.simulation import Simulation

POINT = Point("two_vgg19", "two_vgg19", "", "", "polyrhythm", "fifo", 3, 7200.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def workload() -> SimulatedWorkload:
    return load_workload("two_vgg19", None, ClusterOptions(), 3)


def test_a_point_has_the_figures_of_its_simulation(workload: SimulatedWorkload) -> None:
    row = measure(POINT, workload, mark(SOURCES))
    settings = settings_of(workload, 3, replan_delay_ms=0, restore_s=0, until_s=0, samples_s=0)
    simulation = Simulation(
        workload.cluster,
        workload.requests,
        replace(settings, policy="polyrhythm"),
        scheduler=scheduler_named("fifo"),
    )
    simulation.run()
    expected = summary(simulation)
    assert row["summary"] == {name: expected[name] for name in row["summary"]}
    assert [job[0] for job in row["jobs"]] == [request.name for request in workload.requests]


def test_a_worker_with_other_sources_is_refused(workload: SimulatedWorkload) -> None:
    with pytest.raises(OtherProgramError, match="install the same"):
        measure(POINT, workload, "other sources")


def test_a_row_belongs_to_its_inputs_and_options(workload: SimulatedWorkload) -> None:
    other = load_workload("snapshot2", None, ClusterOptions(), 3)
    longer = replace(POINT, lease_s=60.0)
    names = {
        task_of(POINT, inputs_digest(workload)),
        task_of(POINT, inputs_digest(other)),
        task_of(longer, inputs_digest(workload)),
    }
    assert len(names) == 3
    again = load_workload("two_vgg19", None, ClusterOptions(), 3)
    assert task_of(POINT, inputs_digest(again)) in names
