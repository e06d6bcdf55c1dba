# SPDX-License-Identifier: Apache-2.0
"""The rates of the compiled fluid model. Import this module only where it runs, because it imports Numba."""

from __future__ import annotations

import numpy as np

from controller.interleave.joint import fair_rates
from controller.interleave.joint.fair_rates import FULL, NIC_WAIT, SELDOM_MARKED
from controller.interleave.joint.fluid import DONE_BITS, STAIRS
from controller.interleave.joint.fluid_arrays import FluidArrays
from controller.interleave.joint.kernel_state import FluidState, inlined
from controller.interleave.joint.steady_rates import SENT

_queued = inlined(fair_rates.queued)
_behind = inlined(fair_rates.behind)


@inlined
def change(y: FluidState, s: int) -> None:
    """A stream has begun, ended or risen in weight."""
    y.fresh[y.n_fresh[0]] = s
    y.n_fresh[0] += not y.is_fresh[s]
    y.is_fresh[s] = True


@inlined
def settle(y: FluidState, s: int, now: float) -> None:
    """Count what a stream has sent since its last change."""
    moved = y.rate[s] * (now - y.since[s])
    y.left[s] = max(0.0, y.left[s] - moved)
    y.sent[s] += moved
    y.since[s] = now


@inlined
def look_ahead(x: FluidArrays, y: FluidState, s: int) -> None:
    """When a stream ends, and when its weight rises, if its rate stays."""
    j, rate, now = x.job[s], y.rate[s], y.since[s]
    y.stale[j] = True
    y.ends[s] = np.inf
    y.rises[s] = np.inf
    if 0 < y.left[s] <= DONE_BITS:
        y.ends[s] = now
    elif rate > 0:
        y.ends[s] = now + y.left[s] / rate
        if x.mltcp[j] and y.stair[s] < STAIRS - 1:
            until = y.whole[s] * (y.stair[s] + 1) / STAIRS - y.sent[s]
            y.rises[s] = now + max(0.0, until) / rate


@inlined
def _touch(x: FluidArrays, y: FluidState, s: int, links: int) -> int:
    """Add the links of a stream to so many touched ones. Returns their number."""
    for n in range(x.at[s], x.at[s + 1]):
        k = x.link[n]
        # Here and below sums take the place of branches that no processor predicts.
        y.touched[links] = k
        links += not y.is_touched[k]
        y.is_touched[k] = True
    return links


@inlined
def _fill(x: FluidArrays, y: FluidState, level: int, streams: int, links: int, weighted: bool) -> int:
    """`fair_rates._filled` for the first so many of `rising` and the first so many `touched` links of a
    level, into `found`, `filled` and `alone`. `weighted`: some weights are not 1.

    Returns the work, in the unit of PIECE.
    """
    rising, water, weight, cap, narrow = y.rising, y.water, y.weight, y.cap, y.narrow
    free, asked, share, lowest = y.free, y.asked, y.share, y.lowest
    size = 0
    for i in range(links):
        k = y.touched[i]
        many = y.above[level + 1, k] > SELDOM_MARKED
        free[k] = max(0.0, y.room[level, k] - x.control[k] * many)
        asked[k] = 0.0
        share[k] = np.inf
        lowest[k] = -np.inf
        y.alone[k] = False
        narrow[size] = k
        size += y.stops[level, k]
    for i in range(streams):
        s = rising[i]
        for n in range(x.at[s], x.at[s + 1]):
            asked[x.link[n]] += x.flows[s] * weight[s]
    work, left = links, streams
    while left > 0:
        work += 4 * left + size
        for i in range(size):
            k = narrow[i]
            share[k] = free[k] / asked[k]
            lowest[k] = np.inf
        for i in range(left):
            s = rising[i]
            own = cap[s]
            for n in range(x.at[s], x.at[s + 1]):
                own = min(own, share[x.link[n]])
            water[s] = own
            for n in range(x.at[s], x.at[s + 1]):
                lowest[x.link[n]] = min(lowest[x.link[n]], own)
        stay = 0
        for i in range(left):
            s = rising[i]
            capped = water[s] >= cap[s]
            stops, waits, last, nics, nic = capped, 0, 0, 0, 0
            for n in range(x.at[s], x.at[s + 1]):
                k = x.link[n]
                if lowest[k] >= share[k] * (1 - FULL):
                    stops = True
                    if share[k] > 0:
                        y.filled[k] = share[k]
                        if x.queues[k]:
                            waits += 1
                            last = k
                        else:
                            nics += 1
                            nic = k
            if stops:
                if waits == 1 and not capped:
                    y.alone[last] = True
                elif waits == 0 and nics == 1 and not capped:
                    y.alone[nic] = True
                rate = weight[s] * water[s]
                y.found[s] = rate
                for n in range(x.at[s], x.at[s + 1]):
                    k = x.link[n]
                    free[k] = max(0.0, free[k] - x.flows[s] * rate)
                    asked[k] -= x.flows[s]
            else:
                rising[stay] = s
                stay += 1
        left = stay
        # Without weights the sums are whole numbers, and stay exact where streams are taken out.
        if weighted:
            for i in range(size):
                asked[narrow[i]] = 0.0
            for i in range(left):
                s = rising[i]
                for n in range(x.at[s], x.at[s + 1]):
                    asked[x.link[n]] += x.flows[s] * weight[s]
    return work


