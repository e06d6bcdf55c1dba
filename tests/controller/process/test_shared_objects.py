# SPDX-License-Identifier: Apache-2.0
"""What both processes have travels as a number, and an object stays the same object."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model import Flow, Job, Phase, Profile
from controller.model.flow_plans import FlowPlans, with_flows
from controller.planner import POLICIES, PlanInput, first_plan, plan
from controller.process import shared_objects
from controller.process.shared_objects import ObjectReceiver, ObjectSender, SharedMessage
from topo.generate import leaf_spine

FABRIC = leaf_spine(4, 4, 8, host_bps=1_000, fabric_bps=1_000)


def job(name: str) -> Job:
    return Job(name, "test", 1, ("h1",), Profile(1, ()), 0.0, ())


def size(message: SharedMessage) -> int:
    return sum(len(data) for _, data in message.new)


def test_only_what_changed_travels() -> None:
    sender, receiver = ObjectSender(), ObjectReceiver()
    x = PlanInput(FABRIC, (job("a"), job("b")), POLICIES["polyrhythm"], 0)
    first = sender.message(x)
    there = receiver.content(first)
    assert there == x
    second = sender.message(replace(x, jobs=(*x.jobs[1:], job("c"))))
    assert size(second) < size(first) / 10
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


def sending_job(name: str, src: str, dst: str) -> Job:
    flows = (Flow(f"{name}/0", name, src, dst, 10**6),)
    return Job(name, "test", 1, (src, dst), Profile(100, (Phase(0, 50, 1_000),)), 1e9, flows)


def test_plans_come_back_with_the_objects_of_the_sender() -> None:
    """For many plans: the fabric, the flows of jobs, and what has not changed since the plan before."""
    sender, receiver = ObjectSender(), ObjectReceiver()
    jobs = tuple(sending_job(f"j{n}", f"h{n + 1}", f"h{n + 9}") for n in range(12))
    before, sizes = None, []
    for n in range(10):
        x = PlanInput(FABRIC, jobs[n : n + 3], POLICIES["polyrhythm"], 0, previous=before)
        made = first_plan(receiver.content(sender.message(x)))
        data = receiver.answer(made)
        here = sender.result(data)
        sender.know(receiver.keep(made), here)
        assert here == made
        assert isinstance(here.flows, FlowPlans)
        assert here.flows.topology is FABRIC
        assert all(here.flows.jobs[job.name].flows is job.flows for job in x.jobs)
        if before is not None:
            assert isinstance(before.flows, FlowPlans)
            same = [name for name in before.jobs if here.flows.jobs.get(name) is before.flows.jobs[name]]
            assert same == [job.name for job in jobs[n : n + 2]]
            assert set(here.flows.changed_since(before.flows)) == {f"j{n + 2}/0"}
        sizes.append(len(data))
        before = here
    assert max(sizes) < 3_000
    assert before is not None
    # A plan that was changed here goes back without the fabric and the columns that have not changed.
    moved = replace(before, flows=with_flows(before.flows, dict(before.flows)))
    message = sender.message(moved)
    assert size(message) < 3_000
    there = receiver.content(message)
    assert there == moved
    assert there.flows.topology is made.flows.topology
    assert [there.flows.jobs[job] is made.flows.jobs[job] for job in before.jobs] == [True] * 3


def test_a_job_with_another_profile_keeps_its_flows() -> None:
    sender, receiver = ObjectSender(), ObjectReceiver()
    one = sending_job("a", "h1", "h9")
    there = receiver.content(sender.message(one))
    again = receiver.content(sender.message(replace(one, profile=Profile(200, ()))))
    assert again == replace(one, profile=Profile(200, ()))
    assert again.flows is there.flows


def test_an_argument_may_come_back() -> None:
    sender, receiver = ObjectSender(), ObjectReceiver()
    one = sending_job("a", "h1", "h9")
    for _ in range(3):
        there = receiver.content(sender.message(one))
        back = sender.result(receiver.answer((there, there.flows, "text")))
        assert back[0] is one
        assert back[1] is one.flows
        sender.know(receiver.keep(there), back[0])


def test_what_the_receiver_was_given_never_travels() -> None:
    receiver, there = ObjectReceiver(), pickle.loads(pickle.dumps(FABRIC))
    receiver.give(there)
    # Also after a sender that was lost.
    for _ in range(2):
        message = ObjectSender(FABRIC).message((FABRIC, job("a")))
        assert size(message) < 300
        assert receiver.content(message)[0] is there
