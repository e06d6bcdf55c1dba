# SPDX-License-Identifier: Apache-2.0
"""Keeps a process quick to answer: no long pauses of the garbage collector, and planning comes second.

New flows wait for the controller's loop, for milliseconds at most. Two things hold it up for longer than any
work of its own: a full collection, which visits every object of every import and of the plan in force (70 ms
were measured), and other busy processes of a machine with few cores, each of which Linux lets finish its
time slice (3 ms and more).
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time

from controller.wire.time_slices import default_time_slices

log = logging.getLogger(__name__)

FULL_EVERY_S = 600.0
"""A full collection is made so often, as soon as nobody has asked for `QUIET_S`..."""
FULL_AT_LATEST_S = 3600.0
"""... and after so long whoever asks."""
QUIET_S = 1.0
NICENESS = 10
_TURN_S = 0.0005


class GarbageCollection:
    """Takes full collections out of the way of answers.

    What has survived a collection of the young is frozen, so the old generation stays empty, and what Python
    collects by itself is little. What dies old in a cycle is found by `tidy`.
    """

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        self._full_s = time.monotonic()
        gc.callbacks.append(_freeze)

    def tidy(self, now_s: float, asked_s: float) -> bool:
        """Make a full collection if it is time for one, by the monotonic clock; whether it was. `asked_s` is
        when somebody last waited for an answer."""
        since_s = now_s - self._full_s
        if since_s < FULL_EVERY_S or (since_s < FULL_AT_LATEST_S and now_s - asked_s < QUIET_S):
            return False
        self._full_s = now_s
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        log.info("full collection: %d objects in %.0f ms", found, 1e3 * (time.monotonic() - now_s))
        return True

    def close(self) -> None:
        """Collect as Python does by itself again."""
        gc.callbacks.remove(_freeze)
        gc.unfreeze()


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] >= 1:
        gc.freeze()


def switch_threads_often() -> None:
    """Have threads of this process take turns often: what is handed to the worker process is serialised in a
    thread beside the loop, which with Python's own 5 ms a turn would hold the loop up to the end of it."""
    sys.setswitchinterval(_TURN_S)


def lower_priority() -> None:
    """Have this process, which is a child of one that answers, take the processor time that others leave."""
    os.nice(NICENESS)
    default_time_slices()
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
