# SPDX-License-Identifier: Apache-2.0
"""Candidate placements of a job on free hosts, as a scheduler with auctions offers them (thesis, 4.4.3)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

MOST = 10
"""How many placements are offered. Chosen: what a scheduler with auctions offers for one job."""
_TRIES = 50
"""How many random orders of leaves are tried. Chosen: enough for MOST different placements."""


def placements(
    free: Mapping[str, Sequence[str]], hosts: int, *, most: int = MOST, seed: int = 0
) -> list[tuple[str, ...]]:
    """Up to `most` different sets of `hosts` free hosts; `free` names the free hosts of each leaf.

    First come single leaves with enough free hosts, the fullest leaf first. Then several leaves are combined,
    those with the most free hosts first, and then leaves in random orders. The hosts of a leaf are taken in
    the given order. Empty if there are not enough hosts.

    Raises:
        ValueError: `hosts` or `most` is below 1.
    """
    if hosts < 1 or most < 1:
        raise ValueError(f"hosts and most must be whole numbers from 1, not {hosts} and {most}")
    room = {leaf: list(names) for leaf, names in sorted(free.items()) if names}
    if sum(map(len, room.values())) < hosts:
        return []
    found: dict[frozenset[str], tuple[str, ...]] = {}

    def add(leaves: Sequence[str], spread: bool = False) -> None:
        if spread:
            most_on_one = max(len(room[leaf]) for leaf in leaves)
            names = [room[leaf][i] for i in range(most_on_one) for leaf in leaves if i < len(room[leaf])]
        else:
            names = [name for leaf in leaves for name in room[leaf]]
        if len(names) >= hosts and len(found) < most:
            found.setdefault(frozenset(names[:hosts]), tuple(names[:hosts]))

    by_room = sorted(room, key=lambda leaf: (len(room[leaf]), leaf))
    for leaf in by_room:
        if len(room[leaf]) >= hosts:
            add([leaf])
    add(by_room[::-1])
    add(by_room)
    rng = random.Random(seed)
    for i in range(_TRIES):
        order = rng.sample(by_room, len(by_room))
        add(order, spread=i % 2 == 1)
    return list(found.values())
