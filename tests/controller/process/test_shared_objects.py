# SPDX-License-Identifier: Apache-2.0
"""What both processes have travels as a number, and an object stays the same object."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model import Job, Profile
from controller.planner import POLICIES, PlanInput, plan
from controller.process import shared_objects
from controller.process.shared_objects import ObjectReceiver, ObjectSender
from topo.generate import leaf_spine

FABRIC = leaf_spine(4, 4, 8, host_bps=1_000, fabric_bps=1_000)


def job(name: str) -> Job:
    return Job(name, "test", 1, ("h1",), Profile(1, ()), 0.0, ())


def test_only_what_changed_travels() -> None:
    sender, receiver = ObjectSender(), ObjectReceiver()
    x = PlanInput(FABRIC, (job("a"), job("b")), POLICIES["polyrhythm"], 0)
    first = sender.message(x)
    there = receiver.content(first)
    assert there == x
    second = sender.message(replace(x, jobs=(*x.jobs[1:], job("c"))))
    assert len(second.new) < len(first.new) / 10
    again = receiver.content(second)
    assert again.topology is there.topology
    assert again.jobs[0] is there.jobs[1]
    assert again.jobs[1] == job("c")


def test_a_result_that_was_kept_goes_back_as_a_number() -> None:
    sender, receiver = ObjectSender(), ObjectReceiver()
    x = PlanInput(FABRIC, (), POLICIES["polyrhythm"], 0)
    made = plan(receiver.content(sender.message(x)))
    here = replace(made)
    sender.know(receiver.keep(made), here)
    message = sender.message(replace(x, previous=here))
    assert not message.new
    assert receiver.content(message).previous is made
    assert receiver.keep("a text") == 0


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=12), st.integers(1, 4))
def test_what_is_dropped_is_sent_again(rounds: list[list[int]], most: int) -> None:
    jobs = [job(str(n)) for n in range(10)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(shared_objects.KEPT, Job, most)
        sender, receiver = ObjectSender(), ObjectReceiver()
        for numbers in rounds:
            chosen = [jobs[n] for n in numbers]
            assert receiver.content(sender.message(chosen)) == chosen
            assert len(receiver._objects) <= max(most, len(set(numbers)))


def test_a_new_sender_starts_anew() -> None:
    receiver, a, b = ObjectReceiver(), job("a"), job("b")
    receiver.content(ObjectSender().message((a, b)))
    lost, sender = ObjectSender(), ObjectSender()
    lost.message((b, a))
    assert receiver.content(sender.message((b,))) == (b,)
    assert len(receiver._objects) == 1
