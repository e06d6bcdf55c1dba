# SPDX-License-Identifier: Apache-2.0
"""What was computed for earlier plans is found again, and changes no result."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from instance_rig import random_choice, random_instance

from controller.interleave.joint import evaluator as evaluators
from controller.interleave.joint.evaluator import Effort, Evaluator
from controller.interleave.joint.fluid import plain_lengths
from controller.interleave.joint.fluid_arrays import fluid_arrays
from controller.interleave.joint.instance import UNSCHEDULED, Choice, Instance, JointFlow
from controller.interleave.joint.known_groups import KnownGroups, key_of
from controller.interleave.joint.sharing_groups import sharing_groups_of

EFFORT = Effort((1, 2), 6)


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> KnownGroups:
    known = KnownGroups()
    monkeypatch.setattr(evaluators, "KNOWN", known)
    return known


def beside(instance: Instance, choice: Choice) -> tuple[Instance, Choice]:
    """The same with one more job, which shares a full link with no other."""
    link = len(instance.capacity_bps)
    job = replace(instance.jobs[0], name="one more", flows=(JointFlow(1.0, ((link,),)),) * 2)
    rate = max(step.rate_bps for step in job.steps)
    capacity, queues = (*instance.capacity_bps, rate), instance.queues and (*instance.queues, True)
    return (
        replace(instance, jobs=(*instance.jobs, job), capacity_bps=capacity, queues=queues),
        Choice(
            (*choice.path_choice, 0, 0),
            (*choice.level, 0),
            (*choice.timings, UNSCHEDULED),
            (*choice.mltcp, False),
        ),
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_change_of_one_group_computes_no_other_and_gives_what_the_whole_gives(
    seed: int, store: KnownGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    instance = random_instance(rng, rng.randint(2, 5))
    choice = random_choice(rng, instance)
    Evaluator(instance).lengths(choice, EFFORT)
    before = len(store)
    larger, changed = beside(instance, choice)
    found = Evaluator(larger).lengths(changed, EFFORT)
    assert len(store) == before + 1
    assert np.array_equal(found, Evaluator(larger, plain=True).lengths(changed, EFFORT))

    def never(*_: object) -> None:
        raise AssertionError("computed again")

    # The job leaves again: nothing is left to compute, and the work counts as before.
    monkeypatch.setattr(evaluators, "plain_lengths", never)
    monkeypatch.setattr(evaluators, "_compiled", lambda: never)
    again = Evaluator(instance)
    found = again.lengths(choice, EFFORT)
    assert again.work_done == again.cost(choice, EFFORT)
    monkeypatch.undo()
    assert np.array_equal(found, Evaluator(instance, plain=True).lengths(choice, EFFORT))


def test_every_number_of_a_group_is_part_of_its_key() -> None:
    rng = random.Random(3)
    parts: list[object] = []
    while not parts:
        instance = random_instance(rng, 4)
        groups = sharing_groups_of(instance, random_choice(rng, instance))
        parts = [g for g in groups if len(g.jobs) > 1 and g.streams]
    arrays = fluid_arrays(instance, parts[0])
    salts, starts = np.array([[1, 2]]), np.array([[0.5, 1.5]])
    keys = {key_of(arrays, salts, starts, 9.0), key_of(arrays, salts, starts, 9.5)}
    keys |= {key_of(arrays, salts + 1, starts, 9.0), key_of(arrays, salts, starts + 1, 9.0)}
    for name, value in arrays._asdict().items():
        more = ~value if name in ("mltcp", "queues") else value + 1
        keys.add(key_of(arrays._replace(**{name: more}), salts, starts, 9.0))
    infinite = sum(bool(np.isinf(value).all()) for value in arrays)
    assert len(keys) == 4 + len(arrays) - infinite


def test_the_results_used_last_are_kept() -> None:
    store = KnownGroups(most_bytes=3 * 400)
    for name in (b"a", b"b", b"c"):
        store.keep(name, np.zeros((1, 10)))
    assert store.get(b"a") is not None
    store.keep(b"d", np.zeros((1, 10)))
    assert [store.get(name) is not None for name in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    kept = store.get(b"a")
    assert kept is not None
    assert not kept.flags.writeable


def test_the_reference_computes_everything(store: KnownGroups) -> None:
    rng = random.Random(1)
    instance = random_instance(rng, 4)
    Evaluator(instance, plain=True).lengths(random_choice(rng, instance), EFFORT)
    assert not len(store)
    assert evaluators.plain_lengths is plain_lengths
