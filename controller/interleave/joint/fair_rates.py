# SPDX-License-Identifier: Apache-2.0
"""Rates of streams of one level, by weight: the plain reference of the compiled kernel's.

They are max-min fair, but for streams that wait in more than one queue of the fabric."""

from __future__ import annotations

import math
from collections.abc import Sequence

FULL = 1e-12
"""Shares of links that differ by this part are the same: they come from sums in another order."""
EMPTY_TRIP = 25 / 40
"""The round trip through empty queues, in the time in which a sender at line rate fills its window
(`hostagent.nic.dcqcn`: 25 of 40 packets)."""

CONTROL = 0.02
"""The part of a link that acknowledgements and CNPs take where more than SELDOM_MARKED flows wait in its
queue. Chosen: under 114 plans of `polyrhythm paper battery` the evaluator is off by 2.1 % with 0, and by
1.8 % with 0.02 and 0.03; with 0.03 it expects less under ECMP than packets reach. Up to 0.45 CNPs of 74 bytes
come for each packet of 1,082 bytes."""
MOST_CONTROL = 0.12
"""The most that they take, in bit/ns: CNPs of ten flows, each of which gets one in 50 us at most (Zhu et al.,
SIGCOMM 2015, section 3.3). The emulated NICs send more, for their links are slower."""
SELDOM_MARKED = 2
"""So few flows find a rate at which their queue is short. Chosen: two flows fill a link on packets."""
NIC_WAIT = 0.36
"""The part of `queued` by which a full NIC delays a flow that also waits in a queue. Chosen: on the emulated
NICs such a flow gets 0.80 of one that waits in the queue alone."""


def fair_rates(
    room: Sequence[float],
    flows: Sequence[float],
    weights: Sequence[float],
    caps: Sequence[float],
    links: Sequence[Sequence[int]],
    queues: Sequence[bool] = (),
    control: Sequence[float] = (),
    above: Sequence[float] = (),
) -> list[float]:
    """The rate of one flow of each stream, in the unit of `room`: what each link carries.

    By stream: its number of `flows`, the `weights` and `caps` of one flow, and its `links`. By link: whether
    packets that want it wait in a queue of the fabric (`queues`; empty: none do), what acknowledgements and
    CNPs take of it where many do (`control`; empty: nothing), and how many flows of higher levels wait there
    (`above`; empty: none).

    Each flow rises in proportion to its weight until its cap or a full link stops it. A link that carries all
    caps stops nobody. A link that is the first to stop each of its streams is filled by them, whatever
    happens on other links. So streams depend on each other only through links that do not carry all caps, to
    the last bit.

    A window of packets makes a round trip through all queues on its path. So a flow through two full queues
    gets less than one that waits in one of them only, and a flow through three still less; marks add up in
    the same way (DCQCN's multi-bottleneck case: Zhu et al., SIGCOMM 2015). With 1 / share as the round trip
    through one queue, this multiplies the weight of such a flow by `behind`. A NIC that flows share fills no
    queue. But a flow that both hold back gets less too: when its marks let it send faster, its NIC does not.
    """
    narrow = _narrow(room, flows, caps, links)
    if control:
        waiting = sums(len(room), flows, links)
        higher = above or [0.0] * len(room)
        many = [c * (n + m > SELDOM_MARKED) for c, n, m in zip(control, waiting, higher, strict=True)]
        room = [max(0.0, free - own) for free, own in zip(room, many, strict=True)]
    rates, shares, alone = _filled(room, flows, weights, caps, narrow, queues)
    lower, fewer = list(weights), False
    for s, own in enumerate(narrow):
        full = [k for k in own if alone[k]]
        least = min((shares[k] for k in full if queues[k]), default=math.inf)
        if len(full) > 1 and least < math.inf:
            trips = 0.0
            for k in full:
                trips += queued(shares[k], caps[s]) * (1.0 if queues[k] else NIC_WAIT)
            part = behind(least, trips - queued(least, caps[s]), rates[s] / weights[s])
            lower[s] *= part
            fewer |= part < 1
    return _filled(room, flows, lower, caps, narrow, queues)[0] if fewer else rates


def queued(share: float, cap: float) -> float:
    """What a full queue adds to the round trip of a flow of line rate `cap`, where flows that wait in no
    other queue get `share`. The unit is the time in which a window is sent at the rate 1.
    """
    return max(0.0, 1 / share - EMPTY_TRIP / cap)


def behind(least: float, others: float, water: float) -> float:
    """By what the weight of a flow is multiplied that waits in several queues. `least` is the smallest share
    of their flows, `others` the sum of `queued` over the other queues, `water` its own rate by its weight
    without this. Not above 1.
    """
    return min(1.0, 1 / ((1 / least + others) * water)) if water > 0 else 1.0


def _filled(
    room: Sequence[float],
    flows: Sequence[float],
    weights: Sequence[float],
    caps: Sequence[float],
    narrow: Sequence[Sequence[int]],
    queues: Sequence[bool],
) -> tuple[list[float], list[float], list[bool]]:
    """Max-min fair rates by stream. By link: the share at which it was filled, and whether it alone stops
    some stream: where all streams of a link are stopped by another one too, no queue grows. A NIC alone stops
    a stream that no queue does."""
    free, rates, rising = list(room), [0.0] * len(flows), list(range(len(flows)))
    shares, alone = [math.inf] * len(room), [False] * len(room)
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
            full = [k for k in narrow[s] if lowest[k] >= share[k] * (1 - FULL)]
            capped = water[s] >= caps[s] / weights[s]
            if not capped and not full:
                still.append(s)
                continue
            rates[s] = weights[s] * water[s]
            there = [k for k in full if queues and share[k] > 0]
            waits = [k for k in there if queues[k]] or there
            for k in there:
                shares[k] = share[k]
            for k in waits:
                alone[k] = alone[k] or (not capped and len(waits) == 1)
            for k in narrow[s]:
                free[k] = max(0.0, free[k] - flows[s] * rates[s])
        rising = still
    return rates, shares, alone


def room_below(
    room: Sequence[float], flows: Sequence[float], rates: Sequence[float], links: Sequence[Sequence[int]]
) -> list[float]:
    """What streams of these `rates` leave of the links for the levels below."""
    used = sums(len(room), [f * r for f, r in zip(flows, rates, strict=True)], links)
    return [max(0.0, k - u) for k, u in zip(room, used, strict=True)]


def _narrow(
    room: Sequence[float], flows: Sequence[float], caps: Sequence[float], links: Sequence[Sequence[int]]
) -> list[list[int]]:
    """By stream: its links that do not carry all caps."""
    wanted = sums(len(room), [f * c for f, c in zip(flows, caps, strict=True)], links)
    return [[k for k in own if wanted[k] > room[k]] for own in links]


def sums(count: int, amounts: Sequence[float], links: Sequence[Sequence[int]]) -> list[float]:
    """By link, of which there are `count`: the sum of the `amounts` of the streams that use it."""
    found = [0.0] * count
    for amount, own in zip(amounts, links, strict=True):
        for k in own:
            found[k] += amount
    return found
