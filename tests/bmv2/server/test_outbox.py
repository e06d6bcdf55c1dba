# SPDX-License-Identifier: Apache-2.0
"""Queues to clients that do not read."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from bmv2.server.outbox import Outbox


@given(st.lists(st.tuples(st.sampled_from(["firm", "lossy", "get"]), st.integers(1, 9)), max_size=60))
def test_the_oldest_lossy_items_go_and_the_rest_keeps_its_order(steps):
    """Against a plain list."""
    box, model, lost = Outbox(max_messages=3, max_bytes=12), deque(), 0
    for number, (step, size) in enumerate(steps):
        if step == "get":
            if model:
                assert box.get() == model.popleft()[0]
            continue
        losses = box.put((number, size), lossy=step == "lossy", size=size)
        model.append(((number, size), step == "lossy"))
        dropped = 0
        while step == "lossy":
            waiting = [item for item in model if item[1]]
            if len(waiting) <= 3 and (sum(item[0][1] for item in waiting) <= 12 or len(waiting) == 1):
                break
            model.remove(waiting[0])
            dropped += 1
        assert losses == dropped
        lost += dropped
    assert box.lost == lost
    assert [box.get() for _ in range(len(model))] == [item[0] for item in model]


def test_what_is_lost_takes_no_memory():
    box = Outbox(max_messages=10, max_bytes=1 << 30)
    box.put("first")
    for number in range(5000):
        box.put(number, lossy=True)
    assert box.lost == 4990
    assert len(box._waiting) < 50
    assert [box.get() for _ in range(11)] == ["first", *range(4990, 5000)]


def test_items_that_cannot_be_lost_make_a_crowd():
    box = Outbox(max_messages=2)
    assert [box.put(number) or box.crowded() for number in range(4)] == [False, False, True, True]
    for number in range(9):
        box.put(number, lossy=True)
    assert box.crowded()
    box.get()
    box.get()
    assert not box.crowded()
