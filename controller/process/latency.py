# SPDX-License-Identifier: Apache-2.0
"""Keep the controller's latency low: no long garbage collections, and a low priority for planning.

A new flow waits for the controller's answer, for a few milliseconds at most. Two things delay the control
loop for longer than any work of its own. A full garbage collection visits every object of every import and
of the plan in force (70 ms were measured). And on a machine with few cores, Linux lets other busy processes
finish their time slices (3 ms and more).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time

from controller.model.durations import Durations
from controller.wire.time_slices import default_time_slices

log = logging.getLogger(__name__)

FULL_EVERY_S = 600.0
"""The time between two full collections. Chosen. A due collection waits until no agent has asked for
`QUIET_S`."""
FULL_AT_LATEST_S = 3600.0
"""After this time a full collection is made even if agents ask all the time. Chosen."""
QUIET_S = 1.0
NICENESS = 10
"""The nice value of the process that plans. Chosen: agents are answered first, and plans make progress."""
NICENESS_OF_WRITES = 5
"""The nice value of the process that computes table writes: a failed link waits for them. Chosen: between the
control loop and plans."""
_SWITCH_INTERVAL_S = 0.0001
"""How long one Python thread may hold the interpreter. Chosen: a fiftieth of Python's default. An answer to
an agent takes the interpreter several times, in the loop's thread and in gRPC's."""
PAUSE_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0)
"""Seconds. Chosen: around the few milliseconds that an answer may take."""
_LOOK_S = 0.02
"""How often `watch_pauses` looks. Chosen: it costs a thousandth of a processor."""


async def watch_pauses(pauses: Durations) -> None:
    """Count in `pauses` how late the running event loop comes to what is due, until cancelled.

    Whatever reaches the loop meanwhile waits as long, answers to agents too.
    """
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LOOK_S
        await asyncio.sleep(_LOOK_S)
        pauses.add(max(0.0, loop.time() - due_s))


class GarbageCollection:
    """Makes full garbage collections only when no agent waits for an answer.

    Objects that survive a collection of the young generation are frozen. So the old generation stays empty,
    and the collections that Python makes by itself are short. `collect_if_due` finds frozen garbage.
    """

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        self._full_s = time.monotonic()
        gc.callbacks.append(_freeze)

    def collect_if_due(self, now_s: float, asked_s: float) -> bool:
        """Make a full collection if one is due; returns whether it was.

        Both times are in seconds of the monotonic clock; `asked_s` is when an agent last asked for a flow.
        """
        since_s = now_s - self._full_s
        if since_s < FULL_EVERY_S or (since_s < FULL_AT_LATEST_S and now_s - asked_s < QUIET_S):
            return False
        self._full_s = now_s
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        log.info(
            "a full garbage collection freed %d objects in %.0f ms; it is made every %.0f s",
            found,
            1e3 * (time.monotonic() - now_s),
            FULL_EVERY_S,
        )
        return True

    def close(self) -> None:
        """Return to Python's own collections."""
        gc.callbacks.remove(_freeze)
        gc.unfreeze()


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] >= 1:
        gc.freeze()


def switch_threads_often() -> None:
    """Let Python switch between the threads of this process often.

    Threads beside the control loop serve the API, and serialise what goes to the worker processes. With
    Python's own switch interval of 5 ms they would delay the loop for that long.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def lower_priority(niceness: int) -> None:
    """Give this process a low priority: it gets the processor time that others leave."""
    os.nice(niceness)
    default_time_slices()
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