@inlined
def _fair(x: FluidArrays, y: FluidState, level: int, streams: int, links: int, now: float) -> int:
    """Give the first so many of `rising` their `fair_rates` on the first so many `touched` links of a level.

    Returns the work, in the unit of PIECE.
    """
    weighted = False
    for i in range(streams):
        s = y.again[i] = y.rising[i]
        mltcp = x.mltcp[x.job[s]]
        y.weight[s] = x.slope * (y.stair[s] + 0.5) / STAIRS + x.intercept if mltcp else 1.0
        y.cap[s] = y.fastest[x.job[s]] / y.weight[s]
        weighted |= mltcp
    work = _fill(x, y, level, streams, links, weighted)
    lower = False
    for i in range(streams):
        s = y.again[i]
        full, least, trips, cap = 0, np.inf, 0.0, y.fastest[x.job[s]]
        for n in range(x.at[s], x.at[s + 1]):
            k = x.link[n]
            if y.alone[k]:
                full += 1
                trips += _queued(y.filled[k], cap) * (1.0 if x.queues[k] else NIC_WAIT)
                if x.queues[k]:
                    least = min(least, y.filled[k])
        if full > 1 and least < np.inf:
            part = _behind(least, trips - _queued(least, cap), y.found[s] / y.weight[s])
            lower |= part < 1.0
            y.weight[s] *= part
            y.cap[s] = cap / y.weight[s]
    if lower:
        for i in range(streams):
            y.rising[i] = y.again[i]
        work += _fill(x, y, level, streams, links, True)
    for i in range(streams):
        s = y.again[i]
        if y.found[s] != y.rate[s]:
            settle(y, s, now)
            y.rate[s] = y.found[s]
            look_ahead(x, y, s)
    return work


@inlined
def set_rates(x: FluidArrays, y: FluidState, now: float) -> int:
    """Give the streams their rates from `now` on.

    On each level another rate is possible only for a stream that has changed, and for those on a link that
    stops streams, or did before, if it is used by one of these streams, or if it has more or less room than
    before, or more or fewer flows of higher levels.

    Returns the work, in the unit of PIECE.
    """
    touched, met, rising, using, using_at = y.touched, y.met, y.rising, y.using, y.using_at
    levels, work, links = len(y.level_at) - 1, 0, 0
    for level in range(levels):
        for i in range(y.n_fresh[0]):
            s = y.fresh[i]
            if x.level[x.job[s]] == level:
                y.is_fresh[s] = False
                met[s] = y.wants[s] > 0
                links = _touch(x, y, s, links)
        if links > 0:
            i = 0
            while i < links:
                k = touched[i]
                m = level * len(x.capacity) + k
                work += using_at[m + 1] - using_at[m]
                wanted, waiting = 0.0, y.above[level, k]
                for n in range(using_at[m], using_at[m + 1]):
                    wanted += y.wants[using[n]]
                    waiting += x.flows[using[n]] * (y.wants[using[n]] > 0)
                stopped = y.stops[level, k]
                y.stops[level, k] = wanted > y.room[level, k]
                y.altered[k] = waiting != y.above[level + 1, k]
                y.above[level + 1, k] = waiting
                if stopped or y.stops[level, k]:
                    for n in range(using_at[m], using_at[m + 1]):
                        s = using[n]
                        if not met[s] and y.wants[s] > 0:
                            met[s] = True
                            links = _touch(x, y, s, links)
                i += 1
            # In their order: sums of doubles depend on it.
            streams = 0
            for i in range(y.level_at[level], y.level_at[level + 1]):
                s = y.by_level[i]
                rising[streams] = s
                streams += met[s]
                met[s] = False
            work += _fair(x, y, level, streams, links, now)
            stay = 0
            for i in range(links):
                k = touched[i]
                y.is_touched[k] = False
                if level + 1 < levels:
                    m = level * len(x.capacity) + k
                    used = 0.0
                    for n in range(using_at[m], using_at[m + 1]):
                        s = using[n]
                        used += x.flows[s] * (y.rate[s] if x.steady[s] == SENT else x.steady[s])
                    room = max(0.0, y.room[level, k] - used)
                    changed = room != y.room[level + 1, k] or y.altered[k]
                    touched[stay] = k
                    stay += changed
                    y.is_touched[k] = changed
                    y.room[level + 1, k] = room
            links = stay
    y.n_fresh[0] = 0
    return work
