# SPDX-License-Identifier: Apache-2.0
"""Rates within a level are max-min fair by weight, but for flows that wait in several queues. They depend
only on what shares a full link."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.interleave.joint.fair_rates import fair_rates, room_below

NEAR = 1e-9
amounts = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0])
streams = st.lists(
    st.tuples(
        st.integers(1, 4),
        amounts,
        st.sampled_from([10.0, 25.0, 100.0]),
        st.sets(st.integers(0, 5), min_size=1),
    ),
    min_size=1,
    max_size=10,
)
rooms = st.lists(st.sampled_from([0.0, 20.0, 50.0, 100.0]), min_size=6, max_size=6)


def columns(rows):
    flows, weights, caps, links = zip(*rows, strict=True)
    return flows, weights, caps, [sorted(own) for own in links]


@given(rooms, streams)
def test_each_stream_has_its_cap_or_a_full_link_on_which_none_has_more(room, rows) -> None:
    flows, weights, caps, links = columns(rows)
    rates = fair_rates(room, flows, weights, caps, links)
    used = [sum(f * r for f, r, own in zip(flows, rates, links, strict=True) if k in own) for k in range(6)]
    assert all(u <= free * (1 + NEAR) for u, free in zip(used, room, strict=True))
    for rate, weight, cap, own in zip(rates, weights, caps, links, strict=True):
        assert rate <= cap * (1 + NEAR)
        highest = {
            k: max(r / w for r, w, other in zip(rates, weights, links, strict=True) if k in other)
            for k in own
        }
        stopped = [
            k for k in own if used[k] >= room[k] * (1 - NEAR) and rate / weight >= highest[k] * (1 - NEAR)
        ]
        assert rate >= cap * (1 - NEAR) or stopped
    below = room_below(room, flows, rates, links)
    assert below == pytest.approx([max(0.0, a - b) for a, b in zip(room, used, strict=True)])


@given(rooms, streams, streams)
def test_streams_on_other_links_change_nothing_to_the_last_bit(room, rows, others) -> None:
    flows, weights, caps, links = columns(rows)
    apart = [(f, w, c, {k + 6 for k in own}) for f, w, c, own in others]
    mixed = [row for pair in zip(rows, apart, strict=False) for row in pair] + rows[len(apart) :]
    kept = [i for i, row in enumerate(mixed) if max(row[3]) < 6]
    for queues in ((), (True, True, False) * 2):
        found = fair_rates(room + room, *columns(mixed), queues + queues)
        assert [found[i] for i in kept] == fair_rates(room, flows, weights, caps, links, queues)


def test_a_link_that_carries_all_caps_stops_nobody() -> None:
    assert fair_rates([100.0], (1, 1), (1.0, 1.0), (90.0, 10.0), [[0], [0]]) == [90.0, 10.0]
    assert fair_rates([math.inf], (1,), (1.0,), (5.0,), [[0]]) == [5.0]


@given(rooms, streams)
def test_waiting_in_several_queues_leaves_no_link_overfull_and_no_stream_without_a_reason(room, rows) -> None:
    flows, weights, caps, links = columns(rows)
    rates = fair_rates(room, flows, weights, caps, links, (True,) * 6)
    used = [sum(f * r for f, r, own in zip(flows, rates, links, strict=True) if k in own) for k in range(6)]
    assert all(u <= free * (1 + NEAR) for u, free in zip(used, room, strict=True))
    for rate, cap, own in zip(rates, caps, links, strict=True):
        assert rate >= cap * (1 - NEAR) or any(used[k] >= room[k] * (1 - NEAR) for k in own)


# How many flows pass both links, the first one only, and the second one only; and the share of the first
# link that one of those through both got on packets: NICs and embedded switches, 5 s at 16.7 Mbit/s.
THROUGH_TWO_QUEUES = ((1, 1, 1, 0.371), (2, 2, 2, 0.181), (1, 3, 3, 0.148))


@pytest.mark.parametrize(("both", "first", "second", "on_packets"), THROUGH_TWO_QUEUES)
def test_a_flow_that_waits_in_two_queues_gets_less_than_one_that_waits_in_one(
    both: int, first: int, second: int, on_packets: float
) -> None:
    links = [[0, 1]] * both + [[0]] * first + [[1]] * second
    count = len(links)
    args = [1.0, 1.0], [1.0] * count, [1.0] * count, [1.0] * count, links
    fair = 1 / (both + first)
    assert fair_rates(*args) == pytest.approx([fair] * count)
    rates = fair_rates(*args, (True, True))
    assert rates[0] == pytest.approx(on_packets, rel=0.05)
    assert rates[-1] == pytest.approx((1 - both * rates[0]) / second)


def test_a_link_that_only_passes_on_what_another_one_lets_through_is_no_second_queue() -> None:
    args = [1.0, 1.0], [1.0] * 3, [1.0] * 3, [1.0] * 3, [[0, 1], [0, 1], [0]]
    assert fair_rates(*args, (True, True)) == fair_rates(*args)


# Flows through a NIC and a queue, through that NIC only, and through that queue only; what one through both got on
# packets of one through the queue only: 9 s at 25 Mbit/s, on one leaf.
THROUGH_NIC_AND_QUEUE = ((1, 1, 1, 0.806), (2, 2, 2, 0.811))


@pytest.mark.parametrize(("both", "nic", "queue", "on_packets"), THROUGH_NIC_AND_QUEUE)
def test_a_flow_that_its_nic_and_a_queue_hold_back_gets_less_than_one_that_the_queue_does(
    both: int, nic: int, queue: int, on_packets: float
) -> None:
    links = [[0, 1]] * both + [[0]] * nic + [[1]] * queue
    count = len(links)
    args = [1.0, 1.0], [1.0] * count, [1.0] * count, [1.0] * count, links
    rates = fair_rates(*args, (False, True))
    assert rates[0] / rates[-1] == pytest.approx(on_packets, rel=0.06)
    assert rates[both] == pytest.approx((1 - both * rates[0]) / nic)
    assert fair_rates(*args, (False, False)) == fair_rates(*args)


def test_a_nic_that_stops_no_flow_alone_holds_back_none() -> None:
    args = [1.0, 1.0], [1.0] * 3, [1.0] * 3, [1.0] * 3, [[0, 1], [0, 1], [1]]
    assert fair_rates(*args, (False, True)) == fair_rates(*args)


def test_acknowledgements_and_cnps_take_their_part_only_where_more_than_two_flows_fill_a_queue() -> None:
    two, three, queues = [[0]] * 2, [[0]] * 3, (True,)
    assert fair_rates([98.0], (1,) * 3, (1.0,) * 3, (80.0, 10.0, 8.0), three, queues, [2.0]) == [
        80.0,
        10.0,
        8.0,
    ]
    assert fair_rates([98.0], (1,) * 3, (1.0,) * 3, (90.0,) * 3, three, queues, [2.0]) == [32.0] * 3
    assert fair_rates([98.0], (1, 2), (1.0,) * 2, (90.0,) * 2, two, queues, [2.0]) == [32.0] * 2
    assert fair_rates([98.0], (1,) * 2, (1.0,) * 2, (90.0,) * 2, two, queues, [2.0]) == [49.0] * 2
    assert fair_rates([1.0], (1,) * 3, (1.0,) * 3, (90.0,) * 3, three, queues, [2.0]) == [0.0] * 3


def test_what_acknowledgements_and_cnps_of_higher_levels_take_is_not_left_for_the_levels_below() -> None:
    three, one, control = [[0]] * 3, [[0]], [2.0]
    rates = fair_rates([98.0], (1,) * 3, (1.0,) * 3, (90.0,) * 3, three, (True,), control)
    left = room_below([98.0], (1,) * 3, rates, three)
    assert left == [2.0]
    assert fair_rates(left, (1,), (1.0,), (90.0,), one, (True,), control, [3.0]) == [0.0]
    assert fair_rates([30.0], (1,), (1.0,), (90.0,), one, (True,), control, [2.0]) == [28.0]
    assert fair_rates([30.0], (1,), (1.0,), (90.0,), one, (True,), control, [1.0]) == [30.0]
