# SPDX-License-Identifier: Apache-2.0
"""What jobs want of links, and which jobs share full ones, against plain loops over flows and links."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.interleave.joint.evaluator import Effort
from controller.interleave.joint.instance import Instance, JointFlow, JointJob, Step
from controller.interleave.joint.sharing_groups import demands_on, sharing_of

LINKS = 6
paths = st.lists(st.integers(0, LINKS - 1), max_size=3, unique=True).map(tuple)
flows = st.lists(st.lists(paths, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4)
jobs = st.lists(st.tuples(st.integers(1, 5), flows), min_size=1, max_size=5)


def instance_of(drawn: list[tuple[int, list[tuple[tuple[int, ...], ...]]]]) -> Instance:
    return Instance(
        tuple(
            JointJob(f"j{i}", 1.0, (Step(10, rate, 10),), tuple(JointFlow(1.0, c) for c in listed))
            for i, (rate, listed) in enumerate(drawn)
        ),
        (6,) * LINKS,
    )


@given(jobs, st.data())
def test_they_are_those_of_the_paths_and_the_instance_that_are_asked_for(
    drawn: list[tuple[int, list[tuple[tuple[int, ...], ...]]]], data: st.DataObject
) -> None:
    instance = instance_of(drawn)
    # An equal instance has an answer of its own, and several choices are asked for in turn, some of them twice.
    for asked in (instance, instance_of(drawn), instance):
        for _ in range(3):
            choice = [data.draw(st.integers(0, len(f.candidate_paths) - 1)) for _, f in asked.flows]
            wanted = [[0.0] * len(asked.jobs) for _ in range(LINKS)]
            for (j, flow), path in zip(asked.flows, choice, strict=True):
                for link in flow.candidate_paths[path]:
                    wanted[link][j] += asked.jobs[j].steps[0].rate_bps
            for _ in range(2):
                found = demands_on(asked, choice)
                used = {k: {j: r for j, r in enumerate(rates) if r} for k, rates in enumerate(wanted)}
                assert found.by_link == {k: rates for k, rates in used.items() if rates}
                assert found.full == {
                    k for k, rates in enumerate(wanted) if sum(rates) > asked.capacity_bps[k]
                }
            on_full = {j for k in found.full for j in found.by_link[k]}
            shared = {j for group in sharing_of(asked, choice).groups if len(group) > 1 for j in group}
            assert shared <= on_full


def test_an_effort_within_a_limit_of_work_has_fewer_iterations() -> None:
    effort = Effort((1, 2), 12, 0.1)
    assert effort.within(100, 100, 4) == effort
    assert effort.within(100, 0, 4) == effort
    assert effort.within(50, 100, 4) == Effort((1, 2), 6, 0.1)
    assert effort.within(1, 100, 4) == Effort((1, 2), 4, 0.1)
    assert Effort((1,), 3).within(1, 100, 4).iterations == 3
