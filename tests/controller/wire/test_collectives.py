# SPDX-License-Identifier: Apache-2.0
"""Collectives as rounds of messages: their bytes against the formulas, and what arrives where."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.wire.collectives import Collective, Round, pair_count, rounds


def sent(found: tuple[Round, ...]) -> dict[int, int]:
    totals: dict[int, int] = defaultdict(int)
    for r in found:
        for src, _ in r.pairs:
            totals[src] += r.total_bytes
    return totals


@pytest.mark.parametrize(
    ("collective", "pairs", "total"),
    [
        (Collective.RING, 8, 8 * 2 * 7 * 100),
        (Collective.ALL_GATHER, 8, 8 * 7 * 100),
        (Collective.REDUCE_SCATTER, 8, 8 * 7 * 100),
        (Collective.TREE, 14, 14 * 800),
        (Collective.ALL_TO_ALL, 56, 56 * 100),
        (Collective.SEND_RECEIVE, 14, 14 * 800),
        # Two members on each of four servers: two rings of four, half of the bytes each, 2 x 3 / 4 of them.
        (Collective.HIERARCHICAL, 8, 8 * 600),
    ],
)
def test_the_bytes_of_800_over_eight_members(collective: Collective, pairs: int, total: int) -> None:
    servers = [f"s{r // 2}" for r in range(8)]
    found = rounds(collective, range(8), 800, servers)
    assert len({p for r in found for p in r.pairs}) == pairs
    assert sum(len(r.pairs) * r.total_bytes for r in found) == total


@given(st.sampled_from(list(Collective)), st.integers(1, 12), st.integers(0, 10**12))
def test_rounds_are_between_members_and_bytes_are_rounded_up(
    collective: Collective, members: int, size: int
) -> None:
    group = [3 * r + 1 for r in range(members)]
    servers = [f"s{r // 6}" for r in range(3 * members + 1)]
    found = rounds(collective, group, size, servers)
    pairs = [p for r in found for p in r.pairs]
    assert all(a != b and a in group and b in group for a, b in pairs)
    assert len(pairs) <= pair_count(collective, members)
    for r in found:
        assert 0 <= r.total_bytes - r.message_bytes * r.times <= 1 + 1e-3
    if members < 2:
        assert found == ()


@given(st.integers(2, 9), st.integers(1, 10**6))
def test_an_all_reduce_by_messages_reduces_every_part_everywhere(members: int, size: int) -> None:
    # Walk the ring round by round: a member that begins with its own part ends with all of them.
    (ring,) = rounds(Collective.RING, range(members), size, ["s"] * members)
    following = dict(ring.pairs)
    holds = {m: {(m, part) for part in range(members)} for m in range(members)}
    for step in range(ring.times):
        moved = {following[m]: {c for c in holds[m] if c[1] == (m - step) % members} for m in range(members)}
        for m, got in moved.items():
            holds[m] |= got
    whole = {(m, part) for m in range(members) for part in range(members)}
    assert all(h == whole for h in holds.values())
    assert ring.message_bytes == size / members


def test_a_tree_reduces_toward_the_first_member_and_back() -> None:
    found = rounds(Collective.TREE, [5, 6, 7, 8, 9], 10, [""] * 10)
    assert [set(r.pairs) for r in found] == [
        {(8, 6), (9, 6)},
        {(6, 5), (7, 5)},
        {(5, 6), (5, 7)},
        {(6, 8), (6, 9)},
    ]
    assert sent(found) == {8: 10, 9: 10, 6: 30, 7: 10, 5: 20}


def test_a_hierarchical_ring_inside_one_server_needs_no_fabric() -> None:
    assert rounds(Collective.HIERARCHICAL, range(4), 100, ["s"] * 4) == ()
    # Servers with three members and with one: one ring over both carries everything.
    (r,) = rounds(Collective.HIERARCHICAL, range(4), 100, ["a", "a", "a", "b"])
    assert r.pairs == ((0, 3), (3, 0))
    assert r.total_bytes == 100
