# SPDX-License-Identifier: Apache-2.0
"""Rates within a level are max-min fair by weight, and depend only on what shares a full link."""

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
    found = fair_rates(room + room, *columns(mixed))
    assert [found[i] for i in kept] == fair_rates(room, flows, weights, caps, links)


def test_a_link_that_carries_all_caps_stops_nobody() -> None:
    assert fair_rates([100.0], (1, 1), (1.0, 1.0), (90.0, 10.0), [[0], [0]]) == [90.0, 10.0]
    assert fair_rates([math.inf], (1,), (1.0,), (5.0,), [[0]]) == [5.0]
