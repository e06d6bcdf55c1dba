# SPDX-License-Identifier: Apache-2.0
"""Max-min fair rates of streams of one level, by weight: the plain reference of the compiled kernel's."""

from __future__ import annotations

import math
from collections.abc import Sequence

FULL = 1e-12
"""Shares of links that differ by this part are the same: they come from sums in another order."""


def fair_rates(
    room: Sequence[float],
    flows: Sequence[float],
    weights: Sequence[float],
    caps: Sequence[float],
    links: Sequence[Sequence[int]],
) -> list[float]:
    """The rate of one flow of each stream, in the unit of `room`: what each link carries.

    By stream: its number of `flows`, the `weights` and `caps` of one flow, and its `links`.

    Each flow rises in proportion to its weight until its cap or a full link stops it. A link that carries all
    caps stops nobody. A link that is the first to stop each of its streams is filled by them, whatever
    happens on other links. So streams depend on each other only through links that do not carry all caps, to
    the last bit.
    """
    narrow = _narrow(room, flows, caps, links)
    free, rates, rising = list(room), [0.0] * len(flows), list(range(len(flows)))
    while rising:
        asked = [0.0] * len(room)
        for s in rising:
            for k in narrow[s]:
                asked[k] += flows[s] * weights[s]
        share = [left / wanted if wanted > 0 else math.inf for left, wanted in zip(free, asked, strict=True)]
        water = {s: min([caps[s] / weights[s], *(share[k] for k in narrow[s])]) for s in rising}
        lowest = [math.inf] * len(room)
        for s in rising:
            for k in narrow[s]:
                lowest[k] = min(lowest[k], water[s])
        still = []
        for s in rising:
            if water[s] < caps[s] / weights[s] and all(lowest[k] < share[k] * (1 - FULL) for k in narrow[s]):
                still.append(s)
                continue
            rates[s] = weights[s] * water[s]
            for k in narrow[s]:
                free[k] = max(0.0, free[k] - flows[s] * rates[s])
        rising = still
    return rates


def room_below(
    room: Sequence[float], flows: Sequence[float], rates: Sequence[float], links: Sequence[Sequence[int]]
) -> list[float]:
    """What streams of these `rates` leave of the links for the levels below."""
    used = _sums(len(room), [f * r for f, r in zip(flows, rates, strict=True)], links)
    return [max(0.0, k - u) for k, u in zip(room, used, strict=True)]


def _narrow(
    room: Sequence[float], flows: Sequence[float], caps: Sequence[float], links: Sequence[Sequence[int]]
) -> list[list[int]]:
    """By stream: its links that do not carry all caps."""
    wanted = _sums(len(room), [f * c for f, c in zip(flows, caps, strict=True)], links)
    return [[k for k in own if wanted[k] > room[k]] for own in links]


def _sums(count: int, amounts: Sequence[float], links: Sequence[Sequence[int]]) -> list[float]:
    found = [0.0] * count
    for amount, own in zip(amounts, links, strict=True):
        for k in own:
            found[k] += amount
    return found
