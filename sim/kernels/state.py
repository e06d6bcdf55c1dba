# SPDX-License-Identifier: Apache-2.0
"""What the kernels share: one engine's links, tasks, jobs and heap, as arrays of records.

Shapes: L links, C classes, T tasks, H links on the longest path, N channels, J jobs. A task is a
compute span, a flow or a barrier; a flow is known by its task's number. Few arrays of wide records, for
every function gets all of them. Rates are in bit/s, work in bits, times in ps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

COMPUTE, FLOW, BARRIER = 0, 1, 2
IDLE, ACTIVE = 0, 1

# Where the scalars of `reg` are.
NOW, HEAP, DIRTY, STAMP, STARTS, FINISHES, TIMERS, FULL, LOGGED, DONE, REFERENCE, SAVED = range(12)
SAVED_AT, STEPS, LIMIT, SKIPPED, REPAIRS, TOUCHED, HOPS, BOUNDARY, SAVED_LOG, PERIODIC = range(12, 22)
REGISTERS = 22

# Columns of the table of jobs.
ROOT, SINK, COUNT, TARGET, BEGIN, TOTAL, EPOCH, SHIFT, PERIOD, READY, HELD, KLASS, LONGEST, ENDED = range(14)
JITTER, SALT = 14, 15
JOB_COLUMNS = 16

LINK = np.dtype(
    [
        ("cap", np.float64),
        ("room", np.float64),  # what the region may still share out
        ("base", np.float64),  # the same before any of its flows has a rate
        ("in_region", np.int64),  # stamp
        ("flows_on", np.int32),  # flows of any class
        ("count", np.int32),  # of the region's flows that have no rate yet
        ("base_count", np.int32),  # of the region's flows
        ("born", np.int32),  # size of the region when the link joined it
        ("full_at", np.int32),  # the class with which it is full; beyond the last if it is not
        ("marks", np.int8),  # 1: a switch's port, which marks ECN
        ("is_dirty", np.int8),
        ("check", np.int8),  # 1: its flows' proofs are to be looked at
        ("dirty", np.int32),  # entry of the stack of links to look at
        ("region", np.int32),  # entry of the list of the region's links
    ],
    align=True,
)

# Per link and class, at link * C + class.
CELL = np.dtype(
    [
        ("used", np.float64),  # sum of the rates
        ("solved", np.float64),  # what the classes above left when the class was last allocated
        ("head", np.int32),  # first node of the list of flows, -1 if none
        ("changed", np.int8),  # a flow joined or left since
    ],
    align=True,
)

TASK = np.dtype(
    [
        # First what the allocator reads, side by side for the processor's cache.
        ("rate", np.float64),
        ("fresh", np.float64),  # the rate being worked out
        ("in_region", np.int64),  # stamp
        ("fixed", np.int64),  # stamp
        ("bottleneck", np.int32),  # a link; -1: its cap; -2: not allocated yet
        ("fresh_at", np.int32),  # the bottleneck being worked out
        ("earlier", np.float64),  # `fresh` and `fresh_at` of the round before
        ("earlier_at", np.int32),
        ("channel", np.int32),
        ("job", np.int32),
        ("limit", np.float64),  # rate cap of a flow
        ("left", np.float64),  # bits not yet sent at `since`
        ("since", np.int64),
        ("bits", np.float64),  # of a flow
        ("span", np.int64),  # of a compute
        ("indegree", np.int32),
        ("waiting", np.int32),  # predecessors that are not done in this iteration
        ("place", np.int32),  # index in the heap, -1 if not there
        ("stack", np.int32),  # entry of a stack of tasks
        ("region", np.int32),  # entry of the list of flows being allocated
        ("kind", np.int8),
        ("active", np.int8),
        ("held_back", np.int8),  # 1: others at a port that marks keep it from going faster
    ],
    align=True,
)

# A flow's place in the lists of its links, at flow * H + hop.
NODE = np.dtype([("following", np.int32), ("preceding", np.int32), ("flow", np.int32)], align=True)

CHANNEL = np.dtype(
    [
        ("sent", np.float64),  # bits so far
        ("congested", np.float64),  # those sent while held back
        ("saved_sent", np.float64),  # both at the saved state
        ("saved_congested", np.float64),
    ],
    align=True,
)

TIMED = np.dtype([("key", np.int64), ("task", np.int32)], align=True)
LEVEL = np.dtype([("key", np.float64), ("id", np.int32)], align=True)


class State(NamedTuple):
    """Everything an engine knows."""

    reg: NDArray[np.int64]
    links: Any  # (L,) of LINK
    cells: Any  # (L*C,) of CELL
    tasks: Any  # (T,) of TASK
    nodes: Any  # (T*H,) of NODE
    channels: Any  # (N,) of CHANNEL
    heap: Any  # (T,) of TIMED
    shares: Any  # (L+T,) of LEVEL: heap of water levels
    jobs: NDArray[np.int64]  # (J, JOB_COLUMNS)
    log: NDArray[np.int64]  # (K, 3): job, iteration's length, how many
    last_log: NDArray[np.int32]  # (J,) the job's last entry, -1 if none
    succ_at: NDArray[np.int64]  # (T+1,)
    succ: NDArray[np.int32]
    path: NDArray[np.int32]  # (N*H,) links, -1 after the last
    saved: NDArray[np.int64]  # the state that repeats are told by
    saved_counts: NDArray[np.int64]  # (J, 3): COUNT, TOTAL and HELD then
