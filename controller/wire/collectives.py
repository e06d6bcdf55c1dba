# SPDX-License-Identifier: Apache-2.0
"""Collective communication as rounds of messages between ranks.

This is the only expansion of collectives: scenarios, `polyrhythm route`, agents and the simulator use it. The
simulator sends the rounds one after another; everything else needs only the bytes of an iteration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise


class Collective(StrEnum):
    """What the members of a group do together. RING, TREE and HIERARCHICAL are all-reduces.

    RING, ALL_GATHER and REDUCE_SCATTER run around a ring of the members, HIERARCHICAL around rings of
    servers. SEND_RECEIVE passes bytes along the group from each member to the next, and back.
    """

    RING = "ring"
    TREE = "tree"
    HIERARCHICAL = "hierarchical"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND_RECEIVE = "send_receive"


@dataclass(frozen=True, slots=True)
class Round:
    """A round: each of `pairs` (sender, receiver) carries a message of `size` / `parts` bytes.

    The round happens `times` times, one after another. No rank begins a round before all have ended the one
    before.
    """

    pairs: tuple[tuple[int, int], ...]
    size: float
    parts: int = 1
    times: int = 1

    @property
    def message_bytes(self) -> float:
        """One message of one pair."""
        return self.size / self.parts

    @property
    def total_bytes(self) -> int:
        """What each pair carries over all times, rounded up to whole bytes."""
        return math.ceil(Fraction(self.size) * self.times / self.parts)


def rounds(
    collective: Collective, group: Sequence[int], size: float, servers: Sequence[str]
) -> tuple[Round, ...]:
    """The rounds of a collective over the ranks in `group`. Rank r is on servers[r].

    `size` is in bytes: the buffer that is reduced or gathered, what each member gives into an all-to-all, or
    what a member sends to its neighbour. With n members a pair of neighbours carries

    - ring all-reduce: 2 (n - 1) messages of size / n (routing paper, 5.1; Megatron-LM, 3.2);
    - all-gather and reduce-scatter: n - 1 messages of size / n each;
    - binary tree: `size` up every edge and `size` down, level by level;
    - hierarchical ring: of the w members that every server has at least, each runs a ring over the servers
      with size / w. What moves inside a server is no message here;
    - all-to-all: size / n from each member to each other;
    - send and receive: `size` each way.

    A group of one member sends nothing.
    """
    n = len(group)
    if n < 2:
        return ()
    around = tuple((group[i], group[(i + 1) % n]) for i in range(n))
    if collective is Collective.RING:
        return (Round(around, size, n, 2 * (n - 1)),)
    if collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        return (Round(around, size, n, n - 1),)
    if collective is Collective.ALL_TO_ALL:
        pairs = tuple((group[i], group[(i + k) % n]) for k in range(1, n) for i in range(n))
        return (Round(pairs, size, n),)
    if collective is Collective.SEND_RECEIVE:
        return (Round(tuple(p for a, b in pairwise(group) for p in ((a, b), (b, a))), size),)
    if collective is Collective.TREE:
        return _tree(group, size)
    return _hierarchical(group, size, servers)


def pair_count(collective: Collective, members: int) -> int:
    """How many pairs a group of so many members has at most; known without making them."""
    if members < 2:
        return 0
    if collective is Collective.ALL_TO_ALL:
        return members * (members - 1)
    return members if collective not in (Collective.TREE, Collective.SEND_RECEIVE) else 2 * (members - 1)


def _tree(group: Sequence[int], size: float) -> tuple[Round, ...]:
    """Reduce to group[0] over a binary tree, level by level, then broadcast back down."""
    up: list[Round] = []
    first = 0
    while 2 * first + 1 < len(group):
        children = range(2 * first + 1, min(len(group), 4 * first + 3))
        up.append(Round(tuple((group[c], group[(c - 1) // 2]) for c in children), size))
        first = 2 * first + 1
    down = [Round(tuple((parent, child) for child, parent in level.pairs), size) for level in up]
    return (*reversed(up), *down)


def _hierarchical(group: Sequence[int], size: float, servers: Sequence[str]) -> tuple[Round, ...]:
    members: dict[str, list[int]] = {}
    for rank in group:
        members.setdefault(servers[rank], []).append(rank)
    n, width = len(members), min(map(len, members.values()))
    if n < 2:
        return ()
    places = list(members.values())
    pairs = tuple((places[k][i], places[(k + 1) % n][i]) for i in range(width) for k in range(n))
    return (Round(pairs, size, width * n, 2 * (n - 1)),)
