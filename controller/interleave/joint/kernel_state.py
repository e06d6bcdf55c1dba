# SPDX-License-Identifier: Apache-2.0
"""The state of the compiled fluid model, and its start. Import this module only where it runs, because it
imports Numba."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.interleave.joint import fluid
from controller.interleave.joint.fluid_arrays import Floats, FluidArrays, Ints
from controller.interleave.joint.kernel_sources import SOURCES
from controller.interleave.joint.steady_rates import SENT
from controller.kernel import compiler

Bools = NDArray[np.bool_]

kernel = compiler(*SOURCES)
# Counting the references of the many arrays would take most of the time.
inlined = compiler(*SOURCES, inline=True)
begin_at = inlined(fluid.begin_at)


class FluidState(NamedTuple):
    """A simulation that is under way.

    A job's `timer` is when it begins or goes on, infinite while it sends; `due` is when the first of its
    streams ends or rises in weight, unless it is `stale`. `busy` of its streams send, `fastest` is the rate
    of its step. Its streams are `own[own_at[j]:own_at[j + 1]]`.

    `left` and `sent` of a stream are as they were at `since`, when its rate last changed; `ends` and `rises`
    say when it ends and rises if its rate stays. `wants` is the most that it sends on each link, and 0 if it
    does not send. `fresh[:n_fresh[0]]` are the streams that have begun, ended or risen since the rates were
    found; of each `is_fresh` says whether it is one of them.

    The streams of level k are `by_level[level_at[k]:level_at[k + 1]]`, those of them on link n
    `using[using_at[m]:using_at[m + 1]]` with m = k * links + n. `room[k]` is what the levels above k leave of
    each link, `above[k]` how many of their flows send there, and `stops[k]` says which links do not carry
    all that is wanted on level k. `at` holds the time.
    The other arrays are the working space of `set_rates`.
    """

    timer: Floats
    due: Floats
    stale: Bools
    done_at: Floats
    begun: Floats
    waiting: Bools
    step: Ints
    iteration: Ints
    counted: Ints
    total: Floats
    shift: Floats
    rest_until: Floats
    fastest: Floats
    busy: Ints
    own_at: Ints
    own: Ints
    left: Floats
    sent: Floats
    since: Floats
    whole: Floats
    rate: Floats
    stair: Ints
    ends: Floats
    rises: Floats
    wants: Floats
    fresh: Ints
    is_fresh: Bools
    n_fresh: Ints
    level_at: Ints
    by_level: Ints
    using_at: Ints
    using: Ints
    room: Floats
    above: Floats
    stops: Bools
    altered: Bools
    touched: Ints
    is_touched: Bools
    narrow: Ints
    met: Bools
    rising: Ints
    weight: Floats
    cap: Floats
    water: Floats
    free: Floats
    asked: Floats
    share: Floats
    lowest: Floats
    again: Ints
    found: Floats
    filled: Floats
    alone: Bools
    at: Floats


@kernel
def started(x: FluidArrays, starts: Floats) -> FluidState:
    """The simulation at its start; see `fluid._PlainFluid`."""
    jobs, streams, links = len(x.level), len(x.job), len(x.capacity)
    timer, whole = np.zeros(jobs), np.zeros(streams)
    own_at = np.zeros(jobs + 1, dtype=np.int64)
    own, by_level = np.zeros(streams, dtype=np.int64), np.zeros(streams, dtype=np.int64)
    for s in range(streams):
        own_at[x.job[s] + 1] += 1
        j = x.job[s]
        for at in range(x.first[j], x.first[j + 1]):
            whole[s] += x.up[at] * x.rate[at]
        whole[s] *= x.relative_size[s]
    for j in range(jobs):
        own_at[j + 1] += own_at[j]
        timer[j] = begin_at(starts[j], x.period[j], x.shift[j], 0.0)
    fill = own_at[:-1].copy()
    for s in range(streams):
        own[fill[x.job[s]]] = s
        fill[x.job[s]] += 1
    levels = x.level.max() + 1
    level_at = np.zeros(levels + 1, dtype=np.int64)
    size = 0
    for level in range(levels):
        for s in range(streams):
            if x.level[x.job[s]] == level:
                by_level[size] = s
                size += 1
        level_at[level + 1] = size
    using_at = np.zeros(levels * links + 1, dtype=np.int64)
    for s in range(streams):
        for n in range(x.at[s], x.at[s + 1]):
            using_at[x.level[x.job[s]] * links + x.link[n] + 1] += 1
    for m in range(levels * links):
        using_at[m + 1] += using_at[m]
    using, next_at = np.zeros(len(x.link), dtype=np.int64), using_at[:-1].copy()
    for s in range(streams):
        for n in range(x.at[s], x.at[s + 1]):
            m = x.level[x.job[s]] * links + x.link[n]
            using[next_at[m]] = s
            next_at[m] += 1
    room = np.zeros((levels, links))
    room[0] = x.capacity
    for level in range(levels - 1):
        for k in range(links):
            m = level * links + k
            used = 0.0
            for n in range(using_at[m], using_at[m + 1]):
                s = using[n]
                used += 0.0 if x.steady[s] == SENT else x.flows[s] * x.steady[s]
            room[level + 1, k] = max(0.0, room[level, k] - used)
    return FluidState(
        timer,
        np.full(jobs, np.inf),
        np.zeros(jobs, dtype=np.bool_),
        np.zeros(jobs),
        np.full(jobs, -1.0),
        np.ones(jobs, dtype=np.bool_),
        np.zeros(jobs, dtype=np.int64),
        np.zeros(jobs, dtype=np.int64),
        np.zeros(jobs, dtype=np.int64),
        np.zeros(jobs),
        x.shift.copy(),
        np.full(jobs, -np.inf),
        np.zeros(jobs),
        np.zeros(jobs, dtype=np.int64),
        own_at,
        own,
        np.zeros(streams),
        np.zeros(streams),
        np.zeros(streams),
        whole,
        np.zeros(streams),
        np.zeros(streams, dtype=np.int64),
        np.full(streams, np.inf),
        np.full(streams, np.inf),
        np.zeros(streams),
        np.zeros(streams + 1, dtype=np.int64),
        np.zeros(streams, dtype=np.bool_),
        np.zeros(1, dtype=np.int64),
        level_at,
        by_level,
        using_at,
        using,
        room,
        np.zeros((levels + 1, links)),
        np.zeros((levels, links), dtype=np.bool_),
        np.zeros(links, dtype=np.bool_),
        np.zeros(links + 1, dtype=np.int64),
        np.zeros(links, dtype=np.bool_),
        np.zeros(links + 1, dtype=np.int64),
        np.zeros(streams, dtype=np.bool_),
        np.zeros(streams + 1, dtype=np.int64),
        np.zeros(streams),
        np.zeros(streams),
        np.zeros(streams),
        np.zeros(links),
        np.zeros(links),
        np.zeros(links),
        np.zeros(links),
        np.zeros(streams + 1, dtype=np.int64),
        np.zeros(streams),
        np.zeros(links),
        np.zeros(links, dtype=np.bool_),
        np.zeros(1),
    )
