# SPDX-License-Identifier: Apache-2.0
"""The state that the kernels share: the links, tasks, loops and heap of one engine, as arrays of records.

Shapes: L links, C classes, T tasks, H links on the longest path, N channels, W ways, J loops. A loop is that
of a job, or that of each of its ranks (see `sim.task_graph`). A task is a compute span, a flow, a barrier or
a gate. A channel has at most one flow that sends, so the channel identifies the flow. There are few arrays
with wide records, because every function receives all of them. Rates are in bit/s, work in bits, times in ps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

COMPUTE, FLOW, BARRIER, GATE = 0, 1, 2, 3
IDLE, ACTIVE = 0, 1

# Where the scalars of `reg` are.
NOW, HEAP, DIRTY, STAMP, STARTS, FINISHES, TIMERS, FULL, LOGGED, DONE, REFERENCE, SAVED = range(12)
SAVED_AT, STEPS, LIMIT, SKIPPED, REPAIRS, TOUCHED, HOPS, BOUNDARY, SAVED_LOG, PERIODIC = range(12, 22)
LEVELS, FLOWS_IN, LINKS_IN, CLASSES_IN, GAP, HALF_LIFE, STARTERS, FIRST_PACKET = range(22, 30)
REGISTERS = 30

# Columns of the table of loops. FIRST: the first task of the loop's job.
ROOT, SINK, COUNT, TARGET, BEGIN, TOTAL, EPOCH, SHIFT, PERIOD, READY, HELD, LONGEST, ENDED = range(13)
JITTER, SALT, ONCE, LATE_BY, FIRST_BY, ALIGNED, FIRST = range(13, 20)
JOB_COLUMNS = 20

# Numbers per job and per task that tell a state from another (see `repeat`).
PER_JOB, PER_TASK = 4, 4

LINK = np.dtype(
    [
        ("cap", np.float64),
        ("room", np.float64),  # what the class may share out
        ("load", np.float64),  # bits sent until `load_at`, halved every HALF_LIFE
        ("load_at", np.int64),
        ("in_region", np.int64),  # stamp
        ("flows_on", np.int32),  # flows of any class
        ("full_at", np.int32),  # the class with which it is full; beyond the last if it is not
        ("marks", np.int8),  # 1: a switch's port, which marks ECN
        ("is_dirty", np.int8),
        ("check", np.int8),  # 1: what it carries is to be summed anew
        ("dirty", np.int32),  # entry of the stack of links to look at
        ("region", np.int32),  # entry of the list of the region's links
        ("least", np.int32),  # the link that a flowlet took last of the group that this one leads; -1: none
    ],
    align=True,
)

# Per link and class, at link * C + class.
CELL = np.dtype(
    [
        ("used", np.float64),  # sum of the rates
        ("solved", np.float64),  # what the classes above left when the class was last allocated
        ("first", np.int32),  # its flows are slots[first : first + count]
        ("count", np.int32),
        ("changed", np.int8),  # a flow joined or left since
    ],
    align=True,
)

# A flow as one of its links sees it; a link's stand side by side, for the processor's cache. `bound`
# and `weight` are the link's portion of those of a flow that is spread over several links.
SLOT = np.dtype([("bound", np.float64), ("weight", np.float64), ("flow", np.int32)], align=True)

# The flow of a channel, by channel: 64 bytes.
FLOWING = np.dtype(
    [
        ("bound", np.float64),  # what its links may count on (see `levels`); its rate between repairs
        ("weight", np.float64),  # its share is in proportion to it
        ("rate", np.float64),
        ("limit", np.float64),  # rate cap
        ("in_region", np.int64),  # stamp
        ("fixed", np.int64),  # stamp
        ("task", np.int32),  # the one that sends; -1: none
        ("bottleneck", np.int32),  # a link; -1: its cap; -2: not allocated yet
        ("fresh_at", np.int32),  # the bottleneck being worked out
        ("region", np.int32),  # entry of the list of flows being allocated
    ],
    align=True,
)

# What a channel has to send and has sent.
CHANNEL = np.dtype(
    [
        ("left", np.float64),  # bits not yet sent at `since`
        ("mark", np.float64),  # bits left when the weight changes next; 0: not before the end
        ("since", np.int64),
        ("sent", np.float64),  # bits so far
        ("congested", np.float64),  # those sent while held back
        ("whole", np.float64),  # bits of its queue pair in an iteration
        ("saved_sent", np.float64),  # both at the saved state
        ("saved_congested", np.float64),
        ("held_back", np.int8),  # 1: others at a port that marks keep it from going faster
        ("klass", np.int16),
    ],
    align=True,
)

TASK = np.dtype(
    [
        ("bits", np.float64),  # of a flow
        ("limit", np.float64),  # of a flow
        ("before", np.float64),  # bits that its queue pair sends earlier in an iteration
        ("span", np.int64),  # of a compute
        ("channel", np.int32),
        ("job", np.int32),  # the loop
        ("gives", np.int32),  # the gate that gets a token at its end; -1: none
        ("tokens", np.int32),  # of a gate; -1: it waits for one
        ("indegree", np.int32),
        ("waiting", np.int32),  # predecessors that are not done in this iteration
        ("stack", np.int32),  # entry of a stack of tasks
        ("kind", np.int8),
        ("active", np.int8),
    ],
    align=True,
)

TIMED = np.dtype([("key", np.int64), ("id", np.int32)], align=True)
LEVEL = np.dtype([("key", np.float64), ("id", np.int32)], align=True)


# What a channel's flowlets do. All but `owner` is kept by a queue pair's first channel for all of them.
FLOWLET = np.dtype(
    [
        ("since", np.int64),  # when its last flow ended
        ("sending", np.int32),  # how many of its flows send
        ("way", np.int32),  # which of its ways it takes; -1: none yet
        ("owner", np.int32),  # the first channel of the same queue pair
    ],
    align=True,
)


class State(NamedTuple):
    """The whole state of an engine."""

    reg: NDArray[np.int64]
    links: Any  # (L,) of LINK
    cells: Any  # (L*C,) of CELL
    tasks: Any  # (T,) of TASK
    slots: Any  # (S,) of SLOT, S the links of all channels' paths
    seat: NDArray[np.int32]  # (N*H,) where in `slots` a flow is, by channel and hop
    flows: Any  # (N,) of FLOWING
    channels: Any  # (N,) of CHANNEL
    heap: Any  # (T,) of TIMED: tasks by the time of their end
    place: NDArray[np.int32]  # (T,) a task's index in it, -1 if it is not there
    levels: Any  # (L,) of LEVEL: links by level
    rank: NDArray[np.int32]  # (L,) a link's index in it, as above
    weights: NDArray[np.float64]  # (J, STEPS) by the part of a loop's bytes that is sent; (J, 0): 1
    jobs: NDArray[np.int64]  # (J, JOB_COLUMNS)
    log: NDArray[np.int64]  # (K, 3): loop, iteration's length, how many
    last_log: NDArray[np.int32]  # (J,) the loop's last entry, -1 if none
    succ_at: NDArray[np.int64]  # (T+1,)
    succ: NDArray[np.int32]
    path: NDArray[np.int32]  # (N*H,) links, -1 after the last
    portion: NDArray[np.float64]  # (N*H,) the part of a flow's bits that crosses each of them
    flowlets: Any  # (N,) of FLOWLET
    first_way: NDArray[np.int32]  # (N+1,) where a channel's ways begin; none: its path is fixed
    ways: NDArray[np.int32]  # (W*H,) the links of each way, -1 after the last
    carried: NDArray[np.float64]  # (W,) bits that a channel has sent by each way
    starters: Any  # (N,) of TIMED: a heap of channels whose flows begin now and wait for a way
    waiting_at: NDArray[np.int32]  # (N,) a channel's index in it, as above
    saved: NDArray[np.int64]  # the state that repeats are told by
    saved_counts: NDArray[np.int64]  # (J, 3): COUNT, TOTAL and HELD then
